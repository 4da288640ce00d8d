package stats_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/codec"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func decodeInt(b []byte) (int64, []byte, error) {
	v, n := binary.Varint(b)
	if n <= 0 || len(binary.AppendVarint(nil, v)) != n {
		return 0, nil, codec.ErrCorrupt
	}
	return v, b[n:], nil
}

// valueOf returns the value of key.
func valueOf(key uint64) int64 { return int64(key%1000) + 1 }

func encodedSample(s stats.Sample[int64]) string { return string(s.AppendBinary(nil, appendInt)) }

func TestSampleMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.Uint64Range(0, 200)).Draw(t, "keys")
		k := rapid.IntRange(1, 20).Draw(t, "k")
		whole := stats.NewSample[int64](k)
		for _, key := range keys {
			whole.Add(key, valueOf(key))
		}
		parts := []stats.Sample[int64]{stats.NewSample[int64](k), stats.NewSample[int64](k), stats.NewSample[int64](k)}
		for _, key := range slices.Backward(keys) {
			for range rapid.IntRange(1, 2).Draw(t, "times") {
				parts[rapid.IntRange(0, 2).Draw(t, "part")].Add(key, valueOf(key))
			}
		}
		for _, p := range parts[1:] {
			parts[0].Merge(p)
		}
		if encodedSample(parts[0]) != encodedSample(whole) {
			t.Fatalf("merged %+v\nwant   %+v", parts[0], whole)
		}
		slices.Sort(keys)
		want := slices.Compact(keys)
		want = want[:min(k, len(want))]
		var got []uint64
		for key, v := range whole.All() {
			got = append(got, key)
			if v != valueOf(key) {
				t.Fatalf("key %d has value %d, want %d", key, v, valueOf(key))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("keys %v, want %v", got, want)
		}
		decoded, rest, err := stats.DecodeSample(whole.AppendBinary(nil, appendInt), decodeInt)
		if err != nil || len(rest) > 0 || encodedSample(decoded) != encodedSample(whole) {
			t.Fatalf("decoded %+v, rest %v, %v, want %+v", decoded, rest, err, whole)
		}
	})
}

// Merges and resizes keep exactly the values below the threshold.
func TestSampleUniform(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := map[uint64]bool{}
		var s stats.Sample[int64]
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			o := stats.NewSample[int64](rapid.IntRange(1, 30).Draw(t, "k"))
			for _, key := range rapid.SliceOf(rapid.Uint64Range(1, 300)).Draw(t, "keys") {
				o.Add(key, valueOf(key))
				all[key] = true
			}
			s.Merge(o)
			s.Resize(rapid.IntRange(1, 30).Draw(t, "resize"))
		}
		if s.Len() > s.Cap() {
			t.Fatalf("%d values, want at most %d", s.Len(), s.Cap())
		}
		below := 0
		for key := range all {
			if s.Rate() == 1 || float64(key) < s.Rate()*math.Ldexp(1, 64) {
				below++
			}
		}
		if below != s.Len() {
			t.Fatalf("%d values, want the %d below the threshold", s.Len(), below)
		}
	})
}

func TestSampleAccepts(t *testing.T) {
	s := stats.NewSample[int64](2)
	for _, step := range []struct {
		key  uint64
		want bool
	}{{50, true}, {30, true}, {50, false}, {70, false}, {40, true}, {50, false}, {10, true}} {
		accepts := s.Accepts(step.key)
		if added := s.Add(step.key, 1); accepts != step.want || added != step.want {
			t.Errorf("Accepts(%d) = %t, Add() = %t, want %t", step.key, accepts, added, step.want)
		}
	}
	var zero stats.Sample[int64]
	if zero.Add(1, 1) || zero.Rate() != 1 {
		t.Error("the zero sample kept a value, or has a rate below 1")
	}
}

func TestRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		edges := rapid.SliceOfDistinct(rapid.Int32Range(0, math.MaxInt32), rapid.ID).Draw(t, "edges")
		slices.Sort(edges)
		times := rapid.SliceOfN(nanos(), len(edges), len(edges)).Draw(t, "times")
		row := stats.NewRow(nanos().Draw(t, "total"), edges, times)
		if from, to := row.Arrival(); from != 0 || to != 0 {
			t.Fatalf("arrival of a row without stamp is [%d, %d), want 0, 0", from, to)
		}
		if rapid.Bool().Draw(t, "stamped") {
			ns := rapid.Int64Range(0, math.MaxInt64-int64(stats.Tick)).Draw(t, "arrival")
			row.Stamp(ns)
			if from, to := row.Arrival(); from > ns || to <= ns || to-from != int64(stats.Tick) {
				t.Fatalf("arrival [%d, %d), want the tick of %d", from, to, ns)
			}
		}
		var gotEdges []int32
		var gotTimes []int64
		for e, x := range row.Edges() {
			gotEdges, gotTimes = append(gotEdges, e), append(gotTimes, x)
		}
		if !slices.Equal(gotEdges, edges) || !slices.Equal(gotTimes, times) {
			t.Fatalf("edges %v, times %v, want %v, %v", gotEdges, gotTimes, edges, times)
		}
		decoded, rest, err := stats.DecodeRow(row.AppendBinary(nil))
		if err != nil || len(rest) > 0 || !slices.Equal(decoded, row) {
			t.Fatalf("decoded %v, rest %v, %v, want %v", decoded, rest, err, row)
		}
	})
}

func TestNewTable(t *testing.T) {
	s := stats.NewSample[stats.Row](4)
	s.Add(2, stats.NewRow(100, []int32{1, 5, 9}, []int64{10, 20, 70}))
	s.Add(1, stats.NewRow(50, []int32{5}, []int64{50}))
	got := stats.NewTable(s.All(), []int32{0, 1, 9})
	want := stats.Table{Total: []float64{50, 100}, Cells: []float64{0, 0, 0, 0, 10, 70}, Edges: 3}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodeSample(f *testing.F) {
	s := stats.NewSample[stats.Row](3)
	for i := range uint64(5) {
		row := stats.NewRow(int64(i), []int32{0, int32(i) + 1}, []int64{5, 6})
		if i%2 == 0 {
			row.Stamp(1e18)
		}
		s.Add(i*7919%11, row)
	}
	f.Add(s.AppendBinary(nil, func(b []byte, r stats.Row) []byte { return r.AppendBinary(b) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := stats.DecodeSample(b, stats.DecodeRow)
		checkDecoded(t, b, rest, err, s.Len() == 0 && s.Cap() == 0, func(b []byte) []byte {
			return s.AppendBinary(b, func(b []byte, r stats.Row) []byte { return r.AppendBinary(b) })
		})
		stats.NewTable(s.All(), []int32{0, 1, 2})
		for _, r := range s.All() {
			if from, to := r.Arrival(); r.Total() < 0 || from < 0 || to < from {
				t.Fatalf("total %d, arrival [%d, %d), want valid times", r.Total(), from, to)
			}
		}
	})
}

func TestStratified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "n")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		whole, repeated := stats.NewStratified[int64](3), stats.NewStratified[int64](3)
		var times []int64
		for range n {
			key, ns := r.Uint64(), r.Int64N(1000)
			times = append(times, ns)
			whole.Add(key, ns, ns)
			repeated.Add(key, ns, ns)
			repeated.Add(key, ns, ns)
		}
		for name, pair := range map[string][2][]stats.Item[int64]{
			"slowest": {whole.Slowest(), repeated.Slowest()}, "fastest": {whole.Fastest(), repeated.Fastest()},
			"median": {whole.Median(), repeated.Median()},
		} {
			if diff := gocmp.Diff(pair[0], pair[1]); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}
		}
		slices.Sort(times)
		for i, item := range whole.Slowest() {
			if item.Value != times[n-1-i] {
				t.Fatalf("slowest %d is %d, want %d", i, item.Value, times[n-1-i])
			}
		}
		median := whole.Median()
		if !slices.IsSortedFunc(median, func(a, b stats.Item[int64]) int { return cmp.Compare(a.Value, b.Value) }) {
			t.Fatalf("median %v", median)
		}
	})
}

func BenchmarkSampleAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	s := stats.NewSample[int64](32)
	b.ReportAllocs()
	for b.Loop() {
		s.Add(r.Uint64(), 1)
	}
}

// BenchmarkSampleMemory prints the bytes of 32 rows of 20 edges.
func BenchmarkSampleMemory(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	edges, times := make([]int32, 20), make([]int64, 20)
	before := heap()
	samples := make([]stats.Sample[stats.Row], 100)
	for i := range samples {
		samples[i] = stats.NewSample[stats.Row](32)
		for range 32 {
			for e := range edges {
				edges[e], times[e] = int32(e), int64(1e7*math.Exp(r.NormFloat64()))
			}
			samples[i].Add(r.Uint64(), stats.NewRow(1e9, edges, times))
		}
	}
	used := heap() - before
	for b.Loop() {
	}
	b.ReportMetric(float64(used)/100, "heapB/sample")
	if samples[99].Len() != 32 {
		b.Fatal(fmt.Sprint(samples[99].Len()))
	}
}
