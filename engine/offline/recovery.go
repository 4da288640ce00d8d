package offline

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of the simulation of requests with an edge at its reference level.
const (
	simulatedRequests = 64      // of a problem
	simulatedSpans    = 1 << 17 // of a problem
	mostRecoveries    = 5       // edges of a problem
)

// simulations hold the requests to simulate and their results.
type simulations struct {
	problems []*simulation
	wanted   map[requestID][]*simulation
}

// requestID identifies a request.
type requestID struct {
	trace trace.ID
	root  trace.SpanID
}

// simulation collects the results for one problem.
type simulation struct {
	problem    *Problem
	recoveries *explain.Recoveries
	spans      int // left to simulate; larger traces are skipped
}

func newSimulations() *simulations { return &simulations{wanted: make(map[requestID][]*simulation)} }

// add schedules requests of a problem, which are a uniform sample in random order.
func (r *simulations) add(p *Problem, requests []*observation.Observation) {
	levels := explain.ReferenceLevels(&p.Problem, requests)
	if len(levels) == 0 {
		return
	}
	levels = levels[:min(len(levels), mostRecoveries)]
	x := &simulation{p, explain.NewRecoveries(p.Level, levels), simulatedSpans}
	r.problems = append(r.problems, x)
	for _, o := range requests[:min(len(requests), simulatedRequests)] {
		id := requestID{o.Trace, o.Root}
		r.wanted[id] = append(r.wanted[id], x)
	}
}

// run finds the traces of the requests in the input, simulates them and completes the problems.
func (r *simulations) run(ctx context.Context, a *analyzer) error {
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
			for _, x := range r.wanted[requestID{t.ID, p.Nodes[p.Roots[i].Node].ID}] {
				if x.spans >= len(t.Spans) {
					x.spans -= len(t.Spans)
					x.recoveries.Add(p, i)
				}
			}
		}
	}
	for _, x := range r.problems {
		x.problem.Recoveries = x.recoveries.All()
	}
	return nil
}
