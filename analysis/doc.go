// Package analysis decides which requests misbehave, and where on their critical path. It is the pure core of the
// pipeline:
//
//	closed trace → critpath.Extractor → Path → observation.Observer → Observation → group.Grouper → detect.Detector
//
// The results are ranked problems. The subpackages are:
//
//   - critpath extracts the critical path of every root of a trace.
//   - observation reduces a path to the data that one request contributes to statistics.
//   - group assigns observations to request types and groups, and keeps their statistics over time.
//   - detect learns the expectations of groups, and finds and ranks problems.
//   - explain finds the variables that account for a problem.
//   - history counts the calls of a running service, by site and time.
//   - compare ranks services by their additional cost relative to a history.
//   - onetrace explains one trace by its differences from normal traces.
//   - stats provides the exact, mergeable statistics and tests that the others use.
//
// This package itself only defines [Hash], the type of identities that they share.
//
// No subpackage reads the clock, starts goroutines, does I/O or keeps global state. Randomness derives from seeds
// passed as arguments. The same observations yield the same statistics, byte for byte, whatever their order and the
// number of shards.
package analysis
