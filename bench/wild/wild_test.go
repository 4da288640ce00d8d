package wild

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// seeds select the applications in tests.
var seeds = []uint64{1000, 1008, 1032, 1036, 1016, 1017}

// tidied returns an application without untidiness.
func tidied(seed uint64) *app {
	a := newApp(seed)
	a.devices = nil
	for _, s := range a.services {
		s.unseen = false
		for _, o := range s.ops {
			o.later = nil
			o.steps = slices.DeleteFunc(o.steps, func(s step) bool { return s.publish != nil })
		}
	}
	return a
}

// TestTidyTraces checks the traces of applications without untidiness: one root, each span within its parent, and only
// one trace for a request.
func TestTidyTraces(t *testing.T) {
	for _, seed := range seeds {
		a := tidied(seed)
		for range 100 {
			x := a.execute(a.pick(), begin)
			if len(x.traces) != 1 || len(x.traces[0].spans) == 0 {
				t.Fatalf("seed %d: %d traces for a request, want 1 with spans", seed, len(x.traces))
			}
			checkTree(t, seed, x.traces[0])
		}
	}
}

func checkTree(t *testing.T, seed uint64, w *recorded) {
	t.Helper()
	spans := make(map[uint64]*span)
	for i := range w.spans {
		s := &w.spans[i]
		p := spans[s.parent]
		switch {
		case i == 0 && s.parent != 0, i > 0 && p == nil:
			t.Fatalf("seed %d: %s has no parent in its trace, or the first span has one", seed, s.name)
		case s.start > s.end, i > 0 && (s.start < p.start || s.end > p.end):
			t.Fatalf("seed %d: %s from %d to %d lies outside of its parent", seed, s.name, s.start, s.end)
		case spans[s.id] != nil:
			t.Fatalf("seed %d: two spans have one ID", seed)
		}
		spans[s.id] = s
	}
	if got := w.attached(); got != len(w.spans) {
		t.Fatalf("seed %d: %d of %d spans are attached", seed, got, len(w.spans))
	}
}

// TestUntidy checks that each kind of untidiness is in some applications, and shows in their traces.
func TestUntidy(t *testing.T) {
	var missing, late, skewed, linked, long int
	for seed := range uint64(30) {
		a := newApp(2000 + seed)
		for range 100 {
			for _, w := range a.execute(a.pick(), begin).traces {
				if w.attached() == 0 {
					missing++
				} else if w.attached() < len(w.spans) {
					late++
				}
				if w.spans[0].pod == a.phone && w.spans[0].end < begin {
					skewed++
				}
				if w.spans[0].link != 0 {
					linked++
				}
				if w.spans[0].end.Sub(w.spans[0].start) >= 20*time.Second {
					long++
				}
			}
		}
	}
	for name, n := range map[string]int{
		"missing parents":         missing,
		"work after the response": late,
		"wrong clocks":            skewed,
		"links":                   linked,
		"streams and polls":       long,
	} {
		if n == 0 {
			t.Errorf("no trace has %s", name)
		}
	}
}

// TestSizes checks the sizes of many applications.
func TestSizes(t *testing.T) {
	for seed := range uint64(20) {
		a := newApp(3000 + seed)
		if n := len(a.services); n < 7 || n > 30 {
			t.Errorf("seed %d: %d services", seed, n)
		}
		reached := a.reached()
		for _, s := range a.services[1:] {
			if !reached[s] {
				t.Errorf("seed %d: no request reaches %s", seed, s.name)
			}
		}
		rare := slices.ContainsFunc(a.types,
			func(t *requestType) bool { return t.rate >= rareLow && t.rate <= rareHigh })
		if !rare {
			t.Errorf("seed %d: no request type has 5 to 8 %% of the requests", seed)
		}
		if n := a.spansPerRequest(); n > 250 {
			t.Errorf("seed %d: %.0f spans in a request", seed, n)
		}
	}
}

// TestFaults injects each kind of fault into some applications. It compares the requests that the fault touches with
// the same requests without it, using other random numbers than for choosing its strength.
func TestFaults(t *testing.T) {
	for _, kind := range faultKinds {
		injected := 0
		for _, seed := range seeds {
			g := newGenerator(seed)
			g.now = begin.Add(time.Hour)
			if !g.inject(kind, 30*time.Minute, nil) {
				continue
			}
			injected++
			checkFault(t, g)
			break
		}
		if injected == 0 {
			t.Errorf("%s: no application has a place for it", kind)
		}
	}
}

// checkFault checks the active fault of a generator.
func checkFault(t *testing.T, g *generator) {
	t.Helper()
	f := g.faults[0]
	if f.share < leastShare {
		t.Errorf("seed %d: %s touches %.1f %% of the requests", g.seed, f.kind, 100*f.share)
	}
	at := f.window.To
	g.now = at.Add(-time.Second)
	for len(g.later) > 0 && g.later[0].at < at { // pods of a release
		g.later[0].do()
		g.later = g.later[1:]
	}
	n := min(1500, int(80/f.share))
	with := g.measure(n, at)
	if with.share < f.share/3 {
		t.Errorf("seed %d: %s touches %.1f %% of the requests, want %.1f %%",
			g.seed, f.kind, 100*with.share, 100*f.share)
	}
	failures := 0
	g.aside(func() {
		for range n {
			failures += g.app.execute(g.app.pickRequest(), at).failures
		}
	})
	switch f.kind {
	case "errors", "http-503", "outage", "timeouts", "retries":
		if failures == 0 {
			t.Errorf("seed %d: %s: nothing fails", g.seed, f.kind)
		}
		return
	case "queue-lag":
		return // the requests themselves do not wait
	}
	if f.ratio < leastRatio {
		t.Errorf("seed %d: %s makes requests %.2f times as long", g.seed, f.kind, f.ratio)
	}
	if usual := g.unharmed(n); with.mean < 1.25*usual {
		t.Errorf("seed %d: %s: requests take %.1f ms, usually %.1f", g.seed, f.kind, with.mean/1e6, usual/1e6)
	}
}

// unharmed returns the mean duration of the requests that the fault touches, with its effect removed.
func (g *generator) unharmed(n int) float64 {
	e := g.faults[0].effect
	strength := e.strength
	e.strength = 0
	defer func() { e.strength = strength }()
	return g.measure(n, g.faults[0].window.To).mean
}

// TestEvents makes each kind of harmless event happen: requests become neither slower nor fail.
func TestEvents(t *testing.T) {
	for _, kind := range eventKinds {
		g := newGenerator(seeds[0])
		g.now = begin.Add(time.Hour)
		at := g.now.Add(10 * time.Minute)
		before := g.mean(at)
		if s := g.event(kind, g.app.services[1]); s == nil {
			if kind != "scale-down" && kind != "renamed-span" {
				t.Errorf("%s did not happen", kind)
			}
			continue
		}
		for _, c := range g.later {
			c.do()
		}
		after := g.mean(at)
		if kind != "traffic-shift" && kind != "new-endpoint" && after > 1.1*before {
			t.Errorf("%s: requests take %.1f ms, %.1f before", kind, after/1e6, before/1e6)
		}
	}
}

// mean returns the mean duration of requests that start at time at.
func (g *generator) mean(at trace.Nanos) float64 {
	const n = 600
	sum := 0.0
	g.aside(func() {
		for range n {
			sum += float64(g.app.execute(g.app.pickRequest(), at).duration)
		}
	})
	return sum / n
}

// TestDeterminism compares the first minutes of equal and of different seeds, and decodes them.
func TestDeterminism(t *testing.T) {
	first, again, other := firstMinutes(t, 1000), firstMinutes(t, 1000), firstMinutes(t, 1008)
	if first != again {
		t.Error("equal seeds give different traces")
	}
	if first == other {
		t.Error("different seeds give equal traces")
	}
}

// firstMinutes returns a hash of the traces of the first two minutes of seed.
func firstMinutes(t *testing.T, seed uint64) [sha256.Size]byte {
	t.Helper()
	g := newGenerator(seed)
	g.end = begin.Add(2 * time.Minute)
	keys, err := ingest.NewKeys("service.version", "k8s.pod.name")
	if err != nil {
		t.Fatal(err)
	}
	decoder := otlp.NewDecoder(&trace.Table{}, keys)
	var all bytes.Buffer
	last := trace.Nanos(0)
	err = g.run(func(end trace.Nanos, w *recorded, data []byte) error {
		var batch ingest.Batch
		if err := decoder.Protobuf(data, &batch); err != nil {
			return err
		}
		if len(batch.Spans) != len(w.spans) || len(batch.Rejected) > 0 || end < last {
			t.Errorf("seed %d: %d of %d spans decoded; rejected: %v",
				seed, len(batch.Spans), len(w.spans), batch.Rejected)
		}
		last = end
		all.Write(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(all.Bytes())
}

// TestWrite reads back the files of the first minutes of an application with a fault.
func TestWrite(t *testing.T) {
	g := newGenerator(1000)
	g.end = begin.Add(3 * time.Minute)
	g.items = []item{{begin.Add(time.Minute), 10 * time.Minute, "errors", true}}
	dir := t.TempDir()
	traces, truth := filepath.Join(dir, "traces.jsonl.gz"), filepath.Join(dir, "faults.jsonl")
	if err := g.writeFiles(t.Context(), traces, truth); err != nil {
		t.Fatal(err)
	}
	in, err := file.Read(t.Context(), []string{traces}, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	spans := 0
	for x, err := range in.All() {
		if err != nil {
			t.Fatal(err)
		}
		spans += len(x.Spans)
	}
	if spans != g.spans || spans == 0 {
		t.Errorf("%d spans read, %d written", spans, g.spans)
	}
	labels, err := backtest.ReadLabels(t.Context(), truth, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(labels) != 1 || labels[0].Fault != "errors" || labels[0].Target.Service != g.faults[0].place.services[0] {
		t.Errorf("labels: %+v", labels)
	}
}
