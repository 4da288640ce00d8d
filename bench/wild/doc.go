// Package wild judges the incidents of sibyl serve in random applications with untidy traffic, in compressed time and
// with default settings: an application at random → OTLP → [backtest.Player] → [Report].
//
// The generator models installations, not detectors: it knows neither how Sibyl assembles traces nor the quantities
// that it compares. We chose no parameter by its effect on a result. Equal seeds give equal traces and, with the same
// engine, equal reports.
//
// # The application
//
// Each seed is another application of 7 to 30 services in a directed graph. Requests enter through a gateway with 4 to
// 12 request types. Their rates follow Zipf's law, except for one type that has 5 to 8 % of the requests. Operations
// call others over HTTP or gRPC, one after the other or at the same time, and some only in part of the executions. They
// query databases, some of them shared, call third parties, and publish messages. Times are log-normal, each with its
// own mean and variation; some have tails, and some calls answer 404. Services have 1 to 4 pods on 3 to 6 nodes.
//
// Each installation is traced in its own way. Peers are named by DNS name, by the address of the pod, or by a virtual
// address. Attributes have the names of the old or the new semantic conventions. host.name is the pod or the node.
// k8s.pod.name, k8s.pod.ip, service.instance.id, zones, versions, exception events and the flag of remote parents may
// be present or not; k8s.node.name always is. Head sampling records 1 to 100 % of the requests: 2 to 50 a second, or as
// few as 1.5, so that a seed has about four million spans. If a message is linked to its producer, its consumer makes
// its own sampling decision, so the link may lead to an unrecorded trace.
//
// Untidiness is drawn independently: work after the response (in half of the applications), phones whose clocks are up
// to two minutes wrong, streams (40 % each), a hop that exports no spans, polls (25 % each), and queues (75 %): within
// a trace, by links, or with receive spans. Traces reach the engine in the order of their last timestamps, as from a
// file.
//
// # The run
//
// The first 30 to 40 minutes are healthy. Then follow a fault of every kind that the application has a place for, and a
// harmless event of every kind, in random order, 9 to 15 minutes apart. Four to seven faults come before the first
// event. Half of the faults affect the service that the latest event changed, if their kind can. Traffic wanders by 15
// %.
//
// A fault lasts 6 to 9 minutes, a leak 25 to 30. Place and strength are random. We simulate them beforehand, so that a
// person who looks at the traces would call it a fault: it touches at least 3 % of the requests, and 30 recorded ones.
// If it makes them slow, we draw a ratio from 1.6 to 6 for their mean duration, and require at least 1.5.
//
//   - slow-code, lock (in a quarter to a half of the executions), errors, http-503 (without span status), n-plus-1,
//     timeouts, retries, slow-release (a deploy that adds a slow span): one operation
//   - rare-type: slow code of an operation in at most 10 % of the requests
//   - leak: all operations of a service, growing from nothing
//   - slow-pod, slow-node, slow-database, slow-third-party, slow-wire between two services, queue-lag
//   - outage: calls of a service are refused or time out
//
// Harmless events are deploys with one more internal span, announced by service.version or not, restarts, pods that are
// added and removed, a renamed route, a renamed span, a new endpoint, a batch job for eight minutes, a shift of half of
// the requests of a type to another one, a node whose pods move, health checks as frequent as requests, a drop of the
// traffic for twelve minutes, and an operation that becomes faster. New pods are 40 % slower for some seconds.
//
// # The verdict
//
// A fault is raised if an incident opens or returns in its window or in [backtest.Grace] after it. We judge the first
// such incident by its suspects as of that time. The rank is the rank of the first right suspect. The service with the
// fault is right; for a wire, both of its ends are; for a queue, its name and its consumer; for a node, its name, and a
// service whose first instance is the node. For a database or a third party, its name is right, and so is its only
// caller, whose spans are all that the traces contain of it. Incidents that open at any other time are false.
package wild
