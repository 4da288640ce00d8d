package live

import (
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkTicks measures the cost of the ticks that charts show: the CPU time per request, and the memory until the
// next checkpoint, a minute later. There are as many groups and request types as there is room for, each with one
// request per second.
func BenchmarkTicks(b *testing.B) {
	const half = 1024
	groups := make([]*group.Group, 2*half)
	for i := range groups {
		groups[i] = &group.Group{}
		groups[i].ID = analysis.Hash{Hi: trace.Mix(uint64(i), 1), Lo: uint64(i)}
	}
	r := rand.New(rand.NewPCG(1, 1))
	all := make([]observation.Observation, 4096)
	for i := range all {
		all[i].Duration = time.Duration(1e7 * math.Exp(0.5*r.NormFloat64()))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t := newTicks(2 * half)
	t.now = start
	i := 0
	one := func() {
		o := &all[i%len(all)]
		o.Start = start.Add(time.Duration(i%(60*half)) * time.Minute / (60 * half))
		t.observe(groups[i%half], groups[half+i%half], o)
		i++
	}
	for range 60 * half {
		one()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	var began, ended syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &began)
	for b.Loop() {
		one()
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &ended)
	b.ReportMetric(float64(ended.Utime.Nano()-began.Utime.Nano())/float64(b.N),
		"cpu-ns/op") // not affected by other programs
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(t.all)), "B/tick")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
}
