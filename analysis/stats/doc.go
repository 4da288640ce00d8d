// Package stats provides the statistics from which groups, problems and explanations are built. It processes numbers
// and knows nothing about traces. It has no clock, no I/O, no goroutines and no global state. Randomness derives from
// seeds.
//
//	exact sums       Moments, CoMoments, PairMoments   integer sums: merging is exactly associative
//	distributions    Sketch                            quantiles with 1 % relative accuracy
//	                 Ranks                             percentiles of durations, within 6 %, in less memory
//	samples          Sample, Stratified, Row           bottom-k by hash: mergeable and safe under replay
//	time             Series                            at most ten buckets per series, finer towards the present
//	intervals        Table.Estimates                   for shares, means, CoV and tail lift
//	change           Reference, Change, Mix, EBH       anytime-valid tests by e-values
//	association      CanonicalCorrelations, PermutationTest, HeldOut
//	size models      FitSize                           latency as a function of a transfer's size
//
// Every aggregate has methods Add and, except for PairMoments, Merge. If it is part of the saved state, it also has
// AppendBinary and a Decode function. Decoders accept exactly the encodings that the encoders produce, even from
// untrusted input. Their errors wrap [codec.ErrCorrupt], and come with the zero value. No type is safe for concurrent
// use.
package stats

// MaxNanos is the exclusive upper limit on durations, in ns: 39 hours. Adding a duration outside [0, MaxNanos) panics;
// callers reject such traces.
const MaxNanos = 1 << 47
