// Package stats is the mathematics behind groups, problems and explanations. Its input and output are numbers: it knows
// nothing of traces, has no clock, does no I/O, starts no goroutine and keeps no global state. Randomness comes from
// seeds.
//
//	exact sums       Moments, CoMoments, PairMoments   integers, so that merging is associative to the byte
//	distributions    Sketch                            quantiles with 1 % relative accuracy
//	                 Ranks                             the fraction below a duration, within 6 %, in little memory
//	samples          Sample, Stratified, Row           bottom-k by hash: mergeable and safe under replay
//	time             Series                            at most ten buckets per series, finer towards the present
//	intervals        Table.Estimates                   for shares, means, CoV and tail lift
//	change           Reference, Change, Mix, EBH       e-values: valid at any stopping time
//	association      CanonicalCorrelation, PermutationTest, HeldOut
//	size models      FitSize, FitFolded                latency as a function of a transfer's size
//
// Every aggregate has Add, Merge and, if it must survive a restart, AppendBinary and a Decode function. Decoders take
// untrusted bytes and accept only the output of the encoders. With every error they return the zero value; the error
// wraps [codec.ErrCorrupt]. No type is safe for concurrent use.
package stats

// MaxNanos bounds the durations that may be added: [0, MaxNanos), 39 hours. Adding any other duration panics: the
// caller should have rejected the trace.
const MaxNanos = 1 << 47
