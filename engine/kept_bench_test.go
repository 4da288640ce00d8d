package engine

import (
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkKept measures the CPU time per kept request, and the memory after three hours. The requests have 100 types,
// 20 edges and ten variables.
func BenchmarkKept(b *testing.B) {
	const types, rate = 100, 20 // requests per second
	groups := make([]*group.Group, types)
	for i := range groups {
		groups[i] = &group.Group{}
		groups[i].ID = analysis.Hash{Hi: 1, Lo: uint64(i + 1)}
	}
	r := rand.New(rand.NewPCG(1, 1))
	all := make([]*observation.Observation, 4096)
	for i := range all {
		all[i] = requests.Edged(r, i%types, i%types)
		for k := range 10 {
			all[i].Variables = append(all[i].Variables,
				observation.Variable{Key: trace.Symbol(k + 1), Text: trace.Symbol(r.Uint64N(50) + 1)})
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	k, now, i := newKept(nil, nil, DefaultOptions().Kept), trace.Nanos(1_800_000_000*int64(time.Second)), 0
	one := func() {
		o := all[i%len(all)]
		o.Trace = trace.ID{0: byte(i), 1: byte(i >> 8), 2: byte(i >> 16), 3: byte(i >> 24)}
		o.Start = now
		k.observe(groups[i%types], nil, o)
		if i++; i%rate == 0 {
			now = now.Add(time.Second)
		}
		if i%(10*rate) == 0 {
			k.endEpoch(now, func(analysis.Hash) bool { return true })
		}
	}
	for range 3 * 3600 * rate {
		one()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := 0
	for _, strata := range k.types {
		for _, s := range strata {
			for range s.All() {
				n++
			}
		}
	}
	b.ReportAllocs()
	var began, ended syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &began)
	for b.Loop() {
		one()
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &ended)
	// not affected by other programs
	b.ReportMetric(float64(ended.Utime.Nano()-began.Utime.Nano())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(n), "requests")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
}
