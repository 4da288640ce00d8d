package history

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Counts hold the same as cells, whatever the order of the calls, and between packings.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packed Counts
		var want Cells
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			at := Slice(rapid.IntRange(0, 40).Draw(t, "slice")) +
				Slice(rapid.SampledFrom([]int{0, 1 << 29}).Draw(t, "epoch"))
			calls := rapid.SampledFrom([]uint32{1, 127, 128, 1 << 24}).Draw(t, "number")
			nanos := timeUnit * rapid.SampledFrom([]int64{0, 1, -1, -300, 1 << 40, math.MaxInt64 >> 18}).Draw(t,
				"units")
			idle := timeUnit * rapid.SampledFrom([]int64{0, 0, 1, 1 << 20}).Draw(t, "beside")
			logs := rapid.SampledFrom([]int64{0, 1, 127, 128, 1 << 40}).Draw(t, "logs")
			packed.add(Cell{at, calls, nanos, idle, logs})
			want.Add(Cell{at, calls, nanos, idle, logs})
			if rapid.IntRange(0, 9).Draw(t, "pack") == 0 {
				packed.pack(packed.Unpack(nil))
			}
			if last := want[len(want)-1].Slice; packed.Last() != last {
				t.Fatalf("last slice %d, want %d", packed.Last(), last)
			}
		}
		if got := packed.Unpack(nil); !slices.Equal(got, want) || packed.empty() != (len(want) == 0) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	})
}

// Counts age like cells, and know the calls before a window, while time passes and calls arrive, some of them late.
func TestCountsAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packed Counts
		var want Cells
		now, folded, oldest := Slice(1000), Slice(1000-20).minute(), Slice(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now += Slice(rapid.IntRange(0, 14).Draw(t, "passed"))
			case 1:
				a := aging{keep: Range{oldest, now + Ahead}, fold: Range{folded, max(folded, (now - 20).minute())}}
				if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
					a.forgotten = func(s Slice) bool { return s/6%5 == 0 }
				}
				before := slices.Clone(want)
				want = a.apply(want)
				folded = a.fold.To
				changed := packed.age(&a)
				same := func(x, y Cell) bool {
					return x.Calls == y.Calls && x.Nanos == y.Nanos && x.Beside == y.Beside && x.logs == y.logs
				}
				if !changed && !slices.EqualFunc(before, want, same) {
					t.Fatalf("from %v to %v without a change", before, want)
				}
			case 2:
				oldest = max(oldest, now-Slice(rapid.IntRange(0, 100).Draw(t, "age")))
			case 3:
				at := now - Slice(rapid.IntRange(-7, 30).Draw(t, "before"))
				packed.seek(at)
				if past := want.Within(Range{0, at}); packed.earlier != past.Calls() {
					t.Fatalf("%d calls before %d, want %d: %v", packed.earlier, at, past.Calls(), want)
				}
				rest := decodeCells(nil, packed.bytes[packed.window.offset:], packed.window.before)
				if !slices.Equal(rest, want.Within(Range{at, maxSlice})) {
					t.Fatalf("%v from %d on, want %v", rest, at, want)
				}
			default:
				at := now - Slice(rapid.SampledFrom([]int{-7, 0, 0, 1, 1, 2, 5, 15, 25, 60}).Draw(t, "late"))
				if at < folded {
					at = at.minute()
				}
				calls, nanos := uint32(rapid.IntRange(1, 200).Draw(t, "calls")),
					timeUnit*int64(rapid.IntRange(0, 1<<30).Draw(t, "units"))
				idle := timeUnit * int64(rapid.IntRange(0, 3).Draw(t, "beside"))
				x := Cell{at, calls, nanos, idle, int64(rapid.IntRange(0, 1<<20).Draw(t, "logs"))}
				packed.add(x)
				want.Add(x)
			}
			if got := packed.Unpack(nil); !slices.Equal(got, want) || packed.Calls != want.Calls() {
				t.Fatalf("%d calls: %v\nwant %v", packed.Calls, got, want)
			}
			if len(want) > 0 && packed.Last() != want[len(want)-1].Slice || len(want) == 0 && packed.Last() != -1 {
				t.Fatalf("last slice %d of %v", packed.Last(), want)
			}
		}
	})
}
