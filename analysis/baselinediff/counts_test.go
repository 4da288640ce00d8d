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
			nanos := timeUnit * rapid.SampledFrom([]int64{0, 1, -1, -300, 1 << 40, math.MaxInt64 >> 18}).Draw(t, "units")
			logs := rapid.SampledFrom([]int64{0, 1, 127, 128, 1 << 40}).Draw(t, "logs")
			packed.add(cell{at, calls, nanos, logs})
			want.add(cell{at, calls, nanos, logs})
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

// Counts age as cells do, and know the calls before a window, while time passes and calls arrive, some of them late.
func TestCountsAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packed counts
		var want cells
		now, folded, oldest := slice(1000), slice(1000-20).minute(), slice(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now += slice(rapid.IntRange(0, 14).Draw(t, "passed"))
			case 1:
				a := aging{keep: sliceRange{oldest, now + ahead}, fold: sliceRange{folded, max(folded, (now - 20).minute())}}
				if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
					a.forgotten = func(s slice) bool { return s/6%5 == 0 }
				}
				before := slices.Clone(want)
				want = a.apply(want)
				folded = a.fold.to
				changed := packed.age(&a)
				same := func(x, y cell) bool { return x.calls == y.calls && x.nanos == y.nanos && x.logs == y.logs }
				if !changed && !slices.EqualFunc(before, want, same) {
					t.Fatalf("from %v to %v without a change", before, want)
				}
			case 2:
				oldest = max(oldest, now-slice(rapid.IntRange(0, 100).Draw(t, "age")))
			case 3:
				at := now - slice(rapid.IntRange(-7, 30).Draw(t, "before"))
				packed.seek(at)
				if past := want.within(sliceRange{0, at}); packed.earlier != past.calls() {
					t.Fatalf("%d calls before %d, want %d: %v", packed.earlier, at, past.calls(), want)
				}
				rest := decodeCells(nil, packed.bytes[packed.window.offset:], packed.window.before)
				if !slices.Equal(rest, want.within(sliceRange{at, maxSlice})) {
					t.Fatalf("%v from %d on, want %v", rest, at, want)
				}
			default:
				at := now - slice(rapid.SampledFrom([]int{-7, 0, 0, 1, 1, 2, 5, 15, 25, 60}).Draw(t, "late"))
				if at < folded {
					at = at.minute()
				}
				calls, nanos := uint32(rapid.IntRange(1, 200).Draw(t, "calls")), timeUnit*int64(rapid.IntRange(0, 1<<30).Draw(t, "units"))
				x := cell{at, calls, nanos, int64(rapid.IntRange(0, 1<<20).Draw(t, "logs"))}
				packed.add(x)
				want.add(x)
			}
			if got := packed.unpack(nil); !slices.Equal(got, want) || packed.calls != want.calls() {
				t.Fatalf("%d calls: %v\nwant %v", packed.calls, got, want)
			}
			if len(want) > 0 && packed.last() != want[len(want)-1].slice || len(want) == 0 && packed.last() != -1 {
				t.Fatalf("last slice %d of %v", packed.last(), want)
			}
		}
	})
}
