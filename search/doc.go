// Package search decides where to look next: from ranked problems, calling-context trees, what is switched on and a budget it
// makes the next plan, and it keeps an investigation for each problem until the place is located, explained, exhausted or the
// problem is gone. Every change comes with its evidence.
//
// It is pure: Next reads nothing but its arguments, and the same arguments give the same decisions, byte for byte.
//
// # How a problem is searched
//
//  1. The edges that carry a problem are matched to the tree and joined by operation: an operation that is called from
//     several places is searched once. The places inside it are the switchable contexts below it, down to the next
//     baseline operation.
//  2. What tracepoints showed is mapped to these places by projection: a place stands for whatever appeared as it would
//     with the tracepoints between off. Requests of different plans are different samples, averaged by their number.
//  3. A known place carries itself its share less that of the known places next below it. Together with the unknown places
//     below it, it is a region: what nothing explains yet.
//  4. A strategy picks tracepoints in the regions that may carry the problem. What is known goes off again: what explains
//     nothing stays silent for a while.
//  5. The place is located when it, or up to three together, keep most of what the operations carry, are told apart from the
//     next, and nothing below them is left to try. Shares judged by few requests are verified first: what is slow rarely
//     may have been missing from them, and of places that stand out only together the first is to be told from the others.
//     Nothing is looked for below a wait in the kernel, and what nobody places is looked for below functions only: once a
//     wait, a lock or another part of the runtime carries most, the other probes of its process are not needed. Below a
//     function they are: its own time may be any wait that no probe showed yet. An operation in which nothing was looked at is
//     not located: the search is exhausted, and names it as missing tracepoints.
//  6. A wait that was located, or a variable that accounts for half of what is left, explains it.
//  7. One cause often opens several problems, of request types and their groups. While the greatest of those that the same
//     operation leads is searched, the others wait for what it shows, for some epochs at most.
//
// # What a plan may cost
//
// Costs are estimated from how often places were executed and what agents say of a hit, for the plan as a whole, each request
// type and each service. What people force comes first, then what they pin and wish, then changed problems, then chronic
// ones, each by the share that it is expected to reveal per cost; the worst is left out. Where agents measured more than was
// estimated, all estimates grow by that factor. Exploration takes what is left.
package search
