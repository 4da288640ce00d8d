package baselinediff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// fleet is a gateway that calls the instances of a cart, two requests a second. Instance i runs on host i and in zone
// i % 2.
type fleet struct {
	table *trace.Table
	rng   *rand.Rand
	next  uint64
}

// instance is the behaviour of an instance.
type instance struct {
	version string
	slower  float64 // times the usual
	fails   float64 // share of the calls
}

func newFleet() *fleet { return &fleet{table: &trace.Table{}, rng: rand.New(rand.NewPCG(3, 4))} }

// instances returns n instances of version 1.
func (f *fleet) instances(n int) []instance {
	all := make([]instance, n)
	for i := range all {
		all[i] = instance{"1", 1, 0}
	}
	return all
}

// play adds requests between two times, which instances answer at random, to h.
func (f *fleet) play(h *Sites, from, to time.Duration, all []instance) {
	x := critpath.NewExtractor(critpath.DefaultOptions())
	for ; from < to; from += 30 * time.Second {
		t := NewTally()
		for at := from; at < min(to, from+30*time.Second); at += time.Second / 2 {
			i := f.rng.IntN(len(all))
			t.Observe(x.Extract(f.request(trace.Nanos(at), i, all[i])))
		}
		h.Merge(t)
	}
	h.Age(trace.Nanos(to))
}

func (f *fleet) request(start trace.Nanos, number int, i instance) *trace.Trace {
	f.next++
	work := trace.Nanos(i.slower * (50e6 + 50e6*f.rng.ExpFloat64()))
	span := func(id, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos) trace.Span {
		symbol := f.table.Symbol(service)
		return trace.Span{
			ID: id, Parent: parent, Op: f.table.Op(symbol, f.table.Symbol(name), kind), Service: symbol, Kind: kind, Start: start + from, End: start + to,
		}
	}
	const wire = trace.Nanos(time.Millisecond)
	tr := &trace.Trace{ID: trace.ID{0: byte(f.next), 1: byte(f.next >> 8), 2: byte(f.next >> 16)}, Spans: []trace.Span{
		span(1, 0, "gateway", "GET /cart", trace.Server, 0, work+4*wire),
		span(2, 1, "gateway", "GET", trace.Client, wire, work+3*wire),
		span(3, 2, "cart", "GET /cart", trace.Server, 2*wire, work+2*wire),
	}}
	if f.rng.Float64() < i.fails {
		tr.Spans[2].Flags |= trace.Error
	}
	for key, value := range map[string]string{
		"k8s.pod.name": fmt.Sprintf("cart-%d", number), "host.name": fmt.Sprintf("host-%d", number), "service.version": i.version,
		"cloud.availability_zone": fmt.Sprintf("zone-%d", number%2), "http.route": "/cart",
	} {
		tr.Attrs = append(tr.Attrs, trace.Attr{Key: f.table.Symbol(key), Text: f.table.Symbol(value), Span: 2})
	}
	return tr
}

// listed returns the instances of the cart in a window, with their parts in tenths.
func (f *fleet) listed(h *Sites, w Interval) (all []string) {
	c := h.Compare(w, Steady)
	i := slices.IndexFunc(c.Suspects, func(s Suspect) bool { return s.Service == f.table.Symbol("cart") })
	for _, x := range h.Instances(w, &c, &c.Suspects[i]) {
		all = append(all, fmt.Sprintf("%s=%s %.1f of %d", f.table.Text(x.Key), f.table.Text(x.Value), x.Part, x.Of))
	}
	return all
}

// TestInstances plays an hour of health and three minutes of a fault.
func TestInstances(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int
		fault  func(all []instance)
		want   []string
	}{
		{"one slow instance", 6, func(all []instance) { all[3].slower = 4 }, []string{"k8s.pod.name=cart-3 1.0 of 6"}},
		{"one slow instance of twelve", 12, func(all []instance) { all[3].slower = 4 }, []string{"k8s.pod.name=cart-3 0.9 of 12"}},
		{"errors of one instance", 6, func(all []instance) { all[2].fails = 0.5 }, []string{"k8s.pod.name=cart-2 1.0 of 6"}},
		{"a slow version of half the instances", 6, func(all []instance) {
			for i := range 3 {
				all[i] = instance{"2", 4, 0}
			}
		}, []string{"service.version=2 1.0 of 2"}},
		{
			"a slow version of one new instance", 6, func(all []instance) { all[5] = instance{"2", 4, 0} },
			[]string{"service.version=2 1.0 of 2", "k8s.pod.name=cart-5 1.0 of 6"},
		},
		{
			"a slow zone", 6, func(all []instance) { all[0].slower, all[2].slower, all[4].slower = 4, 4, 4 },
			[]string{"cloud.availability_zone=zone-0 1.0 of 2"},
		},
		{"all slow", 6, func(all []instance) {
			for i := range all {
				all[i].slower = 4
			}
		}, nil},
		{"a new version everywhere", 6, func(all []instance) {
			for i := range all {
				all[i] = instance{"2", 4, 0}
			}
		}, nil},
		{"healthy", 6, func([]instance) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet()
			h := NewSites(f.table)
			all := f.instances(c.number)
			f.play(h, 0, time.Hour, all)
			c.fault(all)
			f.play(h, time.Hour, 63*time.Minute, all)
			w := Interval{trace.Nanos(time.Hour), trace.Nanos(63 * time.Minute)}
			got := f.listed(h, w)
			if c.name == "a slow version of half the instances" || c.name == "a slow zone" {
				got = slices.DeleteFunc(got, func(s string) bool { return s[0] == 'k' || s[0] == 'h' })
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			restored, err := DecodeSites(h.AppendBinary(nil), f.table)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(f.listed(h, w), f.listed(restored, w)); diff != "" {
				t.Errorf("a restart changes the instances (-before +after):\n%s", diff)
			}
		})
	}
}

// TestInstancesByChance slows all instances down in many simulations: at most one of them lists one.
func TestInstancesByChance(t *testing.T) {
	wrong := 0
	for seed := range uint64(40) {
		f := newFleet()
		f.rng = rand.New(rand.NewPCG(seed, 1))
		h := NewSites(f.table)
		all := f.instances(20)
		f.play(h, 0, 20*time.Minute, all)
		for i := range all {
			all[i].slower = 3
		}
		f.play(h, 20*time.Minute, 23*time.Minute, all)
		if got := f.listed(h, Interval{trace.Nanos(20 * time.Minute), trace.Nanos(23 * time.Minute)}); got != nil {
			t.Log(got)
			wrong++
		}
	}
	if wrong > 1 {
		t.Errorf("instances listed in %d of 40 cases in which all are slow", wrong)
	}
}

// TestInstancesOrder merges random tallies in two orders, with restarts between them: the content is equal.
func TestInstancesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		var tallies []*Tally
		for range rapid.IntRange(1, 6).Draw(t, "tallies") {
			tally := NewTally()
			f := &fleet{table: table, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
			x := critpath.NewExtractor(critpath.DefaultOptions())
			for range rapid.IntRange(0, 20).Draw(t, "requests") {
				at := trace.Nanos(rapid.IntRange(0, 3600).Draw(t, "second")) * trace.Nanos(time.Second)
				version := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
				tally.Observe(x.Extract(f.request(at, rapid.IntRange(0, 40).Draw(t, "instance"), instance{version, 1, 0.3})))
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

// TestDecodeSitesVersions restores histories of the versions without logarithms and without weeks, which Sibyl wrote on
// 25 November 2026, and of the version before, without instances.
func TestDecodeSitesVersions(t *testing.T) {
	played := func() *Sites {
		f := newFleet()
		h := NewSites(f.table)
		f.play(h, 0, 10*time.Minute, f.instances(3))
		h.Skip(0, Interval{trace.Nanos(2 * time.Minute), trace.Nanos(3 * time.Minute)})
		return h
	}
	v2, err := os.ReadFile("testdata/sites.v2")
	if err != nil {
		t.Fatal(err)
	}
	v3, err := os.ReadFile("testdata/sites.v3")
	if err != nil {
		t.Fatal(err)
	}
	v1 := slices.Concat([]byte{sitesVersion1}, v2[1:len(v2)-len(played().instances.appendTo(nil))])
	withoutTimes := func(h *Sites) []byte {
		forget := func(c *counts) {
			all := c.unpack(nil)
			for k := range all {
				all[k].nanos, all[k].logs = 0, 0
			}
			c.pack(all)
		}
		for i := range h.series {
			forget(&h.series[i].counts)
		}
		for _, s := range h.instances.series {
			forget(&s.counts)
		}
		return h.AppendBinary(nil)
	}
	for _, old := range [][]byte{v3, v2, v1} {
		h := played()
		if old[0] == sitesVersion1 {
			h.instances = newInstances()
		}
		restored, err := DecodeSites(old, h.table)
		if err != nil {
			t.Fatal(err)
		}
		restored.Age(trace.Nanos(10 * time.Minute)) // slices were kept for longer
		for key, i := range h.numbers {
			want := h.series[i].unpack(nil)
			for k, x := range restored.series[restored.numbers[key]].unpack(nil) {
				if diff := x.nanos - want[k].nanos; max(diff, -diff) > int64(x.calls)*timeUnit || x.logs == 0 && x.nanos > 0 {
					t.Errorf("version %d: %+v at site %d, want %+v", old[0], x, i, want[k])
				}
			}
		}
		if !bytes.Equal(withoutTimes(restored), withoutTimes(h)) {
			t.Errorf("the history restored from version %d differs", old[0])
		}
	}
}

// TestInstanceKeys looks all keys up in their table.
func TestInstanceKeys(t *testing.T) {
	for _, key := range instanceKeys {
		if instanceKeyTable[key%64] != key {
			t.Errorf("key %d has the place of another in the table", key)
		}
	}
}

// TestInstancesBounded merges a million instances: the memory is bounded, and further values of a service count as one.
// Values without calls make room.
func TestInstancesBounded(t *testing.T) {
	table := &trace.Table{}
	h := NewSites(table)
	const perTally, tallies = 20_000, 50
	pod, services := instanceKeys[1], 100
	for n := range tallies {
		tally := NewTally()
		s := tally.slice(slice(n))
		s.requests = 1
		tr := &trace.Trace{}
		for i := range perTally {
			tr.Reset()
			tr.Spans = append(tr.Spans, trace.Span{Service: trace.Symbol(1 + i%services)})
			tr.Attrs = append(tr.Attrs, trace.Attr{Key: pod, Text: trace.Symbol(1 + n*perTally + i)})
			tally.places.read(tr)
			if number := tally.places.of(tr, 0); number > 0 {
				s.place(number).calls++
			}
		}
		if got := len(tally.places.list); got > maxPlaces+1 {
			t.Fatalf("%d places in a tally", got)
		}
		h.Merge(tally)
	}
	if got := len(h.instances.series); got != maxInstances {
		t.Errorf("%d values, want %d", got, maxInstances)
	}
	one := NewSites(table)
	tally := NewTally()
	for i := range 1000 {
		tr := &trace.Trace{Spans: []trace.Span{{Service: 1}}, Attrs: []trace.Attr{{Key: pod, Text: trace.Symbol(1 + i)}}}
		tally.places.read(tr)
		tally.slice(0).place(tally.places.of(tr, 0)).calls++
	}
	one.Merge(tally)
	rest := one.instances.series[instanceKey{service: 1, key: pod}].unpack(nil)
	if got := len(one.instances.series); got != maxValues+1 || rest.calls() != 1000-maxValues {
		t.Errorf("%d values, %d calls of the rest; want %d and %d", got, rest.calls(), maxValues+1, 1000-maxValues)
	}
	one.instances.age(func(trace.Symbol) *aging { return &aging{} }, 0)
	if len(one.instances.series)+len(one.instances.values) != 0 {
		t.Error("values without calls take room")
	}
}
