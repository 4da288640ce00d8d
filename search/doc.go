// Package search decides which tracepoints to switch on next. From ranked problems, calling-context trees, the
// present plan and a budget it makes the next plan. It keeps an investigation for each problem until the cause is
// located or explained, the candidates are exhausted, or the problem closes. Every decision carries its evidence.
//
// Next is pure: it reads nothing but its arguments, and equal arguments give equal decisions, byte for byte.
//
// # Terms
//
//   - A scope is a baseline operation that carries part of a problem, with the locations inside it.
//   - A location is a calling context of tracepoints inside a scope. A known location was seen by enough requests; a
//     suspect is a known location in the ranking of an investigation.
//   - A region is a known location with the unknown ones below it, down to the next known ones: the part of a problem
//     that nothing explains yet.
//   - A candidate is a tracepoint in a region that could be switched on. It is unanchored if it may run anywhere in
//     the operation, as probes of a process may.
//   - A cooldown keeps a tracepoint off for a problem that it did not explain.
//   - An override is a person's decision about a tracepoint: enable, pin or forbid.
//
// # Steps of an investigation
//
//  1. Edges that carry a problem are matched to the tree and joined by operation. An operation that is called from
//     several contexts is searched once. Its locations are the switchable contexts below it, down to the next
//     baseline operation.
//  2. Evidence is mapped to locations by projection: a location matches a context that would look the same if the
//     tracepoints in between were off. Requests of different plans are different samples, weighted by their number.
//  3. The own share of a known location is its share less those of the known locations next below it.
//  4. A strategy picks tracepoints in the regions that may carry the problem. Known locations are switched off again;
//     those that explain nothing cool down.
//  5. The cause is located once one location, or up to three together, keep most of the operations' share, stand out
//     from the next, and have no candidates below them. Shares judged by few requests are verified first: rare slowness
//     may be missing from them, and the first of several locations must be distinguished from the others. Nothing is
//     searched below a wait in the kernel, and unanchored tracepoints are tried below functions only: once a wait, a
//     lock or another part of the runtime carries most, other probes of its process are not needed. A function's own
//     time may be any wait without a probe so far. An operation without any known location inside is not located,
//     unless it calls something that emits no spans: the search is exhausted and names it as missing tracepoints.
//  6. A located wait, or a variable that accounts for half of the rest, explains the problem.
//  7. One cause often opens several problems, of groups and of request types. Changed problems of one application are
//     searched in turn, the greatest first; the others wait, for a few minutes at most, and use the evidence in the
//     meantime. Steady problems wait for them, and are searched a few at a time. Incidents, which stand for all of
//     their problems, do not wait.
//
// # The budget
//
// Costs are estimated from how often locations run and from the cost of a hit that agents report, for the whole plan,
// each request type and each service. Forced overrides come first, then pins, other overrides, changed problems and
// chronic ones. Within a rank the order is the expected share revealed per cost, and the worst tracepoints are left
// out. If agents measure more than was estimated, all estimates grow by that factor. Exploration takes the rest.
package search
