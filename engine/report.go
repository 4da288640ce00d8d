package engine

import (
	"github.com/sibyl-trace/sibyl/analysis"
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
	Groups   []analysis.Summary   // request types first, each followed by its groups; most requests first
	Problems []ProblemReport      // ranked
}

// ProblemReport is one ranked problem with the tracepoints that the search would switch on next.
type ProblemReport struct {
	analysis.Problem
	Proposed []search.Pick
	Missing  []trace.Op // operations that carry what is wrong and have no tracepoint that is not on
}
