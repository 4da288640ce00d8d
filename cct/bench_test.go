package cct

import (
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// largeBuilder knows n tracepoints in operations of 30, and one request through all operations.
func largeBuilder(n int) *Builder {
	rng := rand.New(rand.NewPCG(1, 1))
	b := &Builder{}
	var list []Tracepoint
	contexts := []Sighting{{Context: trace.Context(0).Child(1), Op: 1, Count: 1}}
	for i := range n {
		owner := i / 30
		tp := Tracepoint{ID: trace.Symbol(i + 1_000_000), Op: trace.Op(i + 1_000_000), Owner: trace.Op(owner + 1)}
		if k := i % 30; k > 3 {
			tp.Parent = trace.Symbol(i - 1 - rng.IntN(k-2) + 1_000_000)
		}
		list = append(list, tp)
		if i%30 == 29 {
			above := contexts[max(0, len(contexts)-1-rng.IntN(20))]
			op := trace.Op(owner + 2)
			contexts = append(contexts, Sighting{Context: above.Context.Child(op), Parent: above.Context, Op: op, Count: 1})
		}
	}
	b.Announce(1, list)
	b.Observe(Observation{Seen: 1, Contexts: contexts})
	return b
}

func BenchmarkBuild(b *testing.B) {
	builder := largeBuilder(100_000)
	b.ReportAllocs()
	for b.Loop() {
		builder.Build(nil)
	}
}

func BenchmarkMatch(b *testing.B) {
	tree := largeBuilder(100_000).Build(nil)
	path := tree.visiblePath(int32(len(tree.Nodes)-1), nil)
	renamed := append(path[:len(path)-1:len(path)-1], 12345)
	on := []trace.Symbol{tree.Nodes[tree.byTracepoint[0]].Tracepoint}
	for name, run := range map[string]func(){
		"exact":    func() { tree.Match(path, nil) },
		"enabled":  func() { tree.Match(path, on) },
		"distance": func() { tree.Match(renamed, nil) },
		"context":  func() { tree.MatchContext(tree.Baseline(int32(len(tree.Nodes) - 1))) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	builder := largeBuilder(1000)
	o := Observation{Seen: 2}
	above := trace.Context(0)
	for i := range 20 {
		c := above.Child(trace.Op(i + 1))
		o.Contexts = append(o.Contexts, Sighting{Context: c, Parent: above, Op: trace.Op(i + 1), Count: 1})
		above = c
	}
	b.ReportAllocs()
	for b.Loop() {
		builder.Observe(o)
	}
}
