package explain

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// tenants generates requests of several tenants and of several flavours. One tenant is slow, and flavours have no
// effect.
func tenants(seed uint64, n int, slow string) *world {
	w := newWorld(seed)
	for range n {
		tenant := fmt.Sprint("tenant", w.IntN(5))
		db := 20 * w.heavy(0.5)
		if tenant == slow {
			db *= 5
		}
		o := w.request(10*w.heavy(0.5), db, 0)
		w.text(o, w.get, "tenant", tenant)
		w.text(o, w.get, "flavour", fmt.Sprint(w.IntN(4)))
	}
	return w
}

// slowest divides requests into the slowest tenth and the others.
func slowest(requests []*observation.Observation) (slow, rest []*observation.Observation) {
	sorted := slices.SortedFunc(slices.Values(requests),
		func(a, b *observation.Observation) int { return int(b.Duration - a.Duration) })
	n := len(sorted) / 10
	return sorted[:n], sorted[n:]
}

// The slow tenant is more frequent among the slowest requests.
func TestFrequencies(t *testing.T) {
	found := 0
	for seed := range uint64(20) {
		w := tenants(seed, 128, "tenant3")
		slow, rest := slowest(w.requests)
		all := Frequencies(slow, rest, w.table, Options{})
		if len(all) != 9 {
			t.Fatalf("%d values compared, want 5 tenants and 4 flavours", len(all))
		}
		f := &all[0]
		if f.Key != "tenant" || f.Value != "tenant3" || f.Where != w.get || f.PValue > 0.01 {
			continue
		}
		found++
		if f.OfA != len(slow) || f.OfB != len(rest) || f.A < f.OfA/2 || f.Duration.Low < 0 ||
			f.Duration.Mean < f.Duration.Rest {
			t.Errorf("seed %d: %+v, want all requests and a slow tenant", seed, *f)
		}
	}
	if found < 19 {
		t.Errorf("found the slow tenant in %d of 20 samples, want at least 19", found)
	}
}

// If there are no differences, values are significant at 5 % in at most 5 % of samples.
func TestFrequenciesFalse(t *testing.T) {
	significant := 0
	for seed := range uint64(200) {
		w := tenants(seed, 128, "")
		slow, rest := slowest(w.requests)
		if all := Frequencies(slow, rest, w.table, Options{}); all[0].PValue <= 0.05 {
			significant++
		}
	}
	if significant > 10 {
		t.Errorf("values significant in %d of 200 samples without differences, want at most 10", significant)
	}
}

// Only fast requests call the cache, whose host has one name, or one of many load averages. Neither the host nor the
// load tells slow requests from fast ones.
func TestFrequenciesOfAbsentSpans(t *testing.T) {
	w := newWorld(1)
	for i := range 128 {
		fast := i%2 == 0
		o := w.request(10*w.heavy(0.1), either(fast, 10.0, 90), either(fast, 1.0, 0))
		if fast {
			w.text(o, w.cache, "host.name", "vm")
			w.text(o, w.cache, "zone", fmt.Sprint(w.IntN(2)))
			w.number(o, w.cache, "load", w.Float64())
		}
	}
	slow, rest := slowest(w.requests)
	if all := Frequencies(slow, rest, w.table, Options{}); len(all) > 0 {
		t.Errorf("%+v, want nothing", all)
	}
	for _, x := range Associate(w.problem(), w.requests, w.table, Options{}).Explanations {
		if x.Variable == "host.name" || x.Variable == "load" || x.Variable == "zone" {
			t.Errorf("the problem is explained by %s = %q", x.Variable, x.Value)
		}
	}
}

func TestFrequenciesOfFew(t *testing.T) {
	w := tenants(1, 128, "")
	for name, x := range map[string][2][]*observation.Observation{
		"none against all": {nil, w.requests}, "all against none": {w.requests, nil},
		"few": {w.requests[:3], w.requests[3:8]},
	} {
		if got := Frequencies(x[0], x[1], w.table, Options{}); got != nil {
			t.Errorf("%s: %v, want nil", name, got)
		}
	}
}

// Corrected p-values ascend.
func TestCorrectHolm(t *testing.T) {
	all := []Frequency{{PValue: 0.01}, {PValue: 0.011}, {PValue: 0.4}, {PValue: 0.9}}
	correctHolm(all)
	for i, want := range []float64{0.04, 0.04, 0.8, 0.9} {
		if math.Abs(all[i].PValue-want) > 1e-12 {
			t.Errorf("p-value %d is %v, want %v", i, all[i].PValue, want)
		}
	}
}

// Values of fewer than three requests are not compared. Together they are too few as well, so they count as the most
// frequent value.
func TestFrequenciesOfRareValues(t *testing.T) {
	w := newWorld(1)
	for i := range 40 {
		value := "usual"
		switch {
		case i%4 == 0:
			value = "frequent"
		case i%20 == 1:
			value = "rare"
		}
		w.text(w.request(10+w.Float64(), 0, 0), w.get, "kind", value)
	}
	var got []string
	for _, f := range Frequencies(w.requests[:20], w.requests[20:], w.table, Options{}) {
		got = append(got, fmt.Sprint(f.Value, " ", f.A, "/", f.OfA, " ", f.B, "/", f.OfB))
	}
	slices.Sort(got)
	if want := []string{"frequent 5/20 5/20", "usual 15/20 15/20"}; !slices.Equal(got, want) {
		t.Errorf("frequencies %q, want %q", got, want)
	}
}

// A value that every service reports counts once, and ports of callers not at all.
func TestFrequenciesOncePerValue(t *testing.T) {
	w := newWorld(1)
	for i := range 40 {
		value := "en"
		if i%2 == 0 {
			value = "de"
		}
		o := w.request(10, 20, 0)
		for _, at := range []trace.Context{w.get, w.db} {
			w.text(o, at, "language", value)
			w.text(o, at, "network.peer.port", fmt.Sprint(40000+i%4))
		}
	}
	all := Frequencies(w.requests[:20], w.requests[20:], w.table, Options{})
	if len(all) != 2 || all[0].Key != "language" || all[1].Key != "language" || all[0].Value == all[1].Value {
		t.Errorf("%+v, want two languages", all)
	}
	if few := Frequencies(w.requests[:4], w.requests[4:], w.table, Options{}); few != nil {
		t.Errorf("%d values of four requests compared, want none", len(few))
	}
}
