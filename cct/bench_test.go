package cct

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// large returns a catalogue of n tracepoints, 30 per operation, and a builder with one request through all operations.
func large(n int) (*Builder, []Tracepoint) {
	rng := rand.New(rand.NewPCG(1, 1))
	b := &Builder{}
	var list []Tracepoint
	contexts := []ContextCount{{Context: trace.Context(0).Child(1), Op: 1, Count: 1}}
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
			contexts = append(contexts,
				ContextCount{Context: above.Context.Child(op), Parent: above.Context, Op: op, Count: 1})
		}
	}
	b.Observe(Observation{Seen: 1, Contexts: contexts})
	return b, list
}

// few returns a request of three operations that have 90 tracepoints in a large catalogue.
func few() Observation {
	root := trace.Context(0).Child(1)
	return Observation{Seen: 1, Contexts: []ContextCount{
		{Context: root, Op: 1, Count: 1},
		{Context: root.Child(2), Parent: root, Op: 2, Count: 1},
		{Context: root.Child(3), Parent: root, Op: 3, Count: 1},
	}}
}

func BenchmarkBuild(b *testing.B) {
	builder, list := large(100_000)
	catalogue := NewCatalogue(list, nil)
	b.ReportAllocs()
	for b.Loop() {
		builder.Build(catalogue, nil)
	}
}

// BenchmarkNewCatalogue has the tracepoints of ten services in no order, with hashes as IDs, as agents send them.
// Half of them have no place.
func BenchmarkNewCatalogue(b *testing.B) {
	for _, n := range []int{1 << 18, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			_, list := large(n)
			var table trace.Table
			var services []trace.Symbol
			for i := range 10 {
				services = append(services, table.Symbol("service-"+strconv.Itoa(i)))
			}
			hash := func(s trace.Symbol) trace.Symbol { return s * 0x9e3779b97f4a7c15 }
			for i := range list {
				tp := &list[i]
				name := table.Symbol("method-" + strconv.Itoa(i))
				tp.Op = table.Op(services[i%len(services)], name, trace.Internal)
				tp.ID, tp.Parent = hash(tp.ID), hash(tp.Parent)
				if i%60 >= 30 {
					tp.Owner = 0
				}
			}
			rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, k int) { list[i], list[k] = list[k], list[i] })
			b.ReportAllocs()
			for b.Loop() {
				NewCatalogue(list, &table)
			}
		})
	}
}

// BenchmarkTrees measures the memory of a large catalogue and of a request type with three of its operations.
func BenchmarkTrees(b *testing.B) {
	const trees = 500
	for _, n := range []int{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("catalogue=%d", n), func(b *testing.B) {
			_, list := large(n)
			var shared, each float64
			for b.Loop() {
				kept := make([]*Tree, 0, trees)
				builders := make([]Builder, trees)
				before := inUse()
				catalogue := NewCatalogue(list, nil)
				with := inUse()
				for i := range builders {
					builders[i].Observe(few())
					kept = append(kept, builders[i].Build(catalogue, nil))
				}
				shared, each = with-before, (inUse()-with)/trees
				runtime.KeepAlive(catalogue)
				runtime.KeepAlive(kept)
				runtime.KeepAlive(builders)
			}
			b.ReportMetric(each, "bytes/tree")
			b.ReportMetric(shared/float64(n), "bytes/tracepoint")
		})
	}
}

// inUse returns the number of reachable heap bytes.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func BenchmarkMatch(b *testing.B) {
	builder, list := large(100_000)
	tree := builder.Build(NewCatalogue(list, nil), nil)
	path := tree.visiblePath(int32(len(tree.Nodes)-1), nil)
	renamed := append(path[:len(path)-1:len(path)-1], 12345)
	on := []trace.Symbol{tree.Nodes[tree.byTracepoint[0]].Tracepoint}
	for name, run := range map[string]func(){
		"exact":    func() { tree.Match(path, nil) },
		"enabled":  func() { tree.Match(path, on) },
		"distance": func() { tree.Match(renamed, nil) },
		"context":  func() { tree.MatchContext(tree.baseline[len(tree.Nodes)-1]) },
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
	builder, _ := large(1000)
	o := Observation{Seen: 2}
	above := trace.Context(0)
	for i := range 20 {
		c := above.Child(trace.Op(i + 1))
		o.Contexts = append(o.Contexts, ContextCount{Context: c, Parent: above, Op: trace.Op(i + 1), Count: 1})
		above = c
	}
	b.ReportAllocs()
	for b.Loop() {
		builder.Observe(o)
	}
}
