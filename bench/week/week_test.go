package week

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

const testSeed = 7

func testApp() *app {
	a := newApp(testSeed, 200, 30, &trace.Table{})
	a.advance(monday.Add(3 * time.Hour))
	return a
}

// TestLoad follows the traffic through a week: it changes gradually and has its peak on working days.
func TestLoad(t *testing.T) {
	last, most, mostAtWeekend := load(monday), 0.0, 0.0
	for at := monday; at < monday.Add(week); at = at.Add(time.Minute) {
		l := load(at)
		if l <= 0 || l > 1 {
			t.Fatalf("the traffic at %v is %.2f", at.Sub(monday), l)
		}
		if math.Abs(l-last) > 0.01 && at.Sub(monday) != 5*day {
			t.Errorf("the traffic jumps from %.2f to %.2f at %v", last, l, at.Sub(monday))
		}
		last, most = l, max(most, l)
		if at.Sub(monday) >= 5*day {
			mostAtWeekend = max(mostAtWeekend, l)
		}
	}
	if most != 1 || mostAtWeekend != weekend {
		t.Errorf("peak %.2f, at weekends %.2f; want 1, %.2f", most, mostAtWeekend, weekend)
	}
}

// TestStep makes an operation slow by the factor of a step: requests through it take 30 % longer in the mean.
func TestStep(t *testing.T) {
	a := testApp()
	p := planner{app: a, rng: a.rng, schedule: &schedule{}}
	op := p.busy(monday.Add(11*time.Hour), -1)
	usual := meanThrough(a, op)
	a.ops[op].slow = p.factorFor(op, stepSize)
	if got := meanThrough(a, op) / usual; math.Abs(got-1.3) > 0.05 {
		t.Errorf("requests take %.3f of the usual time, want 1.3", got)
	}
}

// A second fault avoids the service of the first, even at a time when no operation is called often.
func TestBusyAvoidsAService(t *testing.T) {
	a := testApp()
	for i := range a.ops {
		a.ops[i].rate *= 1e-9
	}
	p := planner{app: a, rng: a.rng, schedule: &schedule{}}
	first := a.ops[p.busy(monday, -1)].service
	if second := a.ops[p.busy(monday, first)].service; second == first {
		t.Errorf("both faults are in service %d", first)
	}
}

// meanThrough returns the mean duration of the requests that execute op.
func meanThrough(a *app, op int) float64 {
	n, sum := 0.0, 0.0
	var r trace.Trace
	for range 100_000 {
		a.request(a.types[a.pick()].op, monday.Add(3*time.Hour), &r)
		for i := range r.Spans {
			if r.Spans[i].Op == a.ops[op].op {
				n++
				sum += float64(r.Spans[0].Duration())
				break
			}
		}
	}
	return sum / n
}

// TestRequests checks the spans of requests: each starts and ends within its parent, and a failure reaches the root.
func TestRequests(t *testing.T) {
	a := testApp()
	for i := range a.ops {
		a.ops[i].fails = 0.1
	}
	var r trace.Trace
	failed := 0
	for range 10_000 {
		a.request(a.types[a.pick()].op, monday.Add(3*time.Hour), &r)
		byID := make(map[trace.SpanID]*trace.Span)
		anyError := false
		for i := range r.Spans {
			s := &r.Spans[i]
			byID[s.ID] = s
			anyError = anyError || s.Flags&trace.Error != 0
			if p := byID[s.Parent]; s.Start > s.End || i > 0 && (p == nil || s.Start < p.Start) {
				t.Fatalf("span %d of %+v", i, r.Spans)
			}
		}
		for i := range r.Spans {
			if s := &r.Spans[i]; i > 0 && s.End > byID[s.Parent].End {
				t.Fatalf("span %d ends after its parent: %+v", i, r.Spans)
			}
		}
		if anyError != (r.Spans[0].Flags&trace.Error != 0) {
			t.Fatalf("a failure does not reach the root: %+v", r.Spans)
		}
		if anyError {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no request failed")
	}
}

// TestPlan checks the schedule: its numbers, the distances between faults, and the faults that start during others.
func TestPlan(t *testing.T) {
	a := testApp()
	s := plan(testSeed, a, 3)
	count := make(map[string]int)
	for i := range s.faults {
		f := &s.faults[i]
		count[f.kind]++
		within := 0
		for k := range s.faults {
			g := &s.faults[k]
			if k != i && g.window.From <= f.window.From && f.window.From < g.window.To {
				within++
				if g.service == f.service {
					t.Errorf("%s %d begins in a fault of the same service", f.kind, i)
				}
			}
		}
		if want := map[bool]int{true: 1}[f.paired]; within != want {
			t.Errorf("%s %d begins in %d others, want %d", f.kind, i, within, want)
		}
	}
	want := map[string]int{
		stepFault: 2 * steps, backgroundFault: 2 * stepsInFault, podFault: 2 * pods, errorsFault: 2 * failing,
		outageFault: 2, leakFault: 2, intermittentFault: 2,
	}
	if diff := cmp.Diff(want, count); diff != "" || len(s.deploys) != 2*deploys {
		t.Errorf("%d deploys, faults (-want +got):\n%s", len(s.deploys), diff)
	}
	for _, c := range s.changes {
		if c.at < monday.Add(week) || c.at > monday.Add(3*week+time.Hour) {
			t.Errorf("a change at %v", c.at.Sub(monday))
		}
		c.do(a)
	}
	for i := range a.ops {
		if o := &a.ops[i]; o.slow != 0 || o.fails != 0 {
			t.Errorf("operation %d is left with a fault", i)
		}
	}
}

// TestJudge judges five incidents: one of a step, in time; a second one of the same step; one of a deploy; a late one;
// and one without a cause.
func TestJudge(t *testing.T) {
	a := testApp()
	at := func(minutes float64) trace.Nanos {
		return monday.Add(week + time.Duration(minutes*float64(time.Minute)))
	}
	step := func(from float64, service int) fault {
		return fault{kind: stepFault, window: between(at(from), stepLength), service: service, op: 0, factor: 2}
	}
	s := &schedule{
		faults:  []fault{step(0, 5), step(100, 6)},
		deploys: []deploy{{at: at(200), service: 7}, {at: at(300), service: 8}},
	}
	opened := func(id uint64, from, to float64, service int) engine.Incident {
		return engine.Incident{Incident: incident.Incident{
			ID:       id,
			History:  []incident.Transition{{At: at(from)}, {At: at(to), State: incident.Closed}},
			Suspects: []compare.Suspect{{Service: a.services[service].name}},
		}}
	}
	seconds, rank := 120.0, 1
	late := 600.0
	r := judge(Options{Weeks: 2, Types: 200}, a, s, &backtest.Result{
		From: at(0), To: at(1000), Learned: at(0),
		Incidents: []engine.Incident{
			opened(1, 2, 20, 5),
			opened(2, 5, 20, 9), opened(3, 110, 120, 6), opened(4, 204, 224, 7), opened(5, 500, 510, 8),
		},
		Score: &backtest.Score{
			Cases: []backtest.Case{
				{SecondsToRaise: &seconds, RankService: &rank}, {SecondsToRaise: &late, RankService: &rank},
			},
			False: []uint64{2, 4, 5},
		},
	})
	got := []any{
		r.FalseIncidents, r.HarmlessDeploysRaised,
		r.Steps.Raised, r.Steps.RaisedEventually, r.Steps.Of, *r.Steps.SecondsMedian,
	}
	if diff := cmp.Diff([]any{1.5, 1, 1, 2, 2, 360.0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := 30.0 / 950; math.Abs(r.OpenWithoutFault-want) > 1e-9 {
		t.Errorf("open without a fault %.4f of the time, want %.4f", r.OpenWithoutFault, want)
	}
}
