// Package sim simulates distributed applications with one fault each. It generates, from a seed, the traces that agents
// would send under a given plan, and the ground truth about the fault. It is used to judge the search, so it is
// independent of the search: it does not import analysis, search or engine, and shares no constants with them.
// Parameters are tuned on seeds below 1 000; callers report on seeds from 10 000 up.
//
// The package has no clock and starts no goroutines: time is an argument. Equal [Config] and equal calls give equal
// traces.
//
// # The application
//
// Services form tiers below the gateways: 2 tiers with less than 10 services, 3 with less than 40, otherwise 4. A
// seventh of the services, at least two, are gateways. A service has 2–5 hosts of slightly different speed; one
// service in six runs a newer version on one of them. The number of tracepoints per service is log-normal (σ 0.8).
// About 12 % of them are kernel probes (run queue, disk, DNS, sockets, futex, page faults, pipes), 14 % belong to the
// runtime (locks, serializers, pools, pauses, garbage collection), 6 % are helper functions with several callers, 3 %
// are variables (more at gateways), and the rest are functions of the service's operations, 18–37 on average (half as
// many at gateways). Large services have many probes, distinguished by file, socket or lock.
//
// The functions of an operation form a tree 4–8 levels deep with skewed fan-out. A call may be optional, repeated
// (geometric), one of several in parallel, behind a cache, or asynchronous, see [Config]. Own times are log-normal.
// Their means are log-uniform between 20 µs and 1.5 ms, their coefficients of variation log-uniform between 0.1 and 1.
// Disks take 0.1–3 ms, third parties 4–60 ms, the wire 0.1–0.8 ms one way, message queues 3–60 ms. The own time of a
// point is spread evenly around its calls. Each operation of a tier has a caller in the tier above; popular operations
// have several.
//
// A remote call is a CLIENT span for each attempt, with a SERVER span within. The caller gives up after 8 mean
// durations of the callee plus 250 ms, while the callee continues, and retries up to 0–2 times. A message is a
// PRODUCER span and a CONSUMER span for which no caller waits. Third parties emit no spans: half of them are services
// with an HTTP API, a third are databases, a sixth are caches.
//
// Like in OpenTelemetry's instrumentations, names do not distinguish callees: calls are named GET, POST, SELECT,
// INSERT or SET, and messages publish or send. Attributes name the callee. Callers balance the load among the
// addresses of its replicas. [Config.CalleeNames] selects calls that are named after their callees, without these
// attributes. Its requests are otherwise the same.
//
// Each gateway operation is a request type; rates are proportional to 1/rank^0.7. Requests arrive as a Poisson process
// with a daily cycle. A request has a tenant (one of 12, with frequencies proportional to 1/rank), a region (one of
// 4), and a payload size (log-normal, CoV 1), on which the times of serializers depend.
//
// Locks, and cores of busy hosts, are real resources: a request waits until earlier requests have released them. They
// are never scarce without a fault.
//
// # The fault
//
// The location of the fault is drawn uniformly from the points of its kind that are executed at least once in ten
// minutes on average. It may be off every critical path and without any visible effect. The strength is random, too.
// The extra time of an affected request is log-normal (σ 0.7) around 0.4 of the mean duration of the requests that
// execute the point; twice that for slow-path, attribute and host, which affect few requests. It is divided by the
// number of executions per request. [Target] documents lock, cpu, and the fractions of affected executions.
// [App.Effect] determines in advance whether a fault can be located.
//
// # Tracepoints
//
// Each execution of a point has its own random stream, so random choices depend neither on the plan nor on the fault.
// A hit of an enabled tracepoint costs time within its own span. This shifts everything after it, including waits for
// locks and cores. Otherwise the traces under two plans differ only in their spans.
package sim
