package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkTicks measures two hours of 2 048 groups with ten requests in each tick: the time to store a minute, the size
// of a tick, the time to pack an hour, the size of a minute, and the time to read two days of a group.
func BenchmarkTicks(b *testing.B) {
	const groups, hours, day = 2048, 2, 24
	s := newBenchStore(b)
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	past := make([]*group.Past, 512) // of which groups take turns
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
				all[Tick{id(i), at.Add(time.Duration(tick) * group.Tick)}] = past[(i*7)%512]
			}
		}
		must(s.AddTicks(all))
	}
	var storing time.Duration
	minutes := 0
	for b.Loop() {
		for k := range hours * 60 {
			began := time.Now()
			minute(firstDay.Add(time.Duration(k) * time.Minute))
			storing += time.Since(began)
			minutes++
		}
	}
	b.ReportMetric(storing.Seconds()*1e3/float64(minutes), "store-ms/minute")
	b.ReportMetric(size()/(groups*hours*360), "B/tick")
	began := time.Now()
	must(s.PackTicks(firstDay.Add(hours * time.Hour)))
	b.ReportMetric(time.Since(began).Seconds()*1e3/hours, "pack-ms/hour")
	b.ReportMetric(size()/(groups*hours*60), "B/minute")
	for hour := hours; hour < 2*day; hour++ {
		for k := range 60 {
			must(s.AddTicks(map[Tick]*group.Past{{id(7), firstDay.Add(time.Duration(hour*60+k) * time.Minute)}: past[7]}))
		}
	}
	must(s.PackTicks(firstDay.Add(2 * group.Day)))
	began = time.Now()
	all, err := s.Ticks(id(7), firstDay, firstDay.Add(2*group.Day))
	must(err)
	b.ReportMetric(time.Since(began).Seconds()*1e3, "read-ms")
	if len(all) != 2*day*60 {
		b.Fatalf("%d minutes", len(all))
	}
}
