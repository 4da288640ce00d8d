package assemble_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Traces return unchanged, in the order of time, whether or not they are written to disk.
func TestTimeline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		traces := rapid.SliceOfN(tracetest.Traces(tracetest.Everything), 0, 8).Draw(t, "traces")
		times := make([]int, len(traces))
		order := make([]int, len(traces))
		for i, x := range traces {
			times[i], order[i] = rapid.IntRange(0, 3).Draw(t, "time"), i
			x.ID[0] = byte(i)
		}
		slices.SortStableFunc(order, func(a, b int) int { return times[a] - times[b] })
		memory := rapid.SampledFrom([]int64{1, 1 << 20}).Draw(t, "memory")
		s := assemble.NewTimeline(assemble.Options{Memory: memory})
		for i, x := range traces {
			if err := s.Add(trace.Nanos(times[i]), x); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for got, err := range s.All() {
			if err != nil {
				t.Fatal(err)
			}
			want := traces[order[n]]
			if got.ID != want.ID || !slices.Equal(got.Spans, want.Spans) || !slices.Equal(got.Joins, want.Joins) {
				t.Fatalf("trace %d differs:\n%s", n, cmp.Diff(want, got))
			}
			if diff := cmp.Diff(len(want.Attrs), len(got.Attrs)); diff != "" ||
				len(want.Attrs) > 0 && !cmp.Equal(want.Attrs, got.Attrs) {
				t.Fatalf("attributes of trace %d: got %v, want %v", n, got.Attrs, want.Attrs)
			}
			n++
		}
		if n != len(traces) {
			t.Fatalf("got %d traces, want %d", n, len(traces))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
