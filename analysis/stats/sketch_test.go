package stats_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

func TestSketchMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(nanos(), 1, 300).Draw(t, "xs")
		var whole stats.Sketch
		parts := make([]stats.Sketch, 3)
		for i := range xs {
			whole.Add(xs[i])
			parts[rapid.IntRange(0, 2).Draw(t, "part")].Add(xs[len(xs)-1-i])
		}
		var merged stats.Sketch
		for _, p := range parts {
			merged.Merge(p)
		}
		if !bytes.Equal(whole.AppendBinary(nil), merged.AppendBinary(nil)) {
			t.Fatal("encodings of the whole and of merged parts differ")
		}
		decoded, rest, err := stats.DecodeSketch(whole.AppendBinary(nil))
		if err != nil || len(rest) > 0 || decoded.Count() != uint64(len(xs)) {
			t.Fatalf("decoded %d durations, rest %v, %v, want %d", decoded.Count(), rest, err, len(xs))
		}
		slices.Sort(xs)
		for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 1} {
			want := float64(xs[int(q*float64(len(xs)-1))])
			got := merged.Quantile(q)
			if math.Abs(got-want) > 0.0101*want || got > float64(xs[len(xs)-1]) || got != whole.Quantile(q) ||
				got != decoded.Quantile(q) {
				t.Fatalf("Quantile(%v) = %v merged, %v whole, %v decoded, want %v",
					q, got, whole.Quantile(q), decoded.Quantile(q), want)
			}
		}
	})
}

func TestSketchLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(nanos(), 1, 200).Draw(t, "xs")
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		var s stats.Sketch
		for _, x := range xs {
			s.Add(x)
		}
		limit, above := s.UpperLimit(p)
		floor, below := s.LowerLimit(p)
		var wantAbove, wantBelow uint64
		for _, x := range xs {
			if x > limit {
				wantAbove++
			}
			if x < floor {
				wantBelow++
			}
		}
		if above != wantAbove || float64(above) > p*float64(len(xs)) {
			t.Fatalf("%d of %d durations above %d, want %d, at most a fraction %v", above, len(xs), limit, wantAbove, p)
		}
		if below != wantBelow || float64(below) > p*float64(len(xs)) {
			t.Fatalf("%d of %d durations below %d, want %d, at most a fraction %v", below, len(xs), floor, wantBelow, p)
		}
	})
}

// Outside counts every duration outside the limits, which may lie anywhere in a bin, and no duration that is inside
// them by more than a bin.
func TestSketchOutside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(nanos(), 1, 100).Draw(t, "xs")
		var s stats.Sketch
		for _, x := range xs {
			s.Add(x)
		}
		limit := func(label string) int64 {
			x := float64(rapid.SampledFrom(xs).Draw(t, label))
			return int64(x * rapid.Float64Range(0.97, 1.03).Draw(t, "factor of "+label))
		}
		low, high := limit("low"), limit("high")
		const width = 1.0203 // of a bin, 2 · 1 % / (1 - 1 %), rounded up
		var least, most uint64
		for _, x := range xs {
			if x < low || x > high {
				least++
			}
			if float64(x) < float64(low)*width || float64(x) > float64(high)/width {
				most++
			}
		}
		if n := s.Outside(low, high); n < least || n > most {
			t.Fatalf("Outside(%d, %d) of %v = %d, want %d to %d", low, high, xs, n, least, most)
		}
	})
}

func TestEmptySketch(t *testing.T) {
	var s stats.Sketch
	if !math.IsNaN(s.Quantile(0.5)) || s.Count() != 0 {
		t.Errorf("Quantile(0.5) = %v, Count() = %d, want NaN, 0", s.Quantile(0.5), s.Count())
	}
	s.Merge(stats.Sketch{})
	if limit, above := s.UpperLimit(0.1); limit != 0 || above != 0 {
		t.Errorf("UpperLimit(0.1) = %d, %d, want 0, 0", limit, above)
	}
}

func FuzzDecodeSketch(f *testing.F) {
	var s stats.Sketch
	f.Add(s.AppendBinary(nil))
	for i := range int64(100) {
		s.Add(i * i * 1000)
	}
	f.Add(s.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := stats.DecodeSketch(b)
		checkDecoded(t, b, rest, err, s.Count() == 0, s.AppendBinary)
		s.Quantile(0.5)
		s.UpperLimit(0.1)
		s.LowerLimit(0.1)
	})
}

func BenchmarkSketchAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	xs := make([]int64, 4096)
	for i := range xs {
		xs[i] = int64(1e7 * math.Exp(r.NormFloat64()))
	}
	b.ReportAllocs()
	var s stats.Sketch
	for i := 0; b.Loop(); i++ {
		s.Add(xs[i&4095])
	}
}

func BenchmarkSketchMerge(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var s, o stats.Sketch
	for range 1000 {
		o.Add(int64(1e7 * math.Exp(r.NormFloat64())))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Merge(o)
	}
}

// BenchmarkSketchMemory prints the bytes per sketch of log-normal durations, for a few sizes.
func BenchmarkSketchMemory(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 100000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			sketches := make([]stats.Sketch, 100)
			before := heap()
			for i := range sketches {
				for range n {
					sketches[i].Add(int64(1e7 * math.Exp(r.NormFloat64())))
				}
			}
			used := heap() - before
			for b.Loop() {
			}
			b.ReportMetric(float64(used)/100, "heapB/sketch")
			b.ReportMetric(float64(len(sketches[0].AppendBinary(nil))), "encodedB")
			runtime.KeepAlive(sketches)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The CoV of a sketch equals the CoV of its durations within the width of its bins, and its interval has about its
// nominal coverage.
func TestSketchCoV(t *testing.T) {
	truth := math.Sqrt(math.Expm1(0.25)) // of a log-normal distribution with σ = 0.5
	covered := 0
	const runs = 200
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s stats.Sketch
		var m stats.Moments
		for range 300 {
			ns := int64(1e6 * math.Exp(0.5*r.NormFloat64()))
			s.Add(ns)
			m.Add(ns)
		}
		i := s.CoV()
		near(t, "CoV", i.Value, m.CoV(), 0.01)
		if i.Low < truth && truth < i.High {
			covered++
		}
	}
	if covered < runs*85/100 {
		t.Errorf("%d of %d intervals cover the CoV, want about 95 %%", covered, runs)
	}
	var s stats.Sketch
	for _, n := range []int{0, 1, 2} {
		if i := s.CoV(); i.Valid() {
			t.Errorf("CoV() of %d durations = %+v, want no bounds", n, i)
		}
		s.Add(int64(1000 * (n + 1)))
	}
}
