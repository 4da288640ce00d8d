package sim

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

const testRun = trace.Nanos(10 * time.Second)

// everything returns a plan that enables all tracepoints.
func everything(a *App) *Plan {
	on := make(map[trace.Symbol]bool)
	for _, tp := range a.Catalogue() {
		on[tp.ID] = !tp.Baseline
	}
	return &Plan{Version: 3, Arms: []Arm{{Name: a.Table().Symbol("all"), Share: 1, On: on}}}
}

// collect returns copies of the traces of [from, to).
func collect(a *App, from, to trace.Nanos, plan *Plan) []trace.Trace {
	var traces []trace.Trace
	for t := range a.Requests(from, to, plan) {
		traces = append(traces, trace.Trace{ID: t.ID, Spans: slices.Clone(t.Spans), Attrs: slices.Clone(t.Attrs)})
	}
	return traces
}

// steps returns the step of each span of t.
func steps(t *trace.Trace) []trace.Op {
	list := make([]trace.Op, len(t.Spans))
	at := make(map[trace.SpanID]int, len(t.Spans))
	for i := range t.Spans {
		s := &t.Spans[i]
		list[i], at[s.ID] = s.Op.To(s.Peer), i
		if p, ok := at[s.Parent]; ok && s.Kind == trace.Server {
			list[p] = t.Spans[p].Op.To(s.Op)
		}
	}
	return list
}

func byID(t *trace.Trace) map[trace.SpanID]*trace.Span {
	spans := make(map[trace.SpanID]*trace.Span, len(t.Spans))
	for i := range t.Spans {
		spans[t.Spans[i].ID] = &t.Spans[i]
	}
	return spans
}

// eachFault runs f for an application with each fault.
func eachFault(t *testing.T, c Config, f func(t *testing.T, a *App)) {
	for _, fault := range Faults() {
		t.Run(string(fault), func(t *testing.T) {
			c.Fault = fault
			f(t, New(c))
		})
	}
}

// TestTracesAreWellFormed checks that parents exist and start earlier than their children. Synchronous children end
// within their parents.
func TestTracesAreWellFormed(t *testing.T) {
	eachFault(t, Config{Seed: 3, Tracepoints: 700, Async: -1}, func(t *testing.T, a *App) {
		a.Inject(0)
		last := trace.Nanos(0)
		for tr := range a.Requests(0, testRun, everything(a)) {
			spans := byID(tr)
			if len(spans) != len(tr.Spans) {
				t.Fatalf("trace %v: span IDs are not unique", tr.ID)
			}
			for i := range tr.Spans {
				s := &tr.Spans[i]
				if s.End <= s.Start {
					t.Fatalf("%s is empty:\n%s", a.Table().OpName(s.Op), tracetext.Format(tr, a.Table()))
				}
				if i == 0 {
					if s.Parent != 0 || s.Start < last || s.Kind != trace.Server {
						t.Fatalf("root %+v after %d, want a SERVER without parent in order of time", s, last)
					}
					last = s.Start
					continue
				}
				p := spans[s.Parent]
				if p == nil || p.Start > s.Start {
					t.Fatalf("%s: parent missing or later:\n%s",
						a.Table().OpName(s.Op), tracetext.Format(tr, a.Table()))
				}
				gaveUp := p.Kind == trace.Client && p.Flags&trace.Error != 0
				if s.End > p.End && s.Kind != trace.Consumer && !gaveUp {
					t.Fatalf("%s ends after its parent:\n%s", a.Table().OpName(s.Op), tracetext.Format(tr, a.Table()))
				}
			}
		}
	})
}

// TestAsyncCalls checks that some spans end after their parents.
func TestAsyncCalls(t *testing.T) {
	a := New(Config{Seed: 4, Tracepoints: 1000})
	outlive, spans := 0, 0
	for tr := range a.Requests(0, testRun, everything(a)) {
		index := byID(tr)
		for i := range tr.Spans {
			s := &tr.Spans[i]
			p := index[s.Parent]
			spans++
			if p != nil && s.End > p.End && s.Kind == trace.Internal {
				outlive++
			}
		}
	}
	if share := float64(outlive) / float64(spans); share == 0 || share > 0.02 {
		t.Errorf("%.2g of the spans end after their parents, want more than 0 and at most 0.02", share)
	}
}

// TestFirstSpansCarryPlanAndArm checks that one span of each service in a trace has the plan and the arm, as the
// agents' protocol specifies.
func TestFirstSpansCarryPlanAndArm(t *testing.T) {
	a := New(Config{Seed: 1, Tracepoints: 500})
	plan := everything(a)
	keys := &a.symbols
	for tr := range a.Requests(0, testRun, plan) {
		carries := make(map[trace.Symbol]int)
		for _, at := range tr.Attrs {
			switch at.Key {
			case keys.plan:
				if !at.Numeric || at.Number != 3 {
					t.Fatalf("plan %+v, want 3", at)
				}
				carries[tr.Spans[at.Span].Service]++
			case keys.arm:
				if at.Text != plan.Arms[0].Name {
					t.Fatalf("arm %q, want all", a.Table().Text(at.Text))
				}
			}
		}
		for i := range tr.Spans {
			if s := &tr.Spans[i]; carries[s.Service] != 1 {
				t.Fatalf("%d spans of %s have the plan, want 1", carries[s.Service], a.Table().Text(s.Service))
			}
		}
	}
}

// TestTogglingChangesNothingElse checks that, with free tracepoints, a trace under a plan is the fully instrumented
// trace without the spans of disabled tracepoints. Times are equal, and parents are the nearest remaining ancestors.
func TestTogglingChangesNothingElse(t *testing.T) {
	eachFault(t, Config{Seed: 5, Tracepoints: 500, Overhead: -1}, func(t *testing.T, a *App) {
		full := a.Fork()
		plan := everything(a)
		some := &Plan{Version: 3, Arms: []Arm{{Name: plan.Arms[0].Name, Share: 1, On: make(map[trace.Symbol]bool)}}}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, tp := range a.Catalogue() {
			some.Arms[0].On[tp.ID] = tp.Kind != cct.VariablePoint && rng.IntN(3) == 0
		}
		a.Inject(0)
		full.Inject(0)
		want := collect(full, 0, testRun, plan)
		for i, got := range collect(a, 0, testRun, some) {
			if diff := cmp.Diff(project(&want[i], some.Arms[0].On), got.Spans); diff != "" {
				t.Fatalf("trace %d differs (-full +toggled):\n%s", i, diff)
			}
		}
	})
}

// project returns the spans of t of the baseline and of enabled tracepoints.
func project(t *trace.Trace, on map[trace.Symbol]bool) []trace.Span {
	index := byID(t)
	emitted := func(s *trace.Span) bool { return s.Tracepoint == 0 || on[s.Tracepoint] }
	var spans []trace.Span
	for _, s := range t.Spans {
		if !emitted(&s) {
			continue
		}
		for p := index[s.Parent]; p != nil; p = index[p.Parent] {
			s.Parent = p.ID
			if emitted(p) {
				break
			}
		}
		spans = append(spans, s)
	}
	return spans
}

// TestTracepointsCostTime checks that enabled tracepoints lengthen requests, each by at most 10 µs.
func TestTracepointsCostTime(t *testing.T) {
	a := New(Config{Seed: 6, Tracepoints: 500, Async: -1})
	b := a.Fork()
	off, on := collect(a, 0, testRun, nil), collect(b, 0, testRun, everything(a))
	for i := range off {
		extra := on[i].Spans[0].Duration() - off[i].Spans[0].Duration()
		spans := len(on[i].Spans) - len(off[i].Spans)
		if extra <= 0 || extra > time.Duration(spans)*10*time.Microsecond {
			t.Fatalf("trace %d: %d more spans cost %v", i, spans, extra)
		}
	}
}

// TestFaultChangesOnlyItsTarget checks that only spans that contain the target change their duration, and only after
// the injection. The test omits faults of shared resources and of repeated calls, which affect other spans.
func TestFaultChangesOnlyItsTarget(t *testing.T) {
	for _, f := range []Fault{SlowPath, ThirdParty, Attribute, Host, Payload, Disk, Steady, None} {
		t.Run(string(f), func(t *testing.T) {
			changed := 0
			for seed := range uint64(4) {
				changed += changedSpans(t, New(Config{Seed: seed, Tracepoints: 500, Fault: f}))
			}
			if (changed > 0) != (f != None) {
				t.Errorf("%d spans changed, want none without a fault and some with one", changed)
			}
		})
	}
}

// changedSpans returns the number of spans whose duration changes with the fault of a. It fails if a span can't be
// affected.
func changedSpans(t *testing.T, a *App) (changed int) {
	t.Helper()
	healthy := a.Fork()
	a.Inject(testRun / 2)
	target := a.Target()
	want := collect(healthy, 0, testRun, everything(a))
	for i, got := range collect(a, 0, testRun, everything(a)) {
		around := aroundTarget(&got, target)
		before := byID(&want[i])
		for _, s := range got.Spans {
			h := before[s.ID]
			switch {
			case h == nil: // a repeated call
			case s.Duration() == h.Duration():
			case s.Start < testRun/2 && s.End < testRun/2:
				t.Fatalf("%s changed before the injection", a.Table().OpName(s.Op))
			case !around[s.ID]:
				t.Fatalf("%s changed:\n%s", a.Table().OpName(s.Op), tracetext.Format(&got, a.Table()))
			default:
				changed++
			}
		}
	}
	return changed
}

// aroundTarget returns the spans that contain the target.
func aroundTarget(t *trace.Trace, target Target) map[trace.SpanID]bool {
	around := make(map[trace.SpanID]bool)
	index := byID(t)
	for i, step := range steps(t) {
		if slices.Contains(target.Operations, step) {
			for s := &t.Spans[i]; s != nil; s = index[s.Parent] {
				around[s.ID] = true
			}
		}
	}
	return around
}

// TestTargetContexts checks that the target's spans occur only in its contexts.
func TestTargetContexts(t *testing.T) {
	eachFault(t, Config{Seed: 8, Tracepoints: 600}, func(t *testing.T, a *App) {
		target := a.Target()
		if a.config.Fault == None {
			if diff := cmp.Diff(Target{Fault: None}, target); diff != "" {
				t.Errorf("a target without a fault: %s", diff)
			}
			return
		}
		seen := 0
		a.Inject(0)
		for tr := range a.Requests(0, 3*testRun, everything(a)) {
			full, base := make(map[trace.SpanID]trace.Context), make(map[trace.SpanID]trace.Context)
			for i, step := range steps(tr) {
				s := &tr.Spans[i]
				parent := s.Parent
				if s.Kind == trace.Consumer {
					parent = 0
				}
				full[s.ID], base[s.ID] = full[parent].Child(s.Op), base[parent]
				if s.Tracepoint == 0 {
					base[s.ID] = base[parent].Child(s.Op)
				}
				if !slices.Contains(target.Operations, step) {
					continue
				}
				seen++
				if !slices.Contains(target.Contexts, full[s.ID]) || !slices.Contains(target.Baseline, base[s.ID]) {
					t.Fatalf("%s in an unknown context:\n%s", a.Table().OpName(s.Op), tracetext.Format(tr, a.Table()))
				}
			}
		}
		t.Logf("%d spans, %d contexts", seen, len(target.Contexts))
	})
}

// TestEffect checks that each fault is locatable for some seeds, and then makes requests slower. There is no effect
// without a fault.
func TestEffect(t *testing.T) {
	for _, f := range Faults() {
		located := 0
		for seed := range uint64(6) {
			a := New(Config{Seed: seed, Tracepoints: 500, Fault: f})
			e := a.Effect(0, trace.Nanos(time.Minute))
			if !e.Locatable {
				continue
			}
			located++
			if best := e.Types[0]; best.Mean <= 0 || best.OnPath == 0 || e.OnPath <= 0 {
				t.Errorf("%s, seed %d: locatable with %+v, want an effect on the path", f, seed, best)
			}
		}
		if (located > 0) != (f != None) {
			t.Errorf("%s: %d of 6 are locatable", f, located)
		}
	}
}

// TestEffectAgreesWithTraces checks that Effect equals the difference between the traces with and without the fault.
func TestEffectAgreesWithTraces(t *testing.T) {
	eachFault(t, Config{Seed: 2, Tracepoints: 500}, func(t *testing.T, a *App) {
		e := a.Effect(0, testRun)
		healthy, faulty := a.Fork(), a.Fork()
		faulty.Inject(0)
		h, f := meanByEntry(healthy), meanByEntry(faulty)
		if (len(e.Types) == 0) != (a.config.Fault == None) {
			t.Fatalf("%d request types are affected", len(e.Types))
		}
		for _, ty := range e.Types {
			if got, want := ty.Mean, f[ty.Entry]-h[ty.Entry]; (got - want).Abs() > time.Microsecond {
				t.Errorf("%s: effect %v, want %v as in the traces", a.Table().OpName(ty.Entry), got, want)
			}
		}
	})
}

// meanByEntry returns the mean duration of the requests of testRun by entry operation.
func meanByEntry(a *App) map[trace.Op]time.Duration {
	sum, n := make(map[trace.Op]time.Duration), make(map[trace.Op]time.Duration)
	for tr := range a.Requests(0, testRun, nil) {
		for i := range tr.Spans {
			if s := &tr.Spans[i]; s.Parent == 0 || s.Kind == trace.Consumer {
				sum[s.Op] += s.Duration()
				n[s.Op]++
			}
		}
	}
	for op := range sum {
		sum[op] /= n[op]
	}
	return sum
}

// TestLockWaitsEmerge checks that callers wait for a contended lock.
func TestLockWaitsEmerge(t *testing.T) {
	a := New(Config{Seed: 3, Tracepoints: 500, Fault: Lock})
	id := a.Target().Tracepoints[0]
	wait := func(inject trace.Nanos) (mean float64) {
		b := a.Fork()
		b.Inject(inject)
		n := 0
		for tr := range b.Requests(0, 6*testRun, everything(a)) {
			for i := range tr.Spans {
				if s := &tr.Spans[i]; s.Tracepoint == id {
					mean += float64(s.Duration())
					n++
				}
			}
		}
		return mean / float64(n)
	}
	if healthy, faulty := wait(6*testRun), wait(0); faulty < 20*healthy {
		t.Errorf("mean wait %v healthy and %v contended, want a factor of 20",
			time.Duration(healthy), time.Duration(faulty))
	}
}

// TestCalendarQueues checks that reservations are disjoint, and that waits at a server with exponential times are
// distributed as in an M/M/1 queue.
func TestCalendarQueues(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var c calendar
	const n, load, service = 200_000, 0.6, 1e6
	var at, wait float64
	for range n {
		at += rng.ExpFloat64() * service / load
		c.forget(int64(at))
		d := int64(rng.ExpFloat64()*service) + 1
		start, before := c.first(int64(at), d)
		c.take(start, d, before)
		wait += float64(start) - at
		for i := 1; i < len(c.taken); i++ {
			if c.taken[i-1].end >= c.taken[i].start {
				t.Fatalf("intervals %v and %v overlap", c.taken[i-1], c.taken[i])
			}
		}
	}
	if got, want := wait/n, service*load/(1-load); math.Abs(got/want-1) > 0.05 {
		t.Errorf("mean wait %.3g, want %.3g", got, want)
	}
}

func TestCalendarTakesTheFirstGap(t *testing.T) {
	var c calendar
	for _, step := range []struct{ t, d, want int64 }{
		{0, 10, 0},
		{20, 10, 20},
		{5, 10, 10},
		{5, 3, 30},
		{0, 1, 33},
		{100, 5, 100},
	} {
		start, before := c.first(step.t, step.d)
		if start != step.want {
			t.Errorf("first(%d, %d) = %d, want %d in %v", step.t, step.d, start, step.want, c.taken)
		}
		c.take(start, step.d, before)
	}
	if diff := cmp.Diff([]interval{{0, 34}, {100, 105}}, c.taken, cmp.AllowUnexported(interval{})); diff != "" {
		t.Error(diff)
	}
}

// TestSameConfigSameTraces checks that equal configurations give equal traces, however time is divided into calls.
func TestSameConfigSameTraces(t *testing.T) {
	eachFault(t, Config{Seed: 9, Tracepoints: 400}, func(t *testing.T, a *App) {
		b := New(a.Config())
		a.Inject(testRun / 3)
		b.Inject(testRun / 3)
		plan := everything(a)
		want := collect(a, 0, testRun, plan)
		got := append(collect(b, 0, testRun/4, plan), collect(b, testRun/4, testRun, plan)...)
		if !reflect.DeepEqual(want, got) {
			t.Error("traces differ")
		}
	})
}

// TestCatalogueIsIndependentOfTheFault checks that the catalogue does not reveal the fault.
func TestCatalogueIsIndependentOfTheFault(t *testing.T) {
	want := New(Config{Seed: 10, Tracepoints: 500}).Catalogue()
	eachFault(t, Config{Seed: 10, Tracepoints: 500}, func(t *testing.T, a *App) {
		if diff := cmp.Diff(want, a.Catalogue()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCatalogue(t *testing.T) {
	a := New(Config{Seed: 11, Tracepoints: 3000})
	seen := make(map[trace.Symbol]bool)
	var layers [3]int
	hinted, owned, functions := 0, 0, 0
	for _, tp := range a.Catalogue() {
		if seen[tp.ID] {
			t.Errorf("%s is announced twice", a.Table().Text(tp.ID))
		}
		seen[tp.ID] = true
		if tp.Baseline || tp.Kind == cct.VariablePoint {
			continue
		}
		layers[tp.Layer]++
		if tp.Layer != cct.App {
			continue
		}
		functions++
		if tp.Parent != 0 {
			hinted++
		}
		if tp.Owner != 0 {
			owned++
		}
	}
	for layer, n := range layers {
		if n < 200 {
			t.Errorf("%d tracepoints in layer %v, want at least 200", n, cct.Layer(layer))
		}
	}
	if h, o := float64(hinted)/float64(functions), float64(owned)/float64(functions); h < 0.75 || h > 0.95 || o < 0.9 {
		t.Errorf("%.2f of the functions have a parent, %.2f an owner; want 0.75 to 0.95 and at least 0.9", h, o)
	}
}

// TestExecuted checks that Executed doesn't depend on the plan, and equals the tracepoints in fully instrumented
// traces.
func TestExecuted(t *testing.T) {
	a := New(Config{Seed: 12, Tracepoints: 2000})
	b := a.Fork()
	shown := make(map[trace.Symbol]bool)
	for tr := range a.Requests(0, testRun, everything(a)) {
		for i := range tr.Spans {
			shown[tr.Spans[i].Tracepoint] = true
		}
	}
	for range b.Requests(0, testRun, nil) {
	}
	executed := a.Executed()
	if !reflect.DeepEqual(executed, b.Executed()) {
		t.Error("Executed depends on the plan")
	}
	for _, tp := range a.Catalogue() {
		if tp.Kind != cct.VariablePoint && !tp.Baseline && shown[tp.ID] != executed[tp.ID] {
			t.Errorf("%s: in traces %t, executed %t", a.Table().Text(tp.ID), shown[tp.ID], executed[tp.ID])
		}
	}
	if n := len(executed); n < 1600 {
		t.Errorf("%d of 2000 tracepoints are executed, want at least 1600", n)
	}
}

// TestArmsShareTheRequests checks that arms receive their shares of the requests.
func TestArmsShareTheRequests(t *testing.T) {
	a := New(Config{Seed: 13, Rate: 500})
	x, y := a.Table().Symbol("x"), a.Table().Symbol("y")
	plan := &Plan{Version: 1, Arms: []Arm{{Name: x, Share: 0.3}, {Name: y, Share: 0.5, Rate: 0.5}}}
	counts, n := make(map[trace.Symbol]float64), 0.0
	for tr := range a.Requests(0, 2*testRun, plan) {
		arm := trace.Symbol(0)
		for _, at := range tr.Attrs {
			if at.Key == a.symbols.arm {
				arm = at.Text
			}
		}
		counts[arm]++
		n++
	}
	for arm, want := range map[trace.Symbol]float64{x: 0.3, y: 0.25, 0: 0.45} {
		if got := counts[arm] / n; math.Abs(got-want) > 0.02 {
			t.Errorf("arm %q has %.3f of the requests, want %.2f", a.Table().Text(arm), got, want)
		}
	}
}

// TestDistributions checks that rate, payload sizes and durations have their nominal distributions.
func TestDistributions(t *testing.T) {
	a := New(Config{Seed: 14, Tracepoints: 1000, Diurnal: -1})
	var requests float64
	var sizes, square float64
	for range a.Requests(0, 20*testRun, nil) {
		requests++
		sizes += a.size
		square += a.size * a.size
	}
	if want := 75 * 200.0; math.Abs(requests-want) > 4*math.Sqrt(want) {
		t.Errorf("%v requests, want about %v", requests, want)
	}
	mean := sizes / requests
	if cov := math.Sqrt(square/requests-mean*mean) / mean; math.Abs(mean-1) > 0.05 || cov < 0.8 || cov > 1.3 {
		t.Errorf("payloads with mean %.2f and CoV %.2f, want 1 and 1", mean, cov)
	}
	// The precomputed mean duration of each request type is approximately right.
	for _, ty := range a.types {
		f := a.Fork()
		var took float64
		const n = 300
		for k := range uint64(n) {
			f.request(mix(99, k), 0, ty.entry)
			took += float64(f.roots[len(f.roots)-1].ns)
		}
		if ratio := took / n / a.points[ty.entry].time; ratio < 0.6 || ratio > 1.7 {
			t.Errorf("%s: mean duration is %.2f of the precomputed one, want about 1",
				a.Table().OpName(a.points[ty.entry].op), ratio)
		}
	}
}

// TestSizes checks that applications have the requested number of tracepoints, and that requests have a bounded size.
func TestSizes(t *testing.T) {
	for _, n := range []int{50, 51, 200, 999, 2000, 20_000, 100_000} {
		for _, services := range []int{0, 1, 2, 5, 500} {
			a := New(Config{Seed: uint64(n), Tracepoints: n, Services: services, Fault: CPU})
			got := 0
			for _, tp := range a.Catalogue() {
				if !tp.Baseline {
					got++
				}
			}
			if got != n {
				t.Errorf("%d tracepoints in %d services, want %d", got, services, n)
			}
			for _, ty := range a.types {
				if nodes := a.points[ty.entry].nodes; nodes < 3 || nodes > 5*maxNodes {
					t.Errorf("%d tracepoints in %d services: a request executes %.0f points, want 3 to %d",
						n, services, nodes, 5*maxNodes)
				}
			}
		}
	}
}

// TestConfigRoundTrip checks that a decoded configuration equals the encoded one.
func TestConfigRoundTrip(t *testing.T) {
	c := Config{Seed: 5, Fault: Disk, Async: -1, Skew: time.Millisecond}
	var back Config
	if err := json.Unmarshal([]byte(c.String()), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.String(); !strings.Contains(got, `"tracepoints":500`) || got != c.String() {
		t.Errorf("%s decodes to %s", c, got)
	}
}

// TestSkew checks that clock skew shifts all spans of a host by the same offset.
func TestSkew(t *testing.T) {
	straight := collect(New(Config{Seed: 15}), 0, testRun, nil)
	const most = 5 * time.Millisecond
	offsets := make(map[trace.Symbol]time.Duration)
	for i, tr := range collect(New(Config{Seed: 15, Skew: most}), 0, testRun, nil) {
		for k, s := range tr.Spans {
			offset := s.Start.Sub(straight[i].Spans[k].Start)
			if old, ok := offsets[s.Host]; ok && old != offset || offset.Abs() > most ||
				s.Duration() != straight[i].Spans[k].Duration() {
				t.Fatalf("offset %v after %v, want equal ones of at most %v", offset, old, most)
			}
			offsets[s.Host] = offset
		}
	}
}

// TestGolden shows a trace with and without tracepoints.
func TestGolden(t *testing.T) {
	a := New(Config{Seed: 17, Tracepoints: 120, Services: 4, Fault: Steady})
	var out strings.Builder
	var shown trace.ID // the first request that calls another service
	show := func(title string, plan *Plan) {
		out.WriteString("# " + title + "\n")
		for tr := range a.Fork().Requests(0, testRun, plan) {
			calls := tr.Spans[len(tr.Spans)-1].Service != tr.Spans[0].Service
			if tr.ID == shown || shown.IsZero() && calls {
				shown = tr.ID
				out.WriteString(tracetext.Format(tr, a.Table()) + "\n")
				return
			}
		}
	}
	show("A request with the baseline only.", nil)
	show("The same request with all tracepoints enabled.", everything(a))
	path := filepath.Join("testdata", "small.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	a := New(Config{Seed: 1, Tracepoints: 2000})
	collect(a, 0, testRun, nil)
	from := testRun
	per := testing.AllocsPerRun(5, func() {
		for range a.Requests(from, from+testRun, nil) {
		}
		from += testRun
	})
	if per > 50 {
		t.Errorf("%v allocations in some 750 requests, want at most 50", per)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(Config{Seed: 1, Tracepoints: 100_000, Fault: SlowPath})
	}
}

func benchmarkRequests(b *testing.B, plan func(*App) *Plan) {
	a := New(Config{Seed: 1, Tracepoints: 2000})
	p := plan(a)
	spans, from := 0, trace.Nanos(0)
	b.ReportAllocs()
	for b.Loop() {
		for tr := range a.Requests(from, from+trace.Nanos(time.Second), p) {
			spans += len(tr.Spans)
		}
		from += trace.Nanos(time.Second)
	}
	b.ReportMetric(float64(a.Executions())/b.Elapsed().Seconds(), "executions/s")
	b.ReportMetric(float64(spans)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkBaseline(b *testing.B)   { benchmarkRequests(b, func(*App) *Plan { return nil }) }
func BenchmarkEverything(b *testing.B) { benchmarkRequests(b, everything) }
