package stats_test

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Ranks depend only on the set of durations. Below lies between the fractions of durations that are shorter, and not
// longer, by more than a bin. Sum differs by half a bin at most.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(nanos(), 1, 300).Draw(t, "xs")
		var whole stats.Ranks
		parts := make([]stats.Ranks, 3)
		for i := range xs {
			whole.Add(xs[i])
			parts[rapid.IntRange(0, 2).Draw(t, "part")].Add(xs[len(xs)-1-i])
		}
		var merged stats.Ranks
		for i := range parts {
			merged.Merge(&parts[i])
		}
		packed := whole.AppendBinary(nil)
		if !bytes.Equal(packed, merged.AppendBinary(nil)) {
			t.Fatal("encodings of the whole and of merged parts differ")
		}
		decoded, rest, err := stats.DecodeRanks(packed)
		if err != nil || len(rest) > 0 || decoded.Count() != uint64(len(xs)) {
			t.Fatalf("decoded %d durations, rest %v, %v, want %d", decoded.Count(), rest, err, len(xs))
		}
		sum := 0.
		for _, y := range xs {
			sum += float64(y)
		}
		if got := decoded.Sum(); math.Abs(got-sum) > sum/32 {
			t.Fatalf("Sum() = %v, want %v", got, sum)
		}
		x := nanos().Draw(t, "x")
		var shorter, longer float64
		for _, y := range xs {
			if float64(y) < float64(x)*(1-1.0/16) {
				shorter++
			}
			if float64(y) > float64(x)*(1+1.0/16) {
				longer++
			}
		}
		n := float64(len(xs))
		if got := decoded.Below(x); got < shorter/n-1e-9 || got > 1-longer/n+1e-9 {
			t.Fatalf("Below(%d) = %v, want a fraction in [%v, %v]", x, got, shorter/n, 1-longer/n)
		}
	})
}

// Half of the durations equal to the argument count as shorter.
func TestRanksOfEqualDurations(t *testing.T) {
	var r stats.Ranks
	if got := r.Below(5); !math.IsNaN(got) {
		t.Errorf("Below(5) of the empty set = %v, want NaN", got)
	}
	for range 10 {
		r.Add(1000)
	}
	if got := []float64{r.Below(900), r.Below(1000), r.Below(1100)}; got[0] != 0 || got[1] != 0.5 || got[2] != 1 {
		t.Errorf("Below(900), Below(1000), Below(1100) = %v, want 0, 0.5, 1", got)
	}
}

func FuzzDecodeRanks(f *testing.F) {
	var r stats.Ranks
	f.Add(r.AppendBinary(nil))
	for i := range int64(100) {
		r.Add(i * i * 1000)
	}
	f.Add(r.AppendBinary(nil))
	r.Add(stats.MaxNanos - 1)
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := stats.DecodeRanks(b)
		checkDecoded(t, b, rest, err, r.Count() == 0, r.AppendBinary)
		r.Below(12345)
	})
}

// No quantile exceeds the longest duration, not even by the middle of its bin, and also not after a restart.
func TestRanksQuantileOfTheLongest(t *testing.T) {
	var r stats.Ranks
	for range 100 {
		r.Add(473_800_000)
	}
	r, _, err := stats.DecodeRanks(r.AppendBinary(nil))
	if got := r.Quantile(0.99); err != nil || got != 473_800_000 {
		t.Errorf("the 99th percentile is %v, %v, want the duration of all", got, err)
	}
}

// Quantiles are within half a bin.
func TestRanksQuantile(t *testing.T) {
	var all stats.Ranks
	if q := all.Quantile(0.5); !math.IsNaN(q) {
		t.Errorf("the median of nothing is %v", q)
	}
	for ns := int64(1); ns <= 1000; ns++ {
		all.Add(ns)
	}
	for q, want := range map[float64]float64{0: 1, 0.01: 10, 0.5: 500, 0.99: 990, 1: 1000} {
		if got := all.Quantile(q); math.Abs(got-want) > want*0.032 {
			t.Errorf("the %v quantile of 1 to 1000 is %v", q, got)
		}
	}
}
