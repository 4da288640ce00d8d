package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkTicks measures an hour of 512 groups with ten requests in each tick. It reports the CPU time to store a
// tick, the size of a tick, the CPU time to pack it to minutes, the size of a minute, and the CPU time to read two
// days of a group.
func BenchmarkTicks(b *testing.B) {
	const groups, hours, day = 512, 1, 24
	s := newBenchStore(b)
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	past := make([]*group.Past, 512) // shared by the groups
	for i := range past {
		past[i] = &group.Past{}
		middle := 1e7 * math.Exp(3*r.Float64())
		for range 10 {
			d := int64(middle * math.Exp(0.5*r.NormFloat64()))
			past[i].Total.Add(d)
			past[i].Latency.Add(d, 1)
		}
	}
	size := func() float64 {
		must(s.Compact(b.Context()))
		ticks, err := s.db.EstimateDiskUsage([]byte{keyTicks}, []byte{keyTicks + 1})
		minutes, err2 := s.db.EstimateDiskUsage([]byte{keyMinutes}, []byte{keyMinutes + 1})
		must(errors.Join(err, err2))
		return float64(ticks + minutes)
	}
	id := func(i int) analysis.Hash { return analysis.Hash{Hi: trace.Mix(uint64(i), 1), Lo: uint64(i)} }
	minute := func(at trace.Nanos) {
		all := make(map[Tick]*group.Past)
		for tick := range int(time.Minute / group.Tick) {
			for i := range groups {
				from := at.Add(time.Duration(tick) * group.Tick)
				all[Tick{id(i), from}] = past[trace.Mix(uint64(i), uint64(from))%512]
			}
		}
		must(s.Ticks.Add(all))
	}
	const ticks = groups * hours * 360
	began := cpuTime()
	for b.Loop() {
		for k := range hours * 60 {
			minute(firstDay.Add(time.Duration(k) * time.Minute))
		}
	}
	b.ReportMetric((cpuTime()-began).Seconds()*1e6/float64(ticks*b.N), "store-µs/tick")
	b.ReportMetric(size()/ticks, "B/tick")
	began = cpuTime()
	must(s.Ticks.Pack(firstDay.Add(hours * time.Hour)))
	b.ReportMetric((cpuTime()-began).Seconds()*1e6/ticks, "pack-µs/tick")
	b.ReportMetric(size()/(groups*hours*60), "B/minute")
	for hour := hours; hour < 2*day; hour++ {
		for k := range 60 {
			at := firstDay.Add(time.Duration(hour*60+k) * time.Minute)
			must(s.Ticks.Add(map[Tick]*group.Past{{id(7), at}: past[7]}))
		}
	}
	must(s.Ticks.Pack(firstDay.Add(2 * group.Day)))
	began = cpuTime()
	all, err := s.Ticks.Windows(id(7), firstDay, firstDay.Add(2*group.Day))
	must(err)
	b.ReportMetric((cpuTime()-began).Seconds()*1e3, "read-ms")
	if len(all) != 2*day*60 {
		b.Fatalf("%d minutes", len(all))
	}
}

// cpuTime returns the CPU time of the process, which is independent of other programs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
