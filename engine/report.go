package engine

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Report is what an offline analysis found.
type Report struct {
	Table    *trace.Table // gives everything below its names
	Traces   int
	Spans    int
	Complete int                  // traces that entered the statistics
	Rejected map[trace.Reason]int // spans, and traces, that did not
	Refused  uint64               // requests that were not told apart by group, as there were too many groups
	Groups   []group.Summary      // request types first, each followed by its groups; most requests first
	Problems []ProblemReport      // ranked
	Common   []CommonEdges        // what different request types seem to share, the strongest first
}

// ProblemReport is one ranked problem with what accounts for it, what it would bring to mend it, and the tracepoints that the search
// would switch on next. The later ones of many problems have nothing but the problem.
type ProblemReport struct {
	detect.Problem
	Joint      float64                     // see explain.Association; NaN where nothing was explained
	Unrelated  []explain.UnrelatedVariable // likewise
	Contrasts  []NamedContrast             // hosts and versions that are slower than the others
	Recoveries []explain.Recovery          // of the leading edges, the leading one first
	Proposed   []search.Pick
	Missing    []trace.Op // operations that carry what is wrong and have no tracepoint that is not on
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
