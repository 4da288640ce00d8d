package search

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkNext measures the third decision of an investigation in a tree of 100 000 tracepoints, for each strategy.
func BenchmarkNext(b *testing.B) {
	w := newWorld(5, 100_000, 2)
	var st State
	in := Input{Epoch: epoch, Table: &w.table, Seed: 1}
	for range 3 {
		w.run(&st.Plan)
		p := w.problem(&st.Plan)
		p.Edges = p.Edges[:min(len(p.Edges), 50)]
		in.Now, in.Problems, in.State = w.now, []Problem{ProblemOf(&p)}, st
		in.Trees = map[analysis.Hash]*cct.Tree{p.RequestType: w.tree()}
		in.Rates = map[analysis.Hash]float64{p.RequestType: w.rate}
		st, _ = Next(in)
	}
	for _, s := range Strategies() {
		in.Strategy = s
		b.Run(s.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Next(in)
			}
		})
	}
}

// BenchmarkNextWide measures a decision over one operation with 60 000 tracepoints directly below it.
func BenchmarkNextWide(b *testing.B) {
	w := newWorld(5, 5, 2)
	var list []cct.Tracepoint
	for i := range 60_000 {
		list = append(list, cct.Tracepoint{ID: trace.Symbol(i + 1), Op: trace.Op(i + 1), Owner: w.nodes[0].op})
	}
	w.announce(list)
	w.run(&Plan{})
	p := w.problem(&Plan{})
	in := Input{
		Now: w.now, Problems: []Problem{ProblemOf(&p)}, Epoch: epoch, Seed: 1,
		Trees: map[analysis.Hash]*cct.Tree{p.RequestType: w.tree()},
	}
	for b.Loop() {
		Next(in)
	}
}
