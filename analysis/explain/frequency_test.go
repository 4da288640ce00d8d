package explain

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/observation"
)

// tenants makes requests of several tenants, one of which is slow; and of flavours that make no difference.
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
	sorted := slices.SortedFunc(slices.Values(requests), func(a, b *observation.Observation) int { return int(b.Duration - a.Duration) })
	n := len(sorted) / 10
	return sorted[:n], sorted[n:]
}

// TestFrequencies finds the slow tenant by how often it is among the slowest requests.
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
		if f.OfA != len(slow) || f.OfB != len(rest) || f.A < f.OfA/2 || f.Duration.Low < 0 || f.Duration.Mean < f.Duration.Rest {
			t.Errorf("seed %d: %+v", seed, *f)
		}
	}
	if found < 19 {
		t.Errorf("the slow tenant is found in %d of 20 samples", found)
	}
}

// TestFrequenciesOfNothing counts false findings: samples in which any value is significant at 5 %.
func TestFrequenciesOfNothing(t *testing.T) {
	named := 0
	for seed := range uint64(200) {
		w := tenants(seed, 128, "")
		slow, rest := slowest(w.requests)
		if all := Frequencies(slow, rest, w.table, Options{}); all[0].PValue <= 0.05 {
			named++
		}
	}
	if named > 10 {
		t.Errorf("a value is significant in %d of 200 samples without differences", named)
	}
}

func TestFrequenciesOfLittle(t *testing.T) {
	w := tenants(1, 128, "")
	for name, x := range map[string][2][]*observation.Observation{
		"nobody against all": {nil, w.requests}, "all against nobody": {w.requests, nil}, "few": {w.requests[:3], w.requests[3:8]},
	} {
		if got := Frequencies(x[0], x[1], w.table, Options{}); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFrequenciesCorrected checks Holm's correction: p-values never fall, and are at most 1.
func TestFrequenciesCorrected(t *testing.T) {
	all := []Frequency{{PValue: 0.01}, {PValue: 0.011}, {PValue: 0.4}, {PValue: 0.9}}
	correctHolm(all)
	for i, want := range []float64{0.04, 0.04, 0.8, 0.9} {
		if math.Abs(all[i].PValue-want) > 1e-12 {
			t.Errorf("%d: %v, want %v", i, all[i].PValue, want)
		}
	}
}

// TestFrequenciesOfRareValues compares no value that fewer than three requests have.
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
		t.Errorf("%q, want %q", got, want) // rare values, too few even together, count as the most frequent one
	}
}
