package offline

import (
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Report is the result of [Analyze]: the groups of requests in the traces and their problems.
type Report struct {
	Table     *trace.Table // with all names used below
	Traces    int
	Spans     int
	Judged    int                   // number of traces with at least one root in the statistics
	Complete  int                   // number of judged traces without a missing parent
	Rejected  map[trace.Reason]int  // number of spans and roots left out of the statistics
	Coverage  trace.Coverage        // how the spans were used
	Families  []trace.Family        // operations whose names seem to contain identities
	Refused   uint64                // number of requests counted only by request type because of too many groups
	Groups    []group.Summary       // request types first, each followed by its groups; most requests first
	Problems  []Problem             // ranked
	Incidents *backtest.Result      // nil if we didn't look for incidents
	Common    []explain.CommonEdges // places that different request types seem to share, by decreasing correlation
}

// Problem is a ranked problem with its explanations and the tracepoints that the search would enable next. Problems
// beyond [Options.Explained] have only the embedded problem.
type Problem struct {
	detect.Problem
	Findings  explain.Findings
	Proposed  []search.Pick
	Missing   []trace.Op // operations that carry the problem but have no further tracepoints
	Exemplars Exemplars
}
