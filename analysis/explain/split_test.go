package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis"
)

// splitScenarios generate the requests of a group.
var splitScenarios = map[string]func(w *world){
	"cache": func(w *world) { // hits and misses
		hit := w.IntN(3) > 0
		db := 20 * w.heavy(0.1)
		if hit {
			db /= 5
		}
		w.text(w.request(5*w.heavy(0.1), db, 0), w.get, "cache.hit", fmt.Sprint(hit))
	},
	"steady": func(w *world) { // hits are as slow as misses
		w.text(w.request(5*w.heavy(0.1), 20*w.heavy(0.1), 0), w.get, "cache.hit", fmt.Sprint(w.IntN(3) > 0))
	},
	"tiers": func(w *world) { // three tiers and a few rare values
		tier := w.IntN(3)
		o := w.request(5, []float64{10, 50, 250}[tier]*w.heavy(0.1), 0)
		if w.IntN(20) == 0 {
			w.text(o, w.get, "tier", fmt.Sprint("x", w.Uint64()))
		} else {
			w.text(o, w.get, "tier", []string{"free", "team", "big"}[tier])
		}
	},
	"items": func(w *world) { // in proportion to a number
		n := w.IntN(50)
		w.number(w.request(5, 1+float64(n)*w.heavy(0.1), 0), w.get, "items", float64(n))
	},
	"retry": func(w *world) { // a number that only slow ones have
		if w.IntN(3) == 0 {
			w.number(w.request(5, 100*w.heavy(0.1), 0), w.db, "retry.delay", w.Float64())
		} else {
			w.request(5, 10*w.heavy(0.1), 0)
		}
	},
	"fallback": func(w *world) { // another context off the path
		if w.IntN(3) == 0 {
			w.request(5, 10*w.heavy(0.1), 30*w.heavy(0.1))
		} else {
			w.request(5, 10*w.heavy(0.1), 0)
		}
	},
}

// TestSplit runs the scripts of testdata/split. Each line of the input is a sample of the requests of a group,
//
//	SCENARIO [requests]
//
// and the output has the split after learning from it, with the number of requests in each bin.
func TestSplit(t *testing.T) {
	datadriven.Walk(t, "testdata/split", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := NewSplits()
			group := analysis.Hash{Hi: 1, Lo: 1}
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				name, n := "", 128
				fmt.Sscan(line, &name, &n)
				w := newWorld(uint64(b.Len()))
				for range n {
					splitScenarios[name](w)
				}
				changed := s.Learn(group, w.requests, w.table)
				fmt.Fprintf(&b, "%s: %s\n", name, formatSplit(s, group, w, changed))
			}
			return b.String()
		})
	})
}

func formatSplit(s *Splits, group analysis.Hash, w *world, changed bool) string {
	text := map[bool]string{true: "changed, "}[changed]
	r := s.rules[group]
	if r == nil {
		return text + "not split"
	}
	counts := make(map[uint64]int)
	for _, o := range w.requests {
		counts[r.bin(o)]++
	}
	text += fmt.Sprintf("by %s, η² %.2f", r.Variable, r.Effect)
	for i, bin := range r.Bins {
		text += fmt.Sprintf("\n  %d: %s (%d)", i, bin, counts[uint64(i)])
	}
	return text
}

// The order of requests does not matter.
func TestSplitDeterminism(t *testing.T) {
	for name, request := range splitScenarios {
		w := newWorld(1)
		for range 200 {
			request(w)
		}
		shuffled := slices.Clone(w.requests)
		rng := rand.New(rand.NewPCG(3, 4))
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		a, b := NewSplits(), NewSplits()
		group := analysis.Hash{Hi: 1, Lo: 2}
		a.Learn(group, w.requests, w.table)
		b.Learn(group, shuffled, w.table)
		for _, o := range w.requests {
			if a.Bin(o, group) != b.Bin(o, group) {
				t.Fatalf("%s: a request is in bin %x or %x, depending on the order",
					name, a.Bin(o, group), b.Bin(o, group))
			}
		}
	}
}

func BenchmarkSplitBin(b *testing.B) {
	w := newWorld(1)
	for range 128 {
		splitScenarios["tiers"](w)
	}
	s := NewSplits()
	s.Learn(analysis.Hash{Hi: 1, Lo: 1}, w.requests, w.table)
	b.ReportAllocs()
	for b.Loop() {
		s.Bin(w.requests[0], analysis.Hash{Hi: 1, Lo: 1})
	}
}
