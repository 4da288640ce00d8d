package offline

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Report is the result of an analysis.
type Report struct {
	Table    *trace.Table // has the names of everything below
	Traces   int
	Spans    int
	Complete int                  // traces in the statistics
	Rejected map[trace.Reason]int // spans and traces that are not
	Refused  uint64               // requests counted by request type only, because there were too many groups
	Groups   []group.Summary      // request types first, each followed by its groups; most requests first
	Problems []Problem            // ranked
	Common   []CommonEdges        // places that different request types seem to share, the strongest correlation first
}

// Problem is a ranked problem with its explanations and the tracepoints that the search would enable next. Problems
// beyond [Options.Explained] have the embedded problem only.
type Problem struct {
	detect.Problem
	Joint      float64                     // see explain.Association; NaN if the problem was not explained
	Unrelated  []explain.UnrelatedVariable // see explain.Association
	Contrasts  []NamedContrast             // hosts and versions that are slower than the others
	Recoveries []explain.Recovery          // of the leading edges, the leading one first
	Proposed   []search.Pick
	Missing    []trace.Op // operations that carry the problem and have no further tracepoint
	Exemplars  Exemplars
}

// NamedContrast is a value of an attribute whose requests are slower than those with other values.
type NamedContrast struct {
	Key string
	explain.Contrasted
}

// CommonEdges are places in different request types that rise and fall together: they may share a lock or a dependency.
type CommonEdges struct {
	Edges       []TypedEdge
	Correlation float64 // mean over the pairs that were found
	PValue      float64 // corrected for the number of pairs tried
}

// TypedEdge is the own time of a calling context in the requests of one type.
type TypedEdge struct {
	RequestType analysis.Hash
	Context     trace.Context
}
