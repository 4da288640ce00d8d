package engine

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of what is replayed with an edge at its reference level.
const (
	replayedRequests = 64      // of a problem
	replayedSpans    = 1 << 17 // of a problem: a trace that is larger than what is left of them is not replayed
	mostRecoveries   = 5       // edges that recoveries are told of
)

// replays are requests that are replayed for the sake of problems.
type replays struct {
	problems []*replay
	wanted   map[replayed][]*replay
}

// replayed identifies a request.
type replayed struct {
	trace trace.ID
	root  trace.SpanID
}

// replay is what comes of it for one problem.
type replay struct {
	report     *ProblemReport
	recoveries *explain.Recoveries
	spans      int // that may still be replayed
}

func newReplays() *replays { return &replays{wanted: make(map[replayed][]*replay)} }

// add has requests of a problem, a uniform sample in random order, replayed.
func (r *replays) add(report *ProblemReport, requests []*observation.Observation) {
	levels := explain.ReferenceLevels(&report.Problem, requests)
	if len(levels) == 0 {
		return
	}
	levels = levels[:min(len(levels), mostRecoveries)]
	x := &replay{report, explain.NewRecoveries(report.Level, levels), replayedSpans}
	r.problems = append(r.problems, x)
	for _, o := range requests[:min(len(requests), replayedRequests)] {
		id := replayed{o.Trace, o.Root}
		r.wanted[id] = append(r.wanted[id], x)
	}
}

// run replays the requests, whose traces are looked up in the input, and completes the reports.
func (r *replays) run(ctx context.Context, a *offline) error {
	ids := make([]trace.ID, 0, len(r.wanted))
	for id := range r.wanted {
		ids = append(ids, id.trace)
	}
	extractor := critpath.NewExtractor(a.options.Path)
	for t, err := range a.input.Find(ids) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := extractor.Extract(t)
		for i := range p.Roots {
			for _, x := range r.wanted[replayed{t.ID, p.Nodes[p.Roots[i].Node].ID}] {
				if x.spans >= len(t.Spans) {
					x.spans -= len(t.Spans)
					x.recoveries.Add(p, i)
				}
			}
		}
	}
	for _, x := range r.problems {
		x.report.Recoveries = x.recoveries.All()
	}
	return nil
}
