// Package critpath extracts the critical path of every root of a closed trace: the sequence of intervals, each owned by
// one span, that adds up to the duration of the root. [Extractor.Extract] lists the steps. [Simulation] predicts the
// duration of a request with faster edges.
//
// A tracepoint span is a span with a tracepoint ID. The others are baseline spans. Tracepoint spans refine a critical
// path and change nothing else of it.
package critpath
