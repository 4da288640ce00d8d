package detect_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// manyGroups returns groups, 100 per request type, with the given number of requests of 20 edges in each epoch.
func manyGroups(groups, epochs, count int) *group.Grouper {
	r := rand.New(rand.NewPCG(1, 2))
	g := group.NewGrouper(&group.RequestTypes{}, &trace.Table{}, group.Options{Groups: 2 * groups})
	for epoch := range epochs {
		for i := range groups {
			o := requests.Edged(r, i/100, i)
			for range count {
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
		g.EndEpoch(trace.Nanos(1e15).Add(time.Duration(epoch+1) * 10 * time.Second))
	}
	return g
}

// BenchmarkGroupMemory reports the bytes of a group whose three windows and samples are full.
func BenchmarkGroupMemory(b *testing.B) {
	const groups = 5000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		g := manyGroups(groups, 3, 20)
		d, o := detect.New(g), detect.DefaultWatchOptions()
		d.Learn(1e18, o)
		fill(g, groups, 40)
		d.Watch(2e15, o) // into the reference and the next one
		fill(g, groups, 40)
		g.EndEpoch(2e15 + 1e10) // into the current windows
		fill(g, groups, 40)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/groups, "bytes/group")
		runtime.KeepAlive(d)
	}
}

// fill adds requests to every group, so that its open window reaches its full size.
func fill(g *group.Grouper, groups, count int) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range groups {
		o := requests.Edged(r, i/100, i)
		for range count {
			o.Root++
			g.Observe(o)
		}
	}
}

// BenchmarkWatch ends an epoch of 10 000 groups with requests, either all healthy or each with a problem.
func BenchmarkWatch(b *testing.B) {
	for name, slower := range map[string]int{"healthy": 1, "problems": 3} {
		b.Run(name, func(b *testing.B) {
			const types = 5000 // each with one group
			g := newGrouper(group.Options{})
			d := detect.New(g)
			r := rand.New(rand.NewPCG(1, 2))
			observations := make([]*observation.Observation, types)
			for i := range observations {
				observations[i] = requests.Edged(r, i, 1)
			}
			play := func(count, factor int) {
				for _, o := range observations {
					for range count {
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
			options := detect.DefaultWatchOptions()
			for range 3 {
				play(20, 1)
				now += 1e10
				g.EndEpoch(now)
			}
			d.Learn(now, options)
			open := 0
			step := func() {
				now += 1e10
				open = len(d.Watch(now, options))
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

// BenchmarkChronic ranks 10 000 groups, each with a problem.
func BenchmarkChronic(b *testing.B) {
	d := detect.New(manyGroups(10_000, 1, 32))
	b.ReportAllocs()
	for b.Loop() {
		problems := d.Chronic(detect.Thresholds{CoV: 0.01, MinSamples: 10}, detect.ByImpact)
		b.ReportMetric(float64(len(problems)), "problems")
	}
}
