// Package stats is the mathematics under groups, problems and explanations. Numbers in, numbers out: it knows
// nothing of traces, has no clock, does no I/O, starts no goroutine and keeps no global state; randomness comes from seeds.
//
//	exact sums       Moments, CoMoments, PairMoments   integers, so that merging is associative to the byte
//	distributions    Sketch                            quantiles with 1 % relative accuracy
//	                 Ranks                             what part is shorter, within 6 %, in little room
//	samples          Sample, Stratified, Row           bottom-k by hash: mergeable and safe under replay
//	time             Series                            at most ten buckets per series, finer towards the present
//	intervals        Table.Estimates                   for shares, means, CoV and tail lift
//	change           Reference, Change, Mix, EBH       e-values: valid whenever one looks
//	association      CanonicalCorrelation, PermutationTest, HeldOut
//	size models      FitSize, FitFolded                latency as a function of a transfer's size
//
// Everything aggregated has Add, Merge and, where it must survive a restart, AppendBinary and a Decode function. Decoders
// take untrusted bytes, accept nothing but what the encoders write, and return the zero value with every error, which
// wraps [codec.ErrCorrupt]. No type is safe for concurrent use.
package stats

// MaxNanos bounds the durations that may be added: [0, MaxNanos), 39 hours. Adding anything else panics: it is a bug of the
// caller, who must have rejected the trace.
const MaxNanos = 1 << 47
