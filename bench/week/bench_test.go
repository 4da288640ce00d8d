package week

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkHour plays a morning hour of the first day, after the night before it: 1 000 request types with 15 requests
// a second at the peak.
func BenchmarkHour(b *testing.B) {
	defaults, err := config.Load(config.Sources{})
	if err != nil {
		b.Fatal(err)
	}
	table := &trace.Table{}
	a := newApp(1, 1000, 15, table)
	s := plan(1, a, 2)
	q := player{app: a, schedule: s, rate: 15, player: backtest.NewPlayer(s.labels(a), backtest.Options{
		Core: defaults.Config.Engine(), Assembly: defaults.Config.OpenTraces(), Table: table,
	})}
	at := monday
	hour := func() {
		for end := at.Add(time.Hour); at < end; at = at.Add(time.Minute) {
			q.minute(at)
		}
	}
	for range 8 {
		hour()
	}
	for b.Loop() {
		hour()
	}
	b.ReportMetric(time.Hour.Seconds()*float64(b.N)/b.Elapsed().Seconds(), "times-real-time")
}
