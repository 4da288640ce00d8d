// Package analysis decides which requests misbehave and where on their critical path. It is the pure core of the pipeline, in rooms:
//
//		closed trace → critpath.Extractor → Path → observation.Observer → Observation → group.Grouper → detect.Detector → ranked problems
//
//	  - critpath extracts the critical path of every root of a trace.
//	  - observation reduces a path to what one request contributes to statistics.
//	  - group puts observations into request types and groups, and keeps statistics of each over time.
//	  - detect learns what to expect of groups, and finds and ranks problems.
//	  - explain finds variables that account for a problem; baselinediff compares services with their history.
//	  - stats has the exact, mergeable statistics and tests that all of them use.
//
// This package itself has only the identity that the rooms share.
//
// No room has a clock, starts a goroutine, does I/O or keeps global state; randomness comes from seeds it is given. The same
// observations give the same statistics, to the byte, in any order and over any number of shards.
package analysis
