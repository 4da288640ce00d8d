// Package sim simulates distributed applications in which one thing goes wrong: from a seed to the traces that agents
// would send while a given plan is switched on, and to the ground truth about what there is to be found. It is the judge of
// the search and is not shaped to suit it: it imports nothing of analysis, search or engine, and shares no constant with
// them. Parameters are tuned on seeds below 1 000; reports use seeds from 10 000 up (that is the caller's business).
//
// It has no clock and starts no goroutines: time is passed in. The same [Config] and the same calls give the same traces.
//
// # The application
//
// Services lie in tiers below the gateways (2 below 10 services, 3 below 40, else 4; a seventh of them, two at least, are
// gateways). Each has 2–5 hosts of slightly different speed; one service in six runs a newer version on one of them. Its
// share of the tracepoints is log-normal (σ 0.8). Of these about 12 % are kernel probes (run queue, disk, DNS, sockets,
// futex, page faults, pipes), 14 % belong to the runtime (locks, serializers, pools, pauses, garbage collection), 6 % are
// helper functions that several others call, 3 % variables (more at gateways), and the rest are the functions of its
// operations, 18–37 in the mean (half at gateways). Large services have many probes, told apart by file, socket or lock.
//
// Functions of an operation form a tree 4–8 deep with skewed fan-out. A call may be optional, repeated (geometric), one of
// several in parallel, behind a cache, or asynchronous, see [Config]. Own times are log-normal around means that are
// log-uniform between 20 µs and 1.5 ms, with coefficients of variation log-uniform between 0.1 and 1; disks take 0.1–3 ms,
// third parties 4–60 ms, the wire 0.1–0.8 ms one way, queues of messages 3–60 ms. A point's own time lies evenly around its
// calls. Every operation of a tier has a caller in the tier above, popular ones have several.
//
// A remote call is a CLIENT span for each attempt and a SERVER span within it. It is given up after 8 mean durations of the
// callee plus 250 ms, when the callee works on, and retried up to 0–2 times. A message is a PRODUCER span and a CONSUMER
// span that nobody waits for.
//
// Every gateway operation is a request type; their rates fall off as 1/rank^0.7. Requests arrive as a Poisson process whose
// rate swings with the time of day. A request has a tenant (12, shares as 1/rank), a region (4), and a payload size
// (log-normal, CoV 1), of which serializers' times depend.
//
// Locks and cores of busy hosts are real resources: a request waits until those that arrived before it are done with them.
// A healthy application's are never short.
//
// # The fault
//
// It acts at a place drawn uniformly from those of its sort that are executed at least once in ten minutes in the mean,
// wherever that is: it need not be on a critical path, nor matter. Its strength is drawn too: the loss of time of an affected
// request is log-normal around 0.4 of the mean duration of the requests that execute the place (σ 0.7), twice that
// for slow-path, attribute and host, which few requests meet, and divided by how often such a request executes it. For lock
// and cpu, and for the fraction of executions that are affected, see [Target].
// [App.Effect] says beforehand whether a fault can be located.
//
// # Switching on
//
// Every execution of a point has a random stream of its own, so that the draws depend neither on the plan nor on the
// fault. A hit of a switched-on tracepoint costs time, within its own span. That moves what follows, and hence waits
// for locks and cores; otherwise traces under two plans differ only in which spans are emitted.
package sim
