package stats_test

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

func bigOf(a stats.Uint128) *big.Int {
	b := new(big.Int).Lsh(new(big.Int).SetUint64(a.Hi), 64)
	return b.Add(b, new(big.Int).SetUint64(a.Lo))
}

func nearest(t *rapid.T, b *big.Int) float64 {
	f, _ := new(big.Float).SetInt(b).Float64()
	return f
}

// word draws a uint64 of any magnitude, including the limits.
func word() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		u := rapid.Uint64().Draw(t, "u") >> rapid.IntRange(0, 64).Draw(t, "shift")
		return u - uint64(rapid.IntRange(0, 1).Draw(t, "minus"))
	})
}

func TestUint128(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := stats.Uint128{Hi: word().Draw(t, "hi"), Lo: word().Draw(t, "lo")}
		b := stats.Uint128{Hi: word().Draw(t, "hi2"), Lo: word().Draw(t, "lo2")}
		x, y := word().Draw(t, "x"), word().Draw(t, "y")
		mod := new(big.Int).Lsh(big.NewInt(1), 128)
		check := func(name string, got stats.Uint128, want *big.Int) {
			if bigOf(got).Cmp(want.Mod(want, mod)) != 0 {
				t.Fatalf("%s = %v, want %v", name, bigOf(got), want)
			}
		}
		bx, by := new(big.Int).SetUint64(x), new(big.Int).SetUint64(y)
		check("add", a.Add(b), new(big.Int).Add(bigOf(a), bigOf(b)))
		check("add64", a.Add64(x), new(big.Int).Add(bigOf(a), bx))
		check("product", a.AddProduct(x, y), new(big.Int).Add(bigOf(a), new(big.Int).Mul(bx, by)))
		if want := nearest(t, bigOf(a)); a.Float64() != want {
			t.Fatalf("float64(%v) = %v, want %v", bigOf(a), a.Float64(), want)
		}
	})
}

// nanos draws durations: ordinary ones, zeros, the largest, and nearly equal ones, where variances cancel.
func nanos() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(0, stats.MaxNanos-1),
		rapid.Int64Range(0, 3),
		rapid.Int64Range(stats.MaxNanos-3, stats.MaxNanos-1),
		rapid.Int64Range(1e6, 1e9),
	)
}

// exactSpread returns n·Σx·y − Σx·Σy.
func exactSpread(xs, ys []int64) *big.Int {
	var sx, sy, sxy big.Int
	for i := range xs {
		x, y := big.NewInt(xs[i]), big.NewInt(ys[i])
		sxy.Add(&sxy, new(big.Int).Mul(x, y))
		sx.Add(&sx, x)
		sy.Add(&sy, y)
	}
	sxy.Mul(&sxy, big.NewInt(int64(len(xs))))
	return sxy.Sub(&sxy, sx.Mul(&sx, &sy))
}

func TestMomentsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(nanos(), 2, 30).Draw(t, "xs")
		n := float64(len(xs))
		var m stats.Moments
		var sum float64
		for _, x := range xs {
			m.Add(x)
			sum += float64(x)
		}
		want := nearest(t, exactSpread(xs, xs)) / (n * (n - 1))
		if got := m.Variance(); got != want {
			t.Fatalf("Variance() = %v, want %v", got, want)
		}
		if got := m.Mean(); math.Abs(got-sum/n) > 1e-9*sum/n {
			t.Fatalf("Mean() = %v, want %v", got, sum/n)
		}
		if got := m.CoV(); sum > 0 && math.Abs(got-math.Sqrt(want)/(sum/n)) > 1e-9 {
			t.Fatalf("CoV() = %v, want %v", got, math.Sqrt(want)/(sum/n))
		}
	})
}

func TestMomentsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOf(nanos()).Draw(t, "xs")
		var whole stats.Moments
		parts := make([]stats.Moments, 3)
		for i, x := range xs {
			whole.Add(x)
			parts[rapid.IntRange(0, 2).Draw(t, "part")].Add(xs[len(xs)-1-i])
		}
		var merged stats.Moments
		for _, p := range parts {
			merged.Merge(p)
		}
		if !bytes.Equal(whole.AppendBinary(nil), merged.AppendBinary(nil)) {
			t.Fatalf("merged %+v, want %+v", merged, whole)
		}
		got, rest, err := stats.DecodeMoments(append(whole.AppendBinary(nil), 7))
		if err != nil || got != whole || !bytes.Equal(rest, []byte{7}) {
			t.Fatalf("decoded %+v, rest %v, %v, want %+v, [7]", got, rest, err, whole)
		}
	})
}

func TestMomentsWithoutVariance(t *testing.T) {
	var m stats.Moments
	if !math.IsNaN(m.Mean()) || !math.IsNaN(m.CoV()) || !math.IsNaN(m.Variance()) {
		t.Errorf("empty: mean %v, CoV %v, variance %v, want NaN", m.Mean(), m.CoV(), m.Variance())
	}
	m.Add(5)
	if m.Mean() != 5 || !math.IsNaN(m.CoV()) {
		t.Errorf("one: mean %v, CoV %v, want 5, NaN", m.Mean(), m.CoV())
	}
	m.Add(5)
	if m.CoV() != 0 {
		t.Errorf("two equal: CoV %v, want 0", m.CoV())
	}
	var zero stats.Moments
	zero.Add(0)
	zero.Add(0)
	if !math.IsNaN(zero.CoV()) {
		t.Errorf("zeros: CoV %v, want NaN", zero.CoV())
	}
}

func TestMomentsPanic(t *testing.T) {
	for _, ns := range []int64{-1, stats.MaxNanos} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Add(%d) did not panic", ns)
				}
			}()
			var m stats.Moments
			m.Add(ns)
		}()
	}
}

func TestPartitionShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const edges = 4
		var total stats.Moments
		parts := make([]stats.CoMoments, edges)
		var first, totals []int64
		for range rapid.IntRange(2, 40).Draw(t, "n") {
			xs := rapid.SliceOfN(rapid.Int64Range(0, (stats.MaxNanos-1)/edges), edges, edges).Draw(t, "xs")
			var sum int64
			for _, x := range xs {
				sum += x
			}
			for e, x := range xs {
				parts[e].Add(x, sum)
			}
			total.Add(sum)
			first, totals = append(first, xs[0]), append(totals, sum)
		}
		if total.Variance() == 0 {
			return
		}
		var shares, sizes, means float64
		for _, p := range parts {
			shares += p.Share(total)
			sizes += math.Abs(p.Share(total))
			means += p.MeanShare(total)
		}
		// The shares of parts that vary much and compensate each other are large, and so are their rounding errors.
		if math.Abs(shares-1) > max(1e-9, 1e-15*sizes) || math.Abs(means-1) > 1e-9 {
			t.Fatalf("shares of variance add up to %v, of the mean to %v, want 1", shares, means)
		}
		n := float64(len(first))
		if want := nearest(t, exactSpread(first, totals)) / (n * (n - 1)); parts[0].Cov(total) != want {
			t.Fatalf("Cov() = %v, want %v", parts[0].Cov(total), want)
		}
		got, _, err := stats.DecodeCoMoments(parts[0].AppendBinary(nil))
		if err != nil || got != parts[0] {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, parts[0])
		}
	})
}

func TestPairMoments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p stats.PairMoments
		var c stats.CoMoments
		var m stats.Moments
		for range rapid.IntRange(2, 20).Draw(t, "n") {
			xs := rapid.SliceOfN(nanos(), 3, 3).Draw(t, "xs")
			p.Add(xs)
			c.Add(xs[0], xs[2])
			m.Add(xs[2])
		}
		if p.Cov(0, 2) != c.Cov(m) || p.Cov(2, 0) != c.Cov(m) || p.Cov(2, 2) != m.Variance() {
			t.Fatalf("Cov(0, 2) = %v, Cov(2, 2) = %v, want %v, %v", p.Cov(0, 2), p.Cov(2, 2), c.Cov(m), m.Variance())
		}
		got, _, err := stats.DecodePairMoments(p.AppendBinary(nil))
		if diff := cmp.Diff(p, got); err != nil || diff != "" {
			t.Fatalf("DecodePairMoments(): %v %s", err, diff)
		}
	})
}

func TestBetweenShare(t *testing.T) {
	var a, b stats.Moments
	for _, x := range []int64{10, 12, 14} {
		a.Add(x)
		b.Add(x + 100)
	}
	// Sums of squares: within 2·8, total 16 + 6·50².
	if got, want := stats.BetweenShare([]stats.Moments{a, b}), 15000.0/15016; math.Abs(got-want) > 1e-12 {
		t.Errorf("BetweenShare() of distant groups = %v, want %v", got, want)
	}
	if got := stats.BetweenShare([]stats.Moments{a, a}); math.Abs(got) > 1e-12 {
		t.Errorf("BetweenShare() of equal groups = %v, want 0", got)
	}
	if got := stats.BetweenShare([]stats.Moments{{}}); !math.IsNaN(got) {
		t.Errorf("BetweenShare() of an empty group = %v, want NaN", got)
	}
}

func TestIntraClass(t *testing.T) {
	var a, b stats.Moments
	for range 5 {
		a.Add(100)
		b.Add(200)
	}
	if got := stats.IntraClass([]stats.Moments{a, b}); got != 1 {
		t.Errorf("IntraClass() of constant blocks = %v, want 1", got)
	}
	a.Add(200)
	b.Add(100)
	if got := stats.IntraClass([]stats.Moments{a, b}); !(got > 0.2 && got < 0.9) {
		t.Errorf("IntraClass() of mixed blocks = %v, want a number in (0.2, 0.9)", got)
	}
	if got := stats.IntraClass([]stats.Moments{a}); !math.IsNaN(got) {
		t.Errorf("IntraClass() of one block = %v, want NaN", got)
	}
}

func FuzzDecodeMoments(f *testing.F) {
	var m stats.Moments
	f.Add(m.AppendBinary(nil))
	m.Add(123456789)
	m.Add(stats.MaxNanos - 1)
	f.Add(m.AppendBinary(nil))
	var p stats.PairMoments
	p.Add([]int64{1, 2, 3})
	f.Add(p.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, rest, err := stats.DecodeMoments(b)
		checkDecoded(t, b, rest, err, m == stats.Moments{}, m.AppendBinary)
		_ = m.CoV()
		if v := m.Variance(); v < 0 {
			t.Errorf("Variance() = %v, want at least 0", v)
		}
		c, rest, err := stats.DecodeCoMoments(b)
		checkDecoded(t, b, rest, err, c == stats.CoMoments{}, c.AppendBinary)
		_ = c.Share(m)
		p, rest, err := stats.DecodePairMoments(b)
		checkDecoded(t, b, rest, err, p.Sums == nil && p.N == 0, p.AppendBinary)
		for i := range p.Sums {
			p.Cov(i, 0)
		}
	})
}

// checkDecoded checks the contract of decoders: an error wraps ErrCorrupt and comes with the zero value; a decoded
// value encodes to the same bytes.
func checkDecoded(t *testing.T, in, rest []byte, err error, zero bool, encode func([]byte) []byte) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, codec.ErrCorrupt) || !zero || rest != nil {
			t.Fatalf("error %v, zero value %t, rest %v, want ErrCorrupt, true, nil", err, zero, rest)
		}
		return
	}
	if again := append(encode(nil), rest...); !bytes.Equal(again, in) {
		t.Fatalf("decoded and encoded\n%x, want\n%x", again, in)
	}
}

func BenchmarkMomentsAdd(b *testing.B) {
	b.ReportAllocs()
	var m stats.Moments
	for b.Loop() {
		m.Add(123456789)
	}
}

func BenchmarkCoMomentsAdd(b *testing.B) {
	b.ReportAllocs()
	var c stats.CoMoments
	for b.Loop() {
		c.Add(123456, 123456789)
	}
}
