package engine

import (
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordHistory adds to the trees the evidence of each investigation whose status decisions change to Located, once per
// context, so that later searches start where causes were found before.
func (r *Searches) recordHistory(decisions []search.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Subject.IsZero() || d.From >= search.Located || d.To != search.Located {
			continue
		}
		v := r.state.Investigation(d.Subject)
		if _, ok := v.Subject.Incident(); ok {
			r.learnInside(v)
		} else {
			r.trees.learn(v.RequestType, resultsOf(v))
		}
	}
}

// learnInside adds the evidence of an incident's investigation to the trees of all its request types.
func (r *Searches) learnInside(v *search.Investigation) {
	for _, s := range r.list {
		if s.subject() == v.Subject {
			r.trees.learnInside(s.types(), s.operations, resultsOf(v))
		}
	}
}

// resultsOf returns the evidence of v by context.
func resultsOf(v *search.Investigation) map[trace.Context]cct.History {
	own := make(map[trace.Symbol]float64, len(v.Suspects))
	for _, s := range v.Suspects {
		own[s.Tracepoint] += s.Share
	}
	results := make(map[trace.Context]cct.History, len(v.Evidence))
	for _, e := range v.Evidence {
		if _, known := results[e.Context]; e.Context != 0 && !known {
			results[e.Context] = cct.HistoryOf(own[e.Tracepoint], e.Mean)
		}
	}
	return results
}
