package baselinediff

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Counts hold the same as cells, whatever the order in which calls are added, and in between packings.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packed counts
		var want cells
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			at := slice(rapid.IntRange(0, 40).Draw(t, "slice")) + slice(rapid.SampledFrom([]int{0, 1 << 29}).Draw(t, "epoch"))
			calls := rapid.SampledFrom([]uint32{1, 127, 128, 1 << 24}).Draw(t, "number")
			nanos := rapid.SampledFrom([]int64{0, 1, -1, -300, 1 << 40, math.MaxInt64 >> 8}).Draw(t, "nanos")
			packed.add(at, calls, nanos)
			want.add(at, calls, nanos)
			if rapid.IntRange(0, 9).Draw(t, "pack") == 0 {
				packed.pack(packed.unpack(nil))
			}
			if last := want[len(want)-1].slice; packed.last() != last {
				t.Fatalf("last slice %d, want %d", packed.last(), last)
			}
		}
		if got := packed.unpack(nil); !slices.Equal(got, want) || packed.empty() != (len(want) == 0) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	})
}
