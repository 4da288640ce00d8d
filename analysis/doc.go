// Package analysis decides which requests misbehave and where on their critical path. It is the pure core of the pipeline:
//
//	closed trace → Extractor.Extract → Path → Observer.Observe → Observation → groups → ranked problems
//
// What accounts for problems is found out by package explain, which builds on this one.
//
// It has no clock, starts no goroutine, does no I/O and keeps no global state; randomness comes from seeds it is given. The
// same observations give the same statistics, to the byte, in any order and over any number of shards.
package analysis
