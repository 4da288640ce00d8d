// Package analysis decides which requests misbehave and where on their critical path. It is the pure core of the
// pipeline, divided into subpackages:
//
//		closed trace → critpath.Extractor → Path → observation.Observer → Observation → group.Grouper → detect.Detector
//		→ ranked problems
//
//	  - critpath extracts the critical path of every root of a trace.
//	  - observation reduces a path to the contribution of one request to the statistics.
//	  - group assigns observations to request types and groups, and keeps statistics of each over time.
//	  - detect learns the expectation of each group, and finds and ranks problems.
//	  - explain finds variables that account for a problem; baselinediff compares services with their history.
//	  - stats provides the exact, mergeable statistics and tests that the others use.
//
// This package itself defines only [Hash], the identity that the subpackages share.
//
// No subpackage has a clock, starts a goroutine, does I/O or keeps global state; randomness comes from seeds passed by
// the caller. The same observations yield the same statistics, byte for byte, in any order and over any number of
// shards.
package analysis
