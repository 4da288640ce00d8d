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
	h.Skip(1, Interval{trace.Nanos(30 * time.Minute), trace.Nanos(3 * time.Hour)})
	h.Skip(2, Interval{trace.Nanos(3 * time.Hour), trace.Nanos(4 * time.Hour)})
	h.Age(trace.Nanos(4 * time.Hour))
	r := h.Compare(Interval{trace.Nanos(237 * time.Minute), trace.Nanos(4 * time.Hour)}, Steady)
	if got := r.Suspects[0].Score; math.Abs(got-2) > 1e-9 {
		t.Errorf("score %v after hours of slow requests, want 2", got)
	}
	h = NewSites(table)
	h.Merge(callsAt(table, 0, 4*time.Hour, normal))
	h.Age(trace.Nanos(4 * time.Hour))
	if first := h.total[0].slice; time.Duration(first)*Slice < 2*time.Hour-time.Minute || time.Duration(first)*Slice > 2*time.Hour+time.Minute {
		t.Errorf("the history begins after %v of 4h", time.Duration(first)*Slice)
	}
}

// load is the traffic of a large installation.
type load struct {
	every  int // slices between two with calls
	shapes int // of a site in a slice
	calls  uint64
}

// manySites returns the history of two hours of MaxSites sites and maxInstances instances, and its last three minutes.
func manySites(l load) (*Sites, Interval) {
	table := &trace.Table{}
	h := NewSites(table)
	service := [50]trace.Symbol{}
	for i := range service {
		service[i] = table.Symbol(fmt.Sprintf("service%d", i))
	}
	all := NewTally()
	for i := range MaxSites {
		n := i % len(service)
		op := table.Op(service[n], table.Symbol(fmt.Sprintf("op%d", i)), trace.Client)
		target := table.Op(service[(n+1+i/50%7)%len(service)], table.Symbol(fmt.Sprintf("target%d", i)), trace.Server)
		all.add(tallySite{siteKey{op: op.To(target)}, op, target, service[n], true})
	}
	for i := range maxInstances {
		x := place{service: trace.Symbol(i / maxValues)}
		x.values[1] = trace.Symbol(1 + i)
		all.places.list = append(all.places.list, x)
	}
	r := rand.New(rand.NewPCG(1, 1))
	const minutes = int(Span/time.Minute) + 5
	for minute := range minutes {
		t := &Tally{numbers: all.numbers, sites: all.sites, places: all.places, slices: make(map[slice]*tallySlice)}
		for k := 0; k < int(slicesPerMinute); k += l.every {
			s := t.slice(slice(minute)*slicesPerMinute + slice(k))
			s.requests, s.duration = 1000, 1e11
			for i := range MaxSites {
				l.count(s.cell(int32(i)), r)
				if i < maxInstances {
					*s.place(int32(i + 1)) = placeCell{l.calls, 1, int64(l.calls)*1e6 + timeUnit*r.Int64N(1000)}
				}
			}
		}
		h.Merge(t)
		if minute%20 == 0 || minute > minutes-5 { // the content is the same as after an Age every minute
			h.Age(trace.Nanos(minute+1) * trace.Nanos(time.Minute))
		}
	}
	return h, Interval{trace.Nanos(minutes-3) * trace.Nanos(time.Minute), trace.Nanos(minutes) * trace.Nanos(time.Minute)}
}

// count adds the calls of a site in a slice: one with each shape, except that most have the first.
func (l load) count(c *tallyCell, r *rand.Rand) {
	c.calls, c.nanos = l.calls, int64(l.calls)*1e6+timeUnit*r.Int64N(1000)
	c.logs = int64(l.calls) * (logOf(1e6) - 1) // as if their coefficient of variation were 0.4
	for k := range l.shapes {
		c.shapes = append(c.shapes, shapeCount{shape{uint64(k + 1), k > 0, true}, 1})
	}
	c.shapes[0].calls = l.calls - uint64(l.shapes-1)
}

// BenchmarkCompare judges three minutes of 20,000 sites with calls at every slice, against two hours. Brief judges all
// of them anew, as if each had a call since the last time.
func BenchmarkCompare(b *testing.B) {
	for name, manner := range map[string]Manner{"steady": Steady, "brief": Brief} {
		b.Run(name, func(b *testing.B) {
			h, window := manySites(load{every: 1, shapes: 2, calls: 10})
			for b.Loop() {
				clear(h.verdicts)
				h.Compare(window, manner)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxSites, "ns/site")
		})
	}
}

// BenchmarkSitesMemory measures the memory of 20,000 sites and 4,096 instances: with calls of two shapes at every
// minute, at every slice, and with 200,000 calls a second of more shapes than there is room for. They were compared
// once.
func BenchmarkSitesMemory(b *testing.B) {
	for name, l := range map[string]load{
		"minutes": {int(slicesPerMinute), 2, 10}, "slices": {1, 2, 10}, "most": {1, 5, 100},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heapInUse()
				h, window := manySites(l)
				h.Compare(window, Brief)
				used := float64(heapInUse() - before)
				b.ReportMetric(used/1e6, "MB")
				b.ReportMetric(used/MaxSites, "B/site")
				runtime.KeepAlive(h)
			}
		})
	}
}

// heapInUse returns the memory of all live objects.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// tallyOf returns a tally of a call of each of n operations of a service, numbered from first, and of an instance each.
func tallyOf(table *trace.Table, service string, first, n int, at time.Duration) *Tally {
	tally := NewTally()
	s := tally.slice(sliceOf(trace.Nanos(at)))
	s.requests, s.duration = 1, 1e6
	for i := first; i < first+n; i++ {
		op := table.Op(table.Symbol(service), table.Symbol(fmt.Sprintf("op%d", i)), trace.Server)
		c := s.cell(tally.add(tallySite{siteKey: siteKey{op: op}, base: op, service: table.Symbol(service)}))
		c.calls, c.nanos, c.shapes = 1, 1e6, []shapeCount{{shape{1, false, true}, 1}}
		x := place{service: table.Symbol(service)}
		x.values[1] = table.Symbol(fmt.Sprintf("pod%d", i))
		tally.places.list = append(tally.places.list, x)
		*s.place(int32(len(tally.places.list) - 1)) = placeCell{calls: 1}
	}
	return tally
}

// TestSitesEvicted fills a history with sites and instances that are called once: after two hours they make room for
// new ones, with their services. A site that is still called stays, and so does its history.
func TestSitesEvicted(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	merge := func(tally *Tally, at time.Duration) {
		h.Merge(tally)
		h.Age(trace.Nanos(at))
	}
	merge(tallyOf(table, "kept", 0, 1, 0), 0)
	for i := range MaxSites / (serviceSites - 1) {
		merge(tallyOf(table, fmt.Sprint("old", i), 0, serviceSites-1, 0), 0)
	}
	left := MaxSites - h.Len()
	merge(tallyOf(table, "last", 0, left+1, 0), 0)
	if h.Len() != MaxSites || h.Refused() != 1 {
		t.Fatalf("%d sites, %d calls refused; want %d and 1", h.Len(), h.Refused(), MaxSites)
	}
	const last, pause = Span + 20*time.Minute, 10 * time.Minute
	for at := pause; at <= last; at += pause {
		merge(tallyOf(table, "kept", 0, 1, at), at)
	}
	if h.Len() != 1 || h.Services() != 1 || h.shapes != 1 {
		t.Errorf("%d sites of %d services with %d shapes; want only the one that is called", h.Len(), h.Services(), h.shapes)
	}
	if got := h.series[1].unpack(nil).calls(); got != uint64(last/pause+1) {
		t.Errorf("%d calls of the site that was kept", got)
	}
	if got := len(h.instances.series); got != 1+left+1 {
		t.Errorf("%d instances, want the one that is called and those of the service with few", got)
	}
	for i := range MaxSites / (serviceSites - 1) {
		merge(tallyOf(table, fmt.Sprint("new", i), 0, serviceSites-1, last), last)
	}
	merge(tallyOf(table, "last", 0, MaxSites-h.Len(), last), last)
	if h.Len() != MaxSites || h.Refused() != 1 {
		t.Errorf("%d sites, %d calls refused; want %d and no more than before", h.Len(), h.Refused(), MaxSites)
	}
	restored, err := DecodeSites(h.AppendBinary(nil), table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendBinary(nil), h.AppendBinary(nil)) || restored.shapes != h.shapes {
		t.Error("a restart changes the content")
	}
}

// TestSitesOfService calls ever new operations of a service: the service takes a quarter of the sites, its further
// operations count together, and those of others have room. After two hours the service has room again, and another one
// that had no calls meanwhile keeps its sites, as a nightly job does.
func TestSitesOfService(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	merge := func(tally *Tally, at time.Duration) {
		h.Merge(tally)
		h.Age(trace.Nanos(at))
	}
	merge(tallyOf(table, "shop", 0, 2*MaxSites, 0), 0)
	merge(tallyOf(table, "cart", 0, 100, 0), 0)
	merge(tallyOf(table, "backup", 0, 10, 0), 0)
	if got, want := h.Len(), serviceSites+1+100+10; got != want || h.Refused() != 0 {
		t.Errorf("%d sites, %d calls refused; want %d and none", got, h.Refused(), want)
	}
	other := table.Op(table.Symbol("shop"), table.Symbol(trace.Overflow), trace.Internal)
	if got := h.series[h.numbers[siteKey{op: other}]].unpack(nil).calls(); got != 2*MaxSites-serviceSites {
		t.Errorf("%d calls of other operations", got)
	}
	restored, err := DecodeSites(h.AppendBinary(nil), table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(restored.AppendBinary(nil), h.AppendBinary(nil)) || restored.crowds[table.Symbol("shop")] != serviceSites+1 {
		t.Error("a restart changes the content")
	}
	const later = Span + 20*time.Minute
	merge(tallyOf(table, "cart", 0, 100, later), later)
	if h.Len() != 100+10 || h.crowds[table.Symbol("backup")] != 10 {
		t.Errorf("%d sites after two hours, want those of the services with few", h.Len())
	}
}

// TestInstancesReplaced replaces all 64 pods of a service while an incident is open: the new ones find room two hours
// after the last call of the old ones, although the history before the incident is kept.
func TestInstancesReplaced(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	counted := func(pod string) bool {
		return h.instances.series[instanceKey{table.Symbol("cart"), instanceKeys[1], table.Symbol(pod)}] != nil
	}
	end := Span + 20*time.Minute
	for at := time.Duration(0); at < end; at += time.Minute {
		first := 0
		if at >= 10*time.Minute {
			first = maxValues
			h.Skip(1, Interval{trace.Nanos(10 * time.Minute), trace.Nanos(at)})
		}
		h.Merge(tallyOf(table, "cart", first, maxValues, at))
		h.Age(trace.Nanos(at))
		if at == 20*time.Minute && counted("pod64") {
			t.Error("there was room for a new pod")
		}
	}
	if counted("pod0") || !counted("pod64") || !counted("pod127") {
		t.Errorf("pods counted: old %t, new %t and %t", counted("pod0"), counted("pod64"), counted("pod127"))
	}
}

// TestSkippedForgotten keeps an incident open for a day: the history before it stays, and only the last half hour of
// the incident is kept with it.
func TestSkippedForgotten(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const day, healthy = 24 * time.Hour, time.Hour
	for at := time.Duration(0); at < day; at += time.Minute {
		if at > healthy {
			h.Skip(1, Interval{trace.Nanos(healthy), trace.Nanos(at)})
		}
		h.Merge(tallyOf(table, "cart", 0, 1, at))
		h.Age(trace.Nanos(at))
	}
	all := h.series[1].unpack(nil)
	if got := len(all.within(sliceRange{0, sliceOf(trace.Nanos(healthy))})); got != int(healthy/time.Minute) {
		t.Errorf("%d minutes before the incident, want %d", got, int(healthy/time.Minute))
	}
	if got := len(all); got < int((healthy+65*time.Minute)/time.Minute) || got > int((healthy+67*time.Minute)/time.Minute) {
		t.Errorf("%d minutes in all, want two hours and five minutes", got)
	}
}

// Accept deletes the calls of a service and those to it before an interval, and returns the interval to the history.
func TestAccept(t *testing.T) {
	e := newCase(1, true, false, "cpu")
	traces, window := e.traces(200, 2000)
	traces, window = stretch(traces, window)
	h := sitesOf(e.table, traces, 100)
	service := e.table.Symbol(e.target())
	h.Skip(1, Interval{window.From.Add(-time.Hour), window.To.Add(time.Hour)})
	h.Accept(service, window)
	for s, want := range map[slice]bool{sliceOf(window.From) - 1: true, sliceOf(window.From): false, sliceOf(window.To): false, sliceOf(window.To) + 1: true} {
		if h.skipped.of(service).contains(s) != want {
			t.Errorf("slice %d of [%d, %d] skipped: %t", s, sliceOf(window.From), sliceOf(window.To), !want)
		}
	}
	callees := (&liveComparison{h: h, liveMemory: &liveMemory{}}).graph().callee
	own, others := 0, 0
	for i := 1; i <= h.Len(); i++ {
		s := &h.series[i]
		all := s.unpack(nil)
		old := len(all) > 0 && all[0].slice < sliceOf(window.From)
		for k := range s.shapes {
			old = old || s.shapes[k].unpack(nil)[0].slice < sliceOf(window.From)
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
