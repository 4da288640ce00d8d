// Package search decides which tracepoints to switch on next. It makes the next plan from ranked problems,
// calling-context trees, the current plan and a budget. It keeps an investigation for each problem until the cause is
// located or explained, the candidates are exhausted, or the problem closes. Every decision carries its evidence.
//
// Next is pure: it reads nothing but its arguments, and equal arguments give equal decisions, byte for byte.
//
// # Terms
//
//   - A scope is a baseline operation that carries part of a problem, with the locations inside it.
//   - A location is a calling context of tracepoints inside a scope. A location is known once enough requests have run
//     with its tracepoint on; a suspect is a known location in the ranking of an investigation.
//   - A region is a known location with the unknown locations below it, down to the next known locations. It is the
//     part of a problem that nothing explains yet.
//   - A candidate is a tracepoint in a region that could be switched on. It is unanchored if it may run anywhere in
//     the operation, like a probe of a process.
//   - A cooldown keeps a tracepoint off for a problem that it did not explain.
//   - An override is a person's decision about a tracepoint: enable, pin or forbid.
//
// # Steps of an investigation
//
//  1. Edges that carry a problem are matched to the tree and grouped by operation. An operation that is called from
//     several contexts is searched once. Its locations are the switchable contexts below it, down to the next baseline
//     operation.
//  2. Evidence is mapped to locations by projection: a location matches a context that would look the same if the
//     tracepoints in between were off. Requests of different plans are different samples, weighted by their number.
//  3. The own share of a known location is its share minus the shares of the known locations next below it.
//  4. A strategy picks tracepoints in the regions that may carry the problem. Where agents sample stacks, the search
//     first waits for the stacks of slow requests: functions that account for hardly any of their time are not
//     candidates, the adaptive strategy picks the functions that account for most of it, and common waits in the kernel
//     are tried after a function is located. Known locations are switched off again. They cool down if they explain
//     nothing.
//  5. The cause is located once one location, or up to three together, keep most of the operations' share, stand out
//     from the next, and have no candidates below them. Shares judged by few requests are verified first: rare slowness
//     may be missing from them, and the first of several locations must be distinguished from the others. We do not
//     search below a wait in the kernel, and try unanchored tracepoints below functions only. Once a wait, a lock or
//     another part of the runtime carries most, other probes of its process are not needed. But a function's own time
//     may still be a wait without a probe. An operation without any known location inside is not located, unless it
//     calls something that emits no spans. The search is then exhausted and reports that the operation lacks
//     tracepoints.
//  6. The problem is explained if waits in the kernel account for at least half of the located share, if a variable
//     accounts for at least half of the variance, or if the located function is known not to wait.
//  7. One cause often opens several problems, of groups and of request types. Changed problems of one application are
//     searched one at a time, the largest first. The others wait for a few minutes at most, and meanwhile use the
//     evidence from that search. Steady problems wait for changed ones, and are searched a few at a time. Incidents,
//     which stand for all their problems, do not wait.
//
// # The budget
//
// Costs are estimated from how often locations run and from the cost per hit that agents report, for the whole plan and
// for each service. Forced overrides come first, then pins, other overrides, changed problems and chronic problems.
// Within a rank, tracepoints are ordered by the expected share revealed per cost, and the worst are left out. If agents
// measure more than was estimated, all estimates grow by that factor.
package search
