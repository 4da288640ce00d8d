// Package critpath extracts the critical path of every root of a closed trace: the sequence of intervals, each owned by
// one span, that adds up to the duration of the root. [Extractor.Extract] lists the steps. [Simulation] predicts the
// duration of a request with faster edges.
//
// A tracepoint span is a span with a tracepoint ID. All others are baseline spans. Tracepoint spans refine a critical
// path and change nothing else about it.
//
// # Requests that are not trees
//
// No baseline span is left out because of its time or its parent. A span counts below its parent unless it is outside
// the parent, that is, it ends before the parent starts, or starts after the parent has ended. These rules distinguish
// wrong clocks from work that nothing waits for:
//
//   - A SERVER span below a CLIENT span answers a synchronous call. If the two have no common clock, because their
//     hosts differ or are unknown, the SERVER span is placed inside the CLIENT span, whatever the skew. Spans of the
//     same host are not moved, nor are spans of the same service whose hosts are unknown. The whole request happens at
//     the time that most of its spans report: the clock of a phone may be hours off.
//   - Any other span that is outside its parent counts below its nearest ancestor in the same process that ran at the
//     time. Such a parent only started the work, like a span that registers a callback. The ancestor may have waited
//     for the work, and a path that ignored the span would charge its calls to the ancestor. The search stops at the
//     border of the process, because a process that has answered keeps no caller waiting.
//   - If there is no such ancestor, the span is detached: it and the spans below it form a request of their own, with
//     the type of its operation, linked to its parent ([Root.From], [Path.Wait]). This applies to work after the
//     response, to processing after receiving, and to FOLLOWS_FROM. A CONSUMER span is always detached from a PRODUCER
//     and from another service, and from any parent that has ended, because each message is processed on its own.
//   - A span whose parent did not arrive is a root, too ([BelowMissing]). If an unanswered CLIENT span runs during the
//     whole time of such a root, it has called the missing hop ([Path.Gap]) and no longer counts as unanswered.
package critpath
