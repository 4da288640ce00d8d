package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/simplan"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// start is the start time of the simulations.
const start = trace.Nanos(1_700_000_000_000_000_000)

// world runs a simulated application with a Core. The plan of an epoch applies in the next epoch.
type world struct {
	app   *sim.App
	core  *engine.Core
	epoch time.Duration
	now   trace.Nanos
	order *rand.Rand // shuffles the requests of an epoch; nil: original order
	log   []string   // decisions
}

func newWorld(config sim.Config, options engine.Options) *world {
	app := sim.New(config)
	w := &world{app: app, core: engine.NewCore(app.Table(), options), epoch: options.Epoch, now: start}
	w.core.Announce(start, app.Catalogue())
	return w
}

// play plays one epoch and returns the open problems.
func (w *world) play() []detect.Problem {
	end := w.now.Add(w.epoch)
	var traces []*trace.Trace
	for t := range w.app.Requests(w.now, end, simplan.Of(w.core.View().Searches.Plan())) {
		c := &trace.Trace{ID: t.ID}
		c.Append(t)
		traces = append(traces, c)
	}
	if w.order != nil {
		w.order.Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
	}
	for _, t := range traces {
		w.core.Ingest(t)
	}
	w.now = end
	for _, d := range w.core.Epoch(end) {
		w.log = append(w.log, fmt.Sprintf("%+v", d))
	}
	return w.core.View().Problems.Open()
}

// until plays until t after start.
func (w *world) until(t time.Duration) {
	for w.now < start.Add(t) {
		w.play()
	}
}

// small returns an application with so little traffic that hours can be played in seconds.
func small(seed uint64, fault sim.Fault) sim.Config {
	return sim.Config{Seed: seed, Fault: fault, Tracepoints: 100, Rate: 20}
}

// Healthy traffic raises no alarm at any time of day.
func TestNoFalseAlarms(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many hours")
	}
	hours := 0.0
	var alarms []string
	for seed := range uint64(2) {
		w := newWorld(small(seed, sim.None), engine.DefaultOptions())
		seen := make(map[analysis.Hash]bool)
		for w.now < start.Add(3*time.Hour) {
			for _, p := range w.play() {
				if !seen[p.ID] {
					seen[p.ID] = true
					alarms = append(alarms, fmt.Sprintf(
						"seed %d after %v: %v at the level of the %v, e-value %.3g, mean %v (expected %v), %d requests",
						seed, w.now.Sub(start), p.Kind, p.Level, p.EValue, p.Mean, p.Expected, p.Requests))
				}
			}
			hours += float64(w.core.View().Watched()) * w.epoch.Hours()
		}
	}
	t.Logf("%.0f group-hours", hours)
	for _, a := range alarms {
		t.Error(a)
	}
}

// Decisions depend neither on the order of the requests within an epoch nor on the run.
func TestDecisionsRepeat(t *testing.T) {
	logs := make(map[string][]string)
	for _, name := range []string{"as it comes", "again", "shuffled"} {
		options := engine.DefaultOptions()
		options.Learning = 2 * time.Minute
		options.Seed = 3
		w := newWorld(small(2, sim.Lock), options)
		if name == "shuffled" {
			w.order = rand.New(rand.NewPCG(1, 2))
		}
		w.until(3 * time.Minute)
		w.app.Inject(w.now)
		w.until(8 * time.Minute)
		logs[name] = w.log
	}
	want := logs["as it comes"]
	if len(want) == 0 {
		t.Fatal("no decisions")
	}
	for name, log := range logs {
		for i := range max(len(want), len(log)) {
			if i >= len(want) || i >= len(log) || want[i] != log[i] {
				t.Errorf("%s: decision %d of %d and %d differs", name, i, len(want), len(log))
				break
			}
		}
	}
}

// Request times that are wrong by years don't affect the end of the learning period.
func TestWrongClocks(t *testing.T) {
	app := sim.New(small(1, sim.None))
	core := engine.NewCore(app.Table(), engine.DefaultOptions())
	now := start
	for i := range 40 {
		for tr := range app.Requests(now, now.Add(10*time.Second), nil) {
			by := []trace.Nanos{0, 6e18, -start}[i%3]
			for k := range tr.Spans {
				tr.Spans[k].Start += by
				tr.Spans[k].End += by
			}
			core.Ingest(tr)
		}
		now = now.Add(10 * time.Second)
		core.Epoch(now)
		if learned := core.View().Watched() > 0; learned != (i+1 >= 30) {
			t.Fatalf("epoch %d: learned %v", i+1, learned)
		}
	}
}

// Requests from the past that arrive at once, as from a replayed recording, end the learning period if they cover it
// without gaps.
func TestLearnFromPast(t *testing.T) {
	for _, c := range []struct {
		name    string
		until   time.Duration // of the past before now
		learned bool
	}{{"until now", 0, true}, {"with a gap before now", time.Hour, false}} {
		app := sim.New(small(1, sim.None))
		core := engine.NewCore(app.Table(), engine.DefaultOptions())
		end := start.Add(7 * time.Minute)
		for tr := range app.Requests(start, end, nil) {
			core.Ingest(tr)
		}
		end = end.Add(c.until)
		if core.Epoch(end); core.View().Watched() > 0 {
			t.Errorf("%s: learned before the rest of the past can have arrived", c.name)
		}
		if core.Epoch(end.Add(10 * time.Second)); core.View().Watched() > 0 != c.learned {
			t.Errorf("%s: learned %t, want %t", c.name, !c.learned, c.learned)
		}
	}
}

// The durations in a recorded past that arrives at once count at their own times. Only durations from its last minutes
// are left out of the usual ones.
func TestPastSpansAreUsual(t *testing.T) {
	app := sim.New(small(1, sim.None))
	core := engine.NewCore(app.Table(), engine.DefaultOptions())
	now := start.Add(40 * time.Minute)
	var entry trace.Op
	for tr := range app.Requests(start, now, nil) {
		entry = tr.Spans[0].Op
		core.Ingest(tr)
	}
	core.Epoch(now)
	latest, usual := core.View().Spans.Latest(entry, 0), core.View().Spans.Usual(entry)
	if n := latest.Count() + usual.Count(); latest.Count() < n/5 || latest.Count() > n/3 {
		t.Errorf("%d latest spans, %d usual ones", latest.Count(), usual.Count())
	}
}

// A request type that misses its objective is investigated although nothing changed, unless its level is accepted.
func TestObjectivesOverTime(t *testing.T) {
	for _, accepted := range []time.Duration{0, time.Hour} {
		options := engine.DefaultOptions()
		options.Learning = 2 * time.Minute
		app := sim.New(small(1, sim.None))
		for tr := range app.Requests(start, start.Add(10*time.Second), nil) {
			entry := tr.Spans[0].Op
			options.Rules.Types = append(options.Rules.Types, group.TypeRule{
				Entry:     app.Table().ServiceName(entry) + " " + app.Table().OpName(entry),
				Objective: 1,
				Accepted:  group.AcceptedLevel{Mean: accepted},
			})
		}
		w := newWorld(small(1, sim.None), options)
		w.until(6 * time.Minute)
		problems := w.core.View().Problems.Open()
		if (len(problems) > 0) != (accepted == 0) || (len(w.log) > 0) != (accepted == 0) {
			t.Errorf("%v accepted: %d problems, %d decisions", accepted, len(problems), len(w.log))
		}
		for _, p := range problems {
			if p.Onset != detect.Chronic || p.Kind != detect.KindSlow || p.Expected != 1 {
				t.Errorf("problem is %v %v with objective %v, want chronic slow 1ns", p.Onset, p.Kind, p.Expected)
			}
		}
	}
}

// Overrides apply, and are logged, during the learning period, even if there are no requests.
func TestOverridesWhileLearning(t *testing.T) {
	table := &trace.Table{}
	core := engine.NewCore(table, engine.DefaultOptions())
	price := table.Symbol("shop/price")
	for i, kind := range []search.OverrideKind{search.Enable, search.Pin, search.Forbid} {
		core.Apply(&engine.Change{Override: &search.Override{Tracepoint: price, Kind: kind, By: "ann"}})
		d := core.Epoch(start.Add(time.Duration(i) * 10 * time.Second))
		if on := len(core.View().Searches.Plan().Leases) > 0; on != (kind != search.Forbid) {
			t.Errorf("%s: enabled %t, want %t", kind, on, !on)
		}
		if last := d[len(d)-1]; last.Reason != fmt.Sprintf("ann %ss \"shop/price\"", kind) {
			t.Errorf("%s: logged %q", kind, last.Reason)
		}
	}
}

// Epochs without requests make no decisions. The learning period starts with the first request.
func TestNoTraffic(t *testing.T) {
	options := engine.DefaultOptions()
	core := engine.NewCore(&trace.Table{}, options)
	now := start
	for range 100 {
		now = now.Add(options.Epoch)
		if d := core.Epoch(now); len(d) != 0 {
			t.Fatalf("decisions %v, want none", d)
		}
	}
	if p := core.View().Progress.Part(); core.View().Progress.Learned() || !math.IsNaN(p) {
		t.Errorf("without requests: learned %t, progress %v, want false, NaN", core.View().Progress.Learned(), p)
	}
	for end := now.Add(options.Learning); now < end; {
		if core.View().Progress.Learned() {
			t.Fatalf("learned %v before the end of the learning period", end.Sub(now))
		}
		core.Observe(requests.Plain(1, 1, now, time.Millisecond), nil)
		now = now.Add(options.Epoch)
		core.Epoch(now)
	}
	if !core.View().Progress.Learned() {
		t.Error("not learned at the end of the learning period")
	}
}
