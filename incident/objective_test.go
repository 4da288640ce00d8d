package incident_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// observed is a request that an objective counts.
type observed struct {
	ended  trace.Nanos
	missed bool
}

// TestBurnRates compares burn rates, counts and the remaining budget with a naive count over all requests whose minute
// or hour is recent enough at the end of an epoch.
func TestBurnRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		entry := table.Op(table.Symbol("shop"), table.Symbol("GET /cart"), trace.Server)
		o := incident.Objective{
			Entry:      "shop GET /cart",
			Below:      time.Second,
			Percentile: rapid.SampledFrom([]float64{90, 99, 99.9}).Draw(t, "percentile"),
		}
		s := incident.NewObjectives(table)
		s.Set([]incident.Objective{o})
		now, before := trace.Nanos(1_700_000_000_000_000_000), trace.Nanos(0)
		s.Step(now)
		var all []observed
		for range rapid.IntRange(1, 40).Draw(t, "epochs") {
			before, now = now, now.Add(time.Duration(rapid.Int64Range(1, int64(3*time.Hour)).Draw(t, "epoch")))
			for range rapid.IntRange(0, 20).Draw(t, "requests") {
				// A request may be as old as the oldest hour, or have a clock that is fast.
				age := time.Duration(rapid.Int64Range(int64(-time.Hour), int64(9*time.Hour)).Draw(t, "age"))
				x := observed{now.Add(-age), rapid.Bool().Draw(t, "missed")}
				duration := time.Second - 1
				if x.missed {
					duration++
				}
				s.Observe(&incident.Request{Entry: entry, Ended: x.ended, Duration: duration, Failed: true})
				if x.ended > before {
					x.ended = now
				}
				all = append(all, x)
			}
			s.Step(now)
		}
		status := s.Status()[0]
		for _, r := range status.Rates {
			checkCount(t, r.Requests, all, now, r.Window, time.Minute)
			if want := r.Requests.Share() * 100 / (100 - o.Percentile); math.Abs(r.Rate-want) > 1e-9*want {
				t.Errorf("burn rate %g in %v, want %g", r.Rate, r.Window, want)
			}
		}
		checkCount(t, status.Month, all, now, incident.BudgetPeriod, time.Hour)
		if spent := status.Month.Share() / o.Budget(); math.Abs(status.Remaining-1+spent) > 1e-9*spent {
			t.Errorf("%g of the budget remain, want %g", status.Remaining, 1-spent)
		}
	})
}

// checkCount checks the requests in a window that ends with the latest slot.
func checkCount(t *rapid.T, got incident.Count, all []observed, now trace.Nanos, window, slot time.Duration) {
	number := func(x trace.Nanos) int64 { return (int64(x) - 1) / int64(slot) }
	var want incident.Count
	for _, x := range all {
		if age := number(now) - number(x.ended); age < int64(window/slot) {
			want.Requests++
			if x.missed {
				want.Missed++
			}
		}
	}
	if got != want {
		t.Errorf("%+v in %v, want %+v", got, window, want)
	}
}

// watch plays minutes, each with a number of requests and a share that fails, against an objective of a hundredth. It
// returns the start and the end of each burn.
func watch(
	s *incident.Objectives, table *trace.Table, from trace.Nanos, minutes, requests int, failing float64,
) (spells []time.Duration) {
	entry := table.Op(table.Symbol("shop"), table.Symbol("GET /cart"), trace.Server)
	burning := false
	due := 0.0
	for i := range minutes {
		now := from.Add(time.Duration(i+1) * time.Minute)
		for range requests {
			due += failing
			s.Observe(&incident.Request{
				Entry:    entry,
				Ended:    now.Add(-time.Second),
				Duration: time.Millisecond,
				Failed:   due >= 1,
			})
			due -= math.Floor(due)
		}
		if is := len(s.Step(now)) > 0; is != burning {
			burning = is
			spells = append(spells, now.Sub(from))
		}
	}
	return spells
}

func TestBurning(t *testing.T) {
	const day = 24 * 60
	for _, c := range []struct {
		name             string
		healthy, minutes int     // minutes played before, and with failures
		requests         int     // a minute
		failing          float64 // share
		least, most      time.Duration
	}{
		{"all fail: the share of an hour", day, 60, 100, 1, 8 * time.Minute, 10 * time.Minute},
		{"a fifth: 14.4 of 20 parts of an hour", day, 120, 100, 0.2, 42 * time.Minute, 45 * time.Minute},
		{"a fourteenth: 6 of 7 parts of 6 hours", day, 8 * 60, 100, 0.07, 5 * time.Hour, 315 * time.Minute},
		{"five times as many as may: never", day, 12 * 60, 100, 0.05, 0, 0},
		{"after a start: as soon as the short window is known", 0, 60, 100, 1, 5 * time.Minute, 5 * time.Minute},
		{"few requests: not before ten have failed", 0, 60, 1, 1, 10 * time.Minute, 10 * time.Minute},
		{"very few: never", day, 8, 1, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &trace.Table{}
			s := incident.NewObjectives(table)
			s.Set([]incident.Objective{{Entry: "shop", Errors: 0.01}})
			from := trace.Nanos(day * int64(time.Minute))
			if got := watch(s, table, from, c.healthy, c.requests, 0); got != nil {
				t.Fatalf("it burns without failures after %v", got)
			}
			from = from.Add(time.Duration(c.healthy) * time.Minute)
			got := watch(s, table, from, c.minutes, c.requests, c.failing)
			switch {
			case c.least == 0 && len(got) > 0:
				t.Errorf("it burns after %v", got)
			case c.least > 0 && (len(got) != 1 || got[0] < c.least || got[0] > c.most):
				t.Errorf("it burns after %v, want %v to %v", got, c.least, c.most)
			}
		})
	}
}

// A share that goes up and down around the threshold of the slow alert burns without a break. It stops when the rate in
// the short window falls to half of the threshold.
func TestBurningHysteresis(t *testing.T) {
	table := &trace.Table{}
	s := incident.NewObjectives(table)
	s.Set([]incident.Objective{{Entry: "shop", Errors: 0.01}})
	const part = 30 * time.Minute
	from, since := trace.Nanos(24*time.Hour), trace.Nanos(0)
	for i := range 24 {
		failing := 0.09
		if i%2 > 0 {
			failing = 0.045
		}
		watch(s, table, from, 30, 100, failing)
		from = from.Add(part)
		now := s.Status()[0].Burning
		if since == 0 {
			since = now
		}
		if now == 0 || now != since {
			t.Fatalf("after %v it burns since %v, want since %v", time.Duration(i+1)*part, now, since)
		}
	}
	if got := watch(s, table, from, 120, 100, 0); len(got) != 2 || got[1] < 10*time.Minute || got[1] > part {
		t.Errorf("spells after the failures %v, want one that ends within half an hour", got)
	}
}

// A large budget burns if half of the requests that should meet the objective miss it, because no share of the requests
// is 14.4 times as large as the budget.
func TestBurningLargeBudget(t *testing.T) {
	table := &trace.Table{}
	s := incident.NewObjectives(table)
	s.Set([]incident.Objective{{Entry: "shop", Errors: 0.2}})
	if got := watch(s, table, 0, 120, 100, 0.55); got != nil {
		t.Errorf("it burns after %v with less than half", got)
	}
	if got := watch(s, table, trace.Nanos(2*time.Hour), 360, 100, 0.7); len(got) != 1 {
		t.Errorf("it burns after %v", got)
	}
}

// Saving and restoring changes nothing.
func TestObjectivesState(t *testing.T) {
	table := &trace.Table{}
	s := incident.NewObjectives(table)
	s.Set([]incident.Objective{
		{Entry: "shop", Errors: 0.01},
		{Name: "unused", Entry: "bank", Below: time.Second, Percentile: 99},
	})
	from := trace.Nanos(1_700_000_000_000_000_000)
	for i, failing := range []float64{0, 0.3, 0} {
		watch(s, table, from.Add(time.Duration(i)*time.Hour), 60, 7, failing)
		state := s.State()
		restored := incident.NewObjectives(table)
		restored.Restore(&state)
		if diff := cmp.Diff(state, restored.State()); diff != "" {
			t.Fatalf("(-saved +restored):\n%s", diff)
		}
		if diff := cmp.Diff(s.Status(), restored.Status()); diff != "" {
			t.Fatalf("(-saved +restored):\n%s", diff)
		}
		s = restored
	}
}

// Entries are named as in rules, or by their service.
func TestObjectiveEntries(t *testing.T) {
	table := &trace.Table{}
	s := incident.NewObjectives(table)
	objectives := []incident.Objective{
		{Entry: "shop", Errors: 0.1},
		{Entry: "shop GET /cart", Errors: 0.1},
		{Entry: "shop GET", Errors: 0.1},
	}
	s.Set(objectives)
	for _, name := range []string{"GET /cart", "GET /cart/items", "POST /cart"} {
		s.Observe(&incident.Request{Entry: table.Op(table.Symbol("shop"), table.Symbol(name), trace.Server), Ended: 1})
	}
	other := table.Op(table.Symbol("shop GET"), table.Symbol("/cart"), trace.Server)
	s.Observe(&incident.Request{Entry: other, Ended: 1})
	s.Step(trace.Nanos(time.Minute))
	var got []uint64
	for _, x := range s.Status() {
		got = append(got, x.Month.Requests)
	}
	if want := []uint64{3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("%d requests, want %d", got, want)
	}
}

// BenchmarkObserve observes a request with ten steps.
func BenchmarkObserve(b *testing.B) {
	table := &trace.Table{}
	s := incident.NewObjectives(table)
	s.Set([]incident.Objective{{Entry: "shop", Below: time.Second, Percentile: 99.9}})
	entry := table.Op(table.Symbol("shop"), table.Symbol("GET /"), trace.Server)
	r := &incident.Request{Entry: entry, Duration: time.Millisecond, Ended: 1}
	for i := range 10 {
		r.Steps = append(r.Steps, incident.Step{Op: trace.Op(i + 1), Nanos: 1000})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Observe(r)
	}
}

// Replay tells when an objective burns. Times that are less than two minutes apart are one.
func TestReplay(t *testing.T) {
	const from = trace.Nanos(1_700_000_040_000_000_000) // a whole minute
	minutes := make([]incident.Count, 600)
	for i := range minutes {
		minutes[i].Requests = 100
	}
	for i := 200; i < 230; i++ {
		minutes[i].Missed = 50
	}
	for i := 590; i < 600; i++ {
		minutes[i].Missed = 100
	}
	o := incident.Objective{Entry: "shop", Errors: 0.01}
	got := incident.Replay(o, from, minutes)
	if len(got) != 2 {
		t.Fatalf("burned %+v, want twice", got)
	}
	if a := got[0].From.Sub(from); a <= 200*time.Minute || a > 220*time.Minute ||
		got[0].Until.Sub(from) < 230*time.Minute || got[0].Window != time.Hour || got[0].Rate < 14.4 {
		t.Errorf("first %+v, after %v", got[0], a)
	}
	if got[1].Until != 0 {
		t.Errorf("the last one ended: %+v", got[1])
	}
	if got := incident.Replay(incident.Objective{Entry: "shop", Errors: 0.5}, from, minutes[:500]); len(got) != 0 {
		t.Errorf("a lenient objective burned: %+v", got)
	}
}
