package analysis_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// benchEdges is how many edges design counts on in a group.
const benchEdges = 20

// benchObservation returns a request of group number group with benchEdges edges, of which its type has all.
func benchObservation(r *rand.Rand, requestType, group int) *analysis.Observation {
	o := &analysis.Observation{
		Trace: trace.ID{0: byte(group), 1: byte(group >> 8)}, Root: trace.SpanID(r.Uint64()),
		Start: trace.Nanos(r.Int64N(1e10)), Entry: trace.Op(requestType + 1), Skeleton: analysis.Hash{Hi: 7, Lo: uint64(group)},
	}
	root := trace.Context(0).Child(o.Entry)
	for i := range benchEdges {
		ns := 50_000 + r.Int64N(50_000)
		ctx, parent := root, trace.Context(0)
		if i > 0 {
			parent, ctx = root, root.Child(trace.Op(i))
		}
		o.Contexts = append(o.Contexts, analysis.ContextCount{Context: ctx, Parent: parent, Op: trace.Op(i), Count: 1, Exclusive: ns, Self: ns, Total: ns})
		o.Edges = append(o.Edges, analysis.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: ns})
		o.Duration += time.Duration(ns)
	}
	sortObservation(o)
	return o
}

func sortObservation(o *analysis.Observation) {
	slices.SortFunc(o.Contexts, func(a, b analysis.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b analysis.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
}

// BenchmarkGroupObserve adds requests to both levels, distinct ones in many groups, so that caches are as cold as in life.
func BenchmarkGroupObserve(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d groups", groups), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var all []*analysis.Observation
			for i := range max(2000, groups) {
				all = append(all, benchObservation(r, i%groups/10, i%groups))
			}
			g := analysis.NewGrouper(&analysis.RequestTypes{}, &trace.Table{}, analysis.GroupOptions{})
			for _, o := range all {
				g.Observe(o)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o := all[i%len(all)]
				o.Root++
				g.Observe(o)
				i++
			}
		})
	}
}

// manyGroups fills groups of 100 to a request type, each over the given number of epochs with requests of 20 edges.
func manyGroups(groups, epochs, requests int) *analysis.Grouper {
	r := rand.New(rand.NewPCG(1, 2))
	g := analysis.NewGrouper(&analysis.RequestTypes{}, &trace.Table{}, analysis.GroupOptions{Groups: 2 * groups})
	for epoch := range epochs {
		for i := range groups {
			o := benchObservation(r, i/100, i)
			for range requests {
				o.Root++
				for k := range o.Edges {
					o.Edges[k].Nanos += r.Int64N(1000)
					o.Contexts[k].Exclusive = o.Edges[k].Nanos
				}
				o.Duration = 0
				for k := range o.Edges {
					o.Duration += time.Duration(o.Edges[k].Nanos)
				}
				g.Observe(o)
			}
		}
		g.Close(trace.Nanos(1e15).Add(time.Duration(epoch+1) * 10 * time.Second))
	}
	return g
}

// BenchmarkGroupMemory prints the bytes of a group with all three windows and samples full.
func BenchmarkGroupMemory(b *testing.B) {
	const groups = 5000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		g := manyGroups(groups, 3, 20)
		o := analysis.DefaultWatchOptions()
		g.Learn(1e18, o)
		fill(g, groups, 40)
		g.Watch(2e15, o) // into the reference and the next one
		fill(g, groups, 40)
		g.Close(2e15 + 1e10) // into what is judged
		fill(g, groups, 40)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/groups, "bytes/group")
		runtime.KeepAlive(g)
	}
}

// fill adds requests to every group, so that its open window is as large as it gets.
func fill(g *analysis.Grouper, groups, requests int) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range groups {
		o := benchObservation(r, i/100, i)
		for range requests {
			o.Root++
			g.Observe(o)
		}
	}
}

// BenchmarkWatch ends an epoch of 10 000 groups that all had requests: all well, or all a problem of their own.
func BenchmarkWatch(b *testing.B) {
	for name, slower := range map[string]int{"healthy": 1, "problems": 3} {
		b.Run(name, func(b *testing.B) {
			const types = 5000 // each with one group
			g := newGrouper(analysis.GroupOptions{})
			r := rand.New(rand.NewPCG(1, 2))
			observations := make([]*analysis.Observation, types)
			for i := range observations {
				observations[i] = benchObservation(r, i, 1)
			}
			play := func(requests, factor int) {
				for _, o := range observations {
					for range requests {
						one := *o
						o.Root++
						one.Edges = slices.Clone(o.Edges)
						one.Duration = 0
						for k := range one.Edges {
							one.Edges[k].Nanos = int64(factor) * (50_000 + r.Int64N(50_000))
							one.Duration += time.Duration(one.Edges[k].Nanos)
						}
						g.Observe(&one)
					}
				}
			}
			now := trace.Nanos(2e15)
			options := analysis.DefaultWatchOptions()
			for range 3 {
				play(20, 1)
				now += 1e10
				g.Close(now)
			}
			g.Learn(now, options)
			open := 0
			step := func() {
				now += 1e10
				open = len(g.Watch(now, options))
			}
			for range 6 {
				play(10, slower)
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				play(2, slower)
				b.StartTimer()
				step()
			}
			b.ReportMetric(float64(open), "problems")
		})
	}
}

// BenchmarkChronic ranks 10 000 groups of which every one is a problem.
func BenchmarkChronic(b *testing.B) {
	g := manyGroups(10_000, 1, 32)
	b.ReportAllocs()
	for b.Loop() {
		b.ReportMetric(float64(len(g.Chronic(analysis.Thresholds{CoV: 0.01, MinSamples: 10}))), "problems")
	}
}
