package critpath

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestSpanIndex compares the index with a map, for ordinary and for colliding IDs.
func TestSpanIndex(t *testing.T) {
	var x spanIndex
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 600).Draw(t, "spans")
		factor := rapid.SampledFrom([]uint64{1, 0xf1de83e19937733d, 1 << 32}).Draw(t, "factor")
		distinct := rapid.IntRange(1, 600).Draw(t, "distinct")
		spans := make([]trace.Span, n)
		want := make(map[trace.SpanID]int32)
		var copies []int32
		for i := range spans {
			spans[i].ID = trace.SpanID(uint64(1+i*7%distinct) * factor)
			if _, ok := want[spans[i].ID]; ok {
				copies = append(copies, int32(i))
			} else {
				want[spans[i].ID] = int32(i)
			}
		}
		got := x.fill(spans, nil)
		slices.Sort(got)
		if !slices.Equal(got, copies) {
			t.Fatalf("fill() = %v, want %v", got, copies)
		}
		for i := range 700 {
			id := trace.SpanID(uint64(i) * factor)
			at, ok := want[id]
			if got := x.find(id); (got >= 0) != ok || ok && got != at {
				t.Fatalf("find(%x) = %v, want %d, %t", uint64(id), got, at, ok)
			}
		}
	})
}

// Colliding IDs do not slow the index down: it uses another hash factor, or a sorted list.
func TestSpanIndexCollisions(t *testing.T) {
	spans := make([]trace.Span, 4096)
	for i := range spans {
		spans[i].ID = trace.SpanID(uint64(i+1) * 0xf1de83e19937733d) // the inverse of the first factor
	}
	var x spanIndex
	if x.fill(spans, nil); x.factor == factors[0] || len(x.sorted) > 0 {
		t.Errorf("factor %x, sorted list of %d, want another factor and no list", x.factor, len(x.sorted))
	}
	for i, got := range x.fillSorted(spans, nil) {
		t.Errorf("copy %d is span %d, want none", i, got)
	}
	for i := range spans {
		if got := x.find(spans[i].ID); got != int32(i) {
			t.Fatalf("find(%x) = %v in the sorted list, want %d", uint64(spans[i].ID), got, i)
		}
	}
	if got := x.find(1); got != -1 {
		t.Errorf("find(1) = %d, want -1", got)
	}
	twice := append(spans[:100:100], spans[50:60]...)
	if copies := x.fillSorted(twice, nil); len(copies) != 10 || slices.Min(copies) != 100 {
		t.Errorf("fillSorted() = %v, want 100..109", copies)
	}
}
