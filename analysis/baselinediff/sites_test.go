package baselinediff

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/bench/tracetest"
	"github.com/sibyl-trace/sibyl/bench/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// sitesOf returns the history of traces, merged from a tally of every n of them.
func sitesOf(table *trace.Table, traces []*trace.Trace, n int) *Sites {
	h, x := NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
	for part := range slices.Chunk(traces, n) {
		t := NewTally()
		for _, tr := range part {
			t.Observe(x.Extract(tr))
		}
		h.Merge(t)
	}
	return h
}

// stretch moves the window of traces to whole slices: a minute for every minute of t, with the history before it.
func stretch(traces []*trace.Trace, window Interval) ([]*trace.Trace, Interval) {
	var before, within []*trace.Trace
	for _, t := range traces {
		switch start := t.Spans[0].Start; {
		case window.Contains(start):
			within = append(within, t)
		default:
			before = append(before, t)
		}
	}
	const span = int64(3 * time.Minute)
	spread := func(list []*trace.Trace, from, length int64) {
		for i, t := range list {
			by := trace.Nanos(from+length*int64(i)/int64(len(list))) - t.Spans[0].Start
			for k := range t.Spans {
				t.Spans[k].Start += by
				t.Spans[k].End += by
			}
		}
	}
	history := span * int64(len(before)) / int64(len(within)) / span * span
	spread(before, 0, history)
	spread(within, history, span)
	return append(before, within...), Interval{trace.Nanos(history), trace.Nanos(history + span)}
}

// TestSitesAgree compares the ranking by counts of slices with the exact one. Both find the faulty services of
// simulated applications about as often, and mostly agree on the first.
func TestSitesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("plays simulations")
	}
	const cases = 60
	exact, plain, steady, agree := 0, 0, 0, 0
	for seed := range uint64(cases) {
		e := newCase(seed, true, false, "cpu", "delay", "code", "exc")
		n := choose(e.rng, 50, 150, 300)
		traces, window := e.traces(n, n*10)
		traces, window = stretch(traces, window)
		first := func(suspects []Suspect) string { return e.table.Text(suspects[0].Service) }
		want := first(compareAll(e.table, traces, window))
		h := sitesOf(e.table, traces, 100)
		got := first(h.Compare(window, Plain).Suspects)
		if want == e.target() {
			exact++
		}
		if got == e.target() {
			plain++
		}
		if got == want {
			agree++
		}
		if first(h.Compare(window, Steady).Suspects) == e.target() {
			steady++
		}
	}
	t.Logf("of %d first: exact %d, plain %d, steady %d; agree on %d", cases, exact, plain, steady, agree)
	if plain < exact-3 || agree < cases*9/10 || steady < exact-8 {
		t.Error("the ranking by slices is worse than the exact one")
	}
}

// TestSitesOrder merges the same traces in another order, in other tallies and after a restart: the content is equal.
func TestSitesOrder(t *testing.T) {
	e := newCase(3, false, false, "delay")
	traces, window := stretch(e.traces(100, 500))
	a := sitesOf(e.table, traces, 600)
	shuffled := slices.Clone(traces)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	b := sitesOf(e.table, shuffled, 7)
	if !bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil)) {
		t.Error("the content depends on the order of the traces")
	}
	c, err := DecodeSites(a.AppendBinary(nil), e.table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.AppendBinary(nil), c.AppendBinary(nil)) {
		t.Error("a restart changes the content")
	}
	want := printSuspects(a.Compare(window, Steady).Suspects, e.table)
	for name, h := range map[string]*Sites{"shuffled": b, "decoded": c} {
		if got := printSuspects(h.Compare(window, Steady).Suspects, e.table); got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
	}
}

// TestDecodeSitesCorrupt cuts and flips saved histories: decoding them returns an error or a history, and never panics.
func TestDecodeSitesCorrupt(t *testing.T) {
	e := newCase(5, true, false, "cpu")
	traces, window := stretch(e.traces(20, 60))
	saved := sitesOf(e.table, traces, 100).AppendBinary(nil)
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		b := slices.Clone(saved)
		if r.IntN(2) == 0 {
			b = b[:r.IntN(len(b))]
			if _, err := DecodeSites(b, e.table); err == nil {
				t.Fatalf("no error for the first %d of %d bytes", len(b), len(saved))
			}
			continue
		}
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		if h, err := DecodeSites(b, e.table); err == nil {
			h.Compare(window, Plain)
			h.Age(window.To)
		}
	}
}

// callsAt returns a tally of a shop whose requests, one a second from from to to, spend nanos in the checkout.
func callsAt(table *trace.Table, from, to time.Duration, nanos int64) *Tally {
	op := table.Op(table.Symbol("shop"), table.Symbol("checkout"), trace.Server)
	tally, x := NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for at := from; at < to; at += time.Second {
		tr := &trace.Trace{ID: trace.ID{15: byte(at / time.Second)}, Spans: []trace.Span{{
			ID: 1, Op: op, Service: table.Symbol("shop"), Kind: trace.Server, Start: trace.Nanos(at), End: trace.Nanos(at) + trace.Nanos(nanos),
		}}}
		tally.Observe(x.Extract(tr))
	}
	return tally
}

// TestSitesSteady slows requests down for a part of the window, and for all of it: only the second is a steady change.
func TestSitesSteady(t *testing.T) {
	const normal, slow = int64(100 * time.Millisecond), int64(300 * time.Millisecond)
	window := Interval{trace.Nanos(30 * time.Minute), trace.Nanos(33 * time.Minute)}
	for _, c := range []struct {
		name                string
		from                time.Duration // requests are slow from here to the end of the window
		plain, steady, step float64
	}{
		{"burst", 32 * time.Minute, 2. / 3, 0, 0},
		{"whole window", 30 * time.Minute, 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &trace.Table{}
			h := NewSites(table)
			h.Merge(callsAt(table, 0, c.from, normal))
			h.Merge(callsAt(table, c.from, 33*time.Minute, slow))
			for manner, want := range map[Manner]float64{Plain: c.plain, Steady: c.steady} {
				r := h.Compare(window, manner)
				if got := r.Suspects[0].Score; math.Abs(got-want) > 1e-9 || r.Requests != 180 || r.Duration != float64(normal) {
					t.Errorf("manner %d: score %v of %d requests of %v ns, want %v", manner, got, r.Requests, r.Duration, want)
				}
			}
		})
	}
}

// TestSitesSkip excludes slow requests from the history, so that they do not become normal, and keeps two hours
// besides.
func TestSitesSkip(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const normal, slow = int64(100 * time.Millisecond), int64(300 * time.Millisecond)
	h.Merge(callsAt(table, 0, 30*time.Minute, normal))
	h.Merge(callsAt(table, 30*time.Minute, 4*time.Hour, slow))
	h.Skip(Interval{trace.Nanos(30 * time.Minute), trace.Nanos(3 * time.Hour)})
	h.Skip(Interval{trace.Nanos(3 * time.Hour), trace.Nanos(4 * time.Hour)})
	h.Age(trace.Nanos(4 * time.Hour))
	r := h.Compare(Interval{trace.Nanos(237 * time.Minute), trace.Nanos(4 * time.Hour)}, Steady)
	if got := r.Suspects[0].Score; math.Abs(got-2) > 1e-9 {
		t.Errorf("score %v after hours of slow requests, want 2", got)
	}
	h = NewSites(table)
	h.Merge(callsAt(table, 0, 4*time.Hour, normal))
	h.Age(trace.Nanos(4 * time.Hour))
	if first := h.total.cells[0].slice; time.Duration(first)*Slice < 2*time.Hour-time.Minute || time.Duration(first)*Slice > 2*time.Hour+time.Minute {
		t.Errorf("the history begins after %v of 4h", time.Duration(first)*Slice)
	}
}

// manySites returns the history of two hours of MaxSites sites with calls at intervals of the given number of slices,
// each with two shapes, and its last three minutes.
func manySites(interval int) (*Sites, Interval) {
	table := &trace.Table{}
	h := NewSites(table)
	service := [50]trace.Symbol{}
	for i := range service {
		service[i] = table.Symbol(fmt.Sprintf("service%d", i))
	}
	sites := NewTally()
	for i := range MaxSites {
		n := i % len(service)
		op := table.Op(service[n], table.Symbol(fmt.Sprintf("op%d", i)), trace.Client)
		target := table.Op(service[(n+1+i/50%7)%len(service)], table.Symbol(fmt.Sprintf("target%d", i)), trace.Server)
		sites.add(tallySite{siteKey{op: op.To(target)}, op, target, service[n], true})
	}
	r := rand.New(rand.NewPCG(1, 1))
	const slices = int(Span/Slice) + 30
	for at := 0; at < slices; at += interval {
		t := &Tally{numbers: sites.numbers, sites: sites.sites, slices: make(map[slice]*tallySlice)}
		s := t.slice(slice(at))
		s.requests, s.duration = 1000, 1e11
		for i := range MaxSites {
			c := s.cell(int32(i))
			c.calls, c.nanos = 10, 10e6+r.Int64N(1e6)
			c.shapes = []shapeCount{{shape{1, false, true}, 9}, {shape{2, true, true}, 1}}
		}
		h.Merge(t)
		h.Age(trace.Nanos(at) * trace.Nanos(Slice))
	}
	return h, Interval{trace.Nanos(slices-18) * trace.Nanos(Slice), trace.Nanos(slices) * trace.Nanos(Slice)}
}

// BenchmarkCompare judges three minutes of 20,000 sites with calls at every slice, against two hours.
func BenchmarkCompare(b *testing.B) {
	h, window := manySites(1)
	for b.Loop() {
		h.Compare(window, Steady)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxSites, "ns/site")
}

// BenchmarkSitesMemory measures the memory of 20,000 sites with calls at every minute, and at every slice.
func BenchmarkSitesMemory(b *testing.B) {
	for _, interval := range []int{int(slicesPerMinute), 1} {
		b.Run((time.Duration(interval) * Slice).String(), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				h, _ := manySites(interval)
				runtime.GC()
				runtime.ReadMemStats(&after)
				used := float64(after.HeapAlloc) - float64(before.HeapAlloc)
				b.ReportMetric(used/1e6, "MB")
				b.ReportMetric(used/MaxSites, "B/site")
				runtime.KeepAlive(h)
			}
		})
	}
}

// Accept deletes the calls of a service and those to it before an interval, and returns the interval to the history.
func TestAccept(t *testing.T) {
	e := newCase(1, true, false, "cpu")
	traces, window := e.traces(200, 2000)
	traces, window = stretch(traces, window)
	h := sitesOf(e.table, traces, 100)
	service := e.table.Symbol(e.target())
	h.Skip(Interval{window.From.Add(-time.Hour), window.To.Add(time.Hour)})
	h.Accept(service, window)
	for s, want := range map[slice]bool{sliceOf(window.From) - 1: true, sliceOf(window.From): false, sliceOf(window.To): false, sliceOf(window.To) + 1: true} {
		if h.isSkipped(s) != want {
			t.Errorf("slice %d of [%d, %d] skipped: %t", s, sliceOf(window.From), sliceOf(window.To), !want)
		}
	}
	callees := (&liveComparison{h: h}).graph().callee
	own, others := 0, 0
	for i := 1; i <= h.Len(); i++ {
		s := &h.series[i]
		old := len(s.cells) > 0 && s.cells[0].slice < sliceOf(window.From)
		for k := range s.shapes {
			old = old || s.shapes[k].cells[0].slice < sliceOf(window.From)
		}
		number := h.serviceNumbers[service]
		switch mine := h.sites[i].service == number || callees[i].service == number; {
		case mine && old:
			t.Errorf("site %d has calls before the interval", i)
		case mine:
			own++
		case old:
			others++
		}
	}
	if own == 0 || others == 0 {
		t.Errorf("%d sites of the service, %d others with an older history", own, others)
	}
}

// TestSitesBehind fails requests of a proxy without CLIENT spans before the service behind it has a span: the history
// charges that service, like [Normal.Compare].
func TestSitesBehind(t *testing.T) {
	table := &trace.Table{}
	parse := func(text string) *trace.Trace {
		tr, err := tracetext.Parse(text, table)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	healthy := parse("a proxy store server 0..100\n  b cart get server 10..90")
	failed := parse("a proxy store server 0..100 error")
	h, tally, x := NewSites(table), NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for second := range 33 * 60 {
		tr := healthy
		if second >= 30*60 && second%2 == 0 {
			tr = failed
		}
		moved := tracetest.Shift(tr, trace.Nanos(second)*1e9)
		moved.ID = trace.ID{14: byte(second >> 8), 15: byte(second)}
		tally.Observe(x.Extract(moved))
	}
	h.Merge(tally)
	for _, manner := range []Manner{Plain, Steady} {
		r := h.Compare(Interval{trace.Nanos(30 * time.Minute), trace.Nanos(33 * time.Minute)}, manner)
		if s := r.Suspects[0]; table.Text(s.Service) != "cart" || math.Abs(s.Unanswered-0.5) > 0.01 {
			t.Errorf("manner %d: got %s", manner, printSuspects(r.Suspects, table))
		}
	}
}
