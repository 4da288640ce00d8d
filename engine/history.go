package engine

import (
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordHistory adds to the trees the evidence of the investigations that the decisions located, for each context once,
// so that the next search starts where causes were.
func (c *Core) recordHistory(decisions []search.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Investigation.IsZero() || d.From >= search.Located || d.To != search.Located {
			continue
		}
		v := c.state.Investigation(d.Investigation)
		t := c.trees[v.RequestType]
		if t == nil {
			continue
		}
		own := make(map[trace.Symbol]float64, len(v.Suspects))
		for _, s := range v.Suspects {
			own[s.Tracepoint] += s.Share
		}
		learned := make(map[trace.Context]bool, len(v.Evidence))
		for _, e := range v.Evidence {
			if e.Context != 0 && !learned[e.Context] {
				learned[e.Context] = true
				t.builder.Learn(e.Context, cct.HistoryOf(own[e.Tracepoint], e.Mean))
				t.grown = true
			}
		}
	}
}
