package offline

import (
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
	Judged   int                   // traces in the statistics, with all or some of their roots
	Complete int                   // of these, traces without a missing parent
	Rejected map[trace.Reason]int  // spans and roots that are not
	Coverage trace.Coverage        // what became of the spans
	Families []trace.Family        // operations whose names seem to hold identities
	Refused  uint64                // requests counted by request type only, because there were too many groups
	Groups   []group.Summary       // request types first, each followed by its groups; most requests first
	Problems []Problem             // ranked
	Common   []explain.CommonEdges // places that different request types seem to share, the strongest correlation first
}

// Problem is a ranked problem with its explanations and the tracepoints that the search would enable next. Problems
// beyond [Options.Explained] have the embedded problem only.
type Problem struct {
	detect.Problem
	Findings  explain.Findings
	Proposed  []search.Pick
	Missing   []trace.Op // operations that carry the problem and have no further tracepoint
	Exemplars Exemplars
}
