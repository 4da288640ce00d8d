package history

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// play adds requests of a fleet to h.
func play(h *Sites, f *tracetest.Fleet, from, to time.Duration, all []tracetest.Instance) {
	x := critpath.NewExtractor(critpath.DefaultOptions())
	for ; from < to; from += 30 * time.Second {
		t := NewTally()
		f.Play(from, min(to, from+30*time.Second), all, func(tr *trace.Trace) { t.Observe(x.Extract(tr)) })
		h.Merge(t)
	}
	h.Age(trace.Nanos(to))
}

// TestInstancesOrder merges random tallies in two orders, with restarts between them. The content is equal.
func TestInstancesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		var tallies []*Tally
		for range rapid.IntRange(1, 6).Draw(t, "tallies") {
			tally := NewTally()
			f := &tracetest.Fleet{Table: table, Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
			x := critpath.NewExtractor(critpath.DefaultOptions())
			for range rapid.IntRange(0, 20).Draw(t, "requests") {
				at := trace.Nanos(rapid.IntRange(0, 3600).Draw(t, "second")) * trace.Nanos(time.Second)
				version := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
				tally.Observe(x.Extract(f.Request(at, rapid.IntRange(0, 40).Draw(t, "instance"),
					tracetest.Instance{Version: version, Slower: 1, Fails: 0.3})))
			}
			tallies = append(tallies, tally)
		}
		a, b := NewSites(table), NewSites(table)
		for i, tally := range tallies {
			a.Merge(tally)
			b.Merge(tallies[len(tallies)-1-i])
			var err error
			if b, err = DecodeSites(b.AppendBinary(nil), table); err != nil {
				t.Fatal(err)
			}
		}
		for _, age := range []time.Duration{0, 50 * time.Minute, 90 * time.Minute} {
			a.Age(trace.Nanos(age))
			b.Age(trace.Nanos(age))
			if !bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil)) {
				t.Fatalf("the content depends on the order of the tallies, at %v", age)
			}
		}
	})
}

// TestInstancesOfStreams answers a stream beside each hundred short requests, on the same instances: the time of the
// instances is that of the short requests alone. A short request that hangs still counts.
func TestInstancesOfStreams(t *testing.T) {
	f, control := tracetest.NewFleet(1), tracetest.NewFleet(1)
	h, short := NewSites(f.Table), NewSites(control.Table)
	pod, name := f.Table.Symbol("k8s.pod.name"), f.Table.Symbol("cart-0")
	cart := f.Table.Symbol("cart")
	x := critpath.NewExtractor(critpath.DefaultOptions())
	hangs := tracetest.Instance{Version: "1", Slower: 200}
	const known = 10 * time.Minute // which requests are long
	for at := time.Duration(0); at < 2*known; at += 50 * time.Second {
		play(short, control, at, at+50*time.Second, tracetest.Instances(3))
		play(h, f, at, at+50*time.Second, tracetest.Instances(3))
		tally := NewTally()
		tally.Observe(x.Extract(&trace.Trace{
			ID: trace.ID{15: byte(at / time.Second)},
			Spans: []trace.Span{{
				ID:      1,
				Op:      f.Table.Op(cart, f.Table.Symbol("GET /events"), trace.Server),
				Service: cart,
				Kind:    trace.Server,
				Start:   trace.Nanos(at),
				End:     trace.Nanos(at + time.Hour/2),
			}},
			Attrs: []trace.Attr{{Key: pod, Text: name}},
		}))
		h.Merge(tally)
	}
	times := func(h *Sites) (all []int64) {
		for _, v := range h.Instances.Of(cart, pod) {
			all = append(all, v.Within(Range{SliceOf(trace.Nanos(known)), maxSlice}).Time())
		}
		return all
	}
	if got, want := times(h), times(short); !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("times %v, want %v", got, want)
	}
	before, tally := slices.Max(times(h)), NewTally()
	tally.Observe(x.Extract(f.Request(trace.Nanos(2*known), 0, hangs)))
	h.Merge(tally)
	if got := slices.Max(times(h)); got < before+int64(time.Second) {
		t.Errorf("a request that hangs adds %d ns", got-before)
	}
}

// TestInstanceKeys looks up all keys in their table.
func TestInstanceKeys(t *testing.T) {
	for _, key := range InstanceKeys {
		if instanceKeyTable[key%64] != key {
			t.Errorf("key %d has the place of another in the table", key)
		}
	}
}

// TestInstancesBounded merges a million instances. The memory is bounded, and further values of a service count as one.
// Values without calls make room.
func TestInstancesBounded(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const perTally, tallies = 20_000, 50
	pod, services := InstanceKeys[1], 100
	for n := range tallies {
		tally := NewTally()
		s := tally.slice(Slice(n))
		s.entry(entryKey{root: 1}).add(spent{})
		tr := &trace.Trace{}
		for i := range perTally {
			tr.Reset()
			tr.Spans = append(tr.Spans, trace.Span{Service: trace.Symbol(1 + i%services)})
			tr.Attrs = append(tr.Attrs, trace.Attr{Key: pod, Text: trace.Symbol(1 + n*perTally + i)})
			tally.places.read(tr)
			if number := tally.places.of(tr, 0); number > 0 {
				tally.place(s, number).calls++
			}
		}
		if got := len(tally.places.list); got > maxPlaces+1 {
			t.Fatalf("%d places in a tally", got)
		}
		h.Merge(tally)
	}
	if got := len(h.Instances.series); got != maxInstances {
		t.Errorf("%d values, want %d", got, maxInstances)
	}
	one := NewSites(table)
	tally := NewTally()
	for i := range 1000 {
		tr := &trace.Trace{
			Spans: []trace.Span{{Service: 1}},
			Attrs: []trace.Attr{{Key: pod, Text: trace.Symbol(1 + i)}},
		}
		tally.places.read(tr)
		tally.place(tally.slice(0), tally.places.of(tr, 0)).calls++
	}
	one.Merge(tally)
	rest := one.Instances.series[InstanceKey{Service: 1, Key: pod}].Unpack(nil)
	if got := len(one.Instances.series); got != maxValues+1 || rest.Calls() != 1000-maxValues {
		t.Errorf("%d values, %d calls of the rest; want %d and %d", got, rest.Calls(), maxValues+1, 1000-maxValues)
	}
	one.Instances.age(func(trace.Symbol) *aging { return &aging{} }, 0)
	if len(one.Instances.series)+len(one.Instances.values) != 0 {
		t.Error("values without calls take room")
	}
}
