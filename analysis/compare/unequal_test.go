package compare

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestUnequal plays a service with an instance that is slow, or fails, from the start. An instance does not count if
// that holds only for a part of the time, if it is younger than the history, or if it is one of two.
func TestUnequal(t *testing.T) {
	of := func(n int, slower, fails float64) func(*tracetest.Fleet) []tracetest.Instance {
		return func(f *tracetest.Fleet) []tracetest.Instance {
			all := tracetest.Instances(n)
			all[1].Slower, all[1].Fails = slower, fails
			return all
		}
	}
	healthy := of(6, 1, 0)
	for _, x := range []struct {
		name         string
		before, then func(*tracetest.Fleet) []tracetest.Instance
		slower       float64 // 0 if no instance is unequal
		fails        float64
	}{
		{"healthy", healthy, healthy, 0, 0},
		{"slow", of(6, 5, 0), of(6, 5, 0), 5, 0},
		{"failing", of(6, 1, 0.3), of(6, 1, 0.3), 1, 0.3},
		{"a little slow", of(6, 2, 0), of(6, 2, 0), 0, 0},
		{"slow for the last half", healthy, of(6, 5, 0), 0, 0},
		{"slow for the first half", of(6, 5, 0), healthy, 0, 0},
		{"one of two", of(2, 5, 0), of(2, 5, 0), 0, 0},
		{"younger", func(f *tracetest.Fleet) []tracetest.Instance { return tracetest.Instances(1) }, of(6, 5, 0), 0, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := tracetest.NewFleet(3)
			h := history.NewSites(f.Table)
			play(h, f, 0, 15*time.Minute, x.before(f))
			play(h, f, 15*time.Minute, 30*time.Minute, x.then(f))
			all := Unequal(h, trace.Nanos(30*time.Minute))
			if x.slower == 0 {
				if len(all) > 0 {
					t.Fatalf("unequal: %+v", all)
				}
				return
			}
			if len(all) != 1 {
				t.Fatalf("%d instances are unequal, want one: %+v", len(all), all)
			}
			u := all[0]
			if name := f.Table.Text(u.Service) + " " + f.Table.Text(u.Key) + " " +
				f.Table.Text(u.Value); name != "cart k8s.pod.name cart-1" || u.Siblings != 5 {
				t.Errorf("%s with %d siblings is unequal", name, u.Siblings)
			}
			if got := u.Nanos / u.Usual; math.Abs(got/x.slower-1) > 0.15 {
				t.Errorf("%.2f times as slow, want %v", got, x.slower)
			}
			if got := u.Failed - u.UsualFailed; math.Abs(got-x.fails) > 0.1 {
				t.Errorf("%.2f fail, want %v", got, x.fails)
			}
		})
	}
}

func BenchmarkUnequal(b *testing.B) {
	f := tracetest.NewFleet(3)
	h := history.NewSites(f.Table)
	play(h, f, 0, 2*time.Hour, tracetest.Instances(60))
	for b.Loop() {
		Unequal(h, trace.Nanos(2*time.Hour))
	}
}
