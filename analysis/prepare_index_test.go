package analysis

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestSpanIndex compares the index with a map, for IDs that spread and for such that were chosen to collide.
func TestSpanIndex(t *testing.T) {
	var x spanIndex
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 600).Draw(t, "spans")
		factor := rapid.SampledFrom([]uint64{1, 0xf1de83e19937733d, 1 << 32}).Draw(t, "factor")
		distinct := rapid.IntRange(1, 600).Draw(t, "distinct")
		spans := make([]trace.Span, n)
		want := map[trace.SpanID]int32{}
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
			t.Fatalf("copies %v, want %v", got, copies)
		}
		for i := range 700 {
			id := trace.SpanID(uint64(i) * factor)
			at, ok := want[id]
			if s := x.find(id); (s != nil) != ok || ok && s.span != at {
				t.Fatalf("find(%x) = %v, want %d %v", uint64(id), s, at, ok)
			}
		}
	})
}

// TestSpanIndexCollisions makes sure that chosen IDs do not slow the index down.
func TestSpanIndexCollisions(t *testing.T) {
	spans := make([]trace.Span, 4096)
	const inverse = 0xf1de83e19937733d // of the factor by which IDs are hashed
	for i := range spans {
		spans[i].ID = trace.SpanID(uint64(i+1) * inverse)
	}
	var x spanIndex
	x.fill(spans, nil)
	if len(x.sorted) != len(spans) {
		t.Fatalf("%d of %d IDs that hash alike are in the sorted list", len(x.sorted), len(spans))
	}
}
