package history_test

import (
	"bytes"
	"cmp"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestBrief compares the results of Brief and Steady at the end of each epoch of random histories: calls arrive late,
// sites appear, times are skipped and accepted, and other windows are compared in between. A history that is restored
// now and then gives the same results, and has the same content.
func TestBrief(t *testing.T) {
	scores := 0
	for seed := range uint64(3) {
		c := history.NewRandomCalls(seed)
		h, restored := compare.NewComparer(history.NewSites(c.Table)), compare.NewComparer(history.NewSites(c.Table))
		both := func(f func(h *history.Sites)) {
			f(h.Sites)
			f(restored.Sites)
		}
		first := history.Slice(180_000_000) + history.Slice(c.IntN(6))
		for end := first; end < first+1100; end++ {
			now := trace.Nanos(end) * trace.Nanos(history.SliceLength)
			if c.IntN(60) == 0 {
				c.Add()
			}
			tally := c.Tally(end)
			both(func(h *history.Sites) {
				h.Merge(tally)
				h.Age(now)
				c.KnowLong(h)
			})
			window := history.Interval{now.Add(-3 * time.Minute), now}
			if skipping := int(end-first) % 400; skipping > 300 && skipping < 330 {
				var services []trace.Symbol // all services, and later some
				if skipping > 315 {
					services = c.Services[:1+skipping/8%2]
				}
				begin := now.Add(-5*time.Minute - time.Duration(skipping-300)*history.SliceLength)
				both(func(h *history.Sites) {
					h.Skip(uint64(end-first)/400,
						history.Interval{begin, now}, services...)
				})
			}
			switch c.IntN(100) {
			case 0:
				both(func(h *history.Sites) {
					h.Accept(c.Services[0],
						history.Interval{now.Add(-4 * time.Minute), now})
				})
			case 1:
				other := history.Interval{now.Add(-20 * time.Minute), now.Add(-17 * time.Minute)}
				compareBrief(t, h.Compare(other, compare.Brief), h.Compare(other, compare.Steady), c.Table, 0)
			case 2:
				other := history.Interval{now.Add(-5 * time.Minute), now}
				compareBrief(t, h.Compare(other, compare.Brief), h.Compare(other, compare.Steady), c.Table, 0)
			case 3:
				saved := h.AppendBinary(nil)
				if !bytes.Equal(saved, restored.AppendBinary(nil)) {
					t.Fatalf("seed %d, epoch %d: the content depends on restarts", seed, end-first)
				}
				decoded, err := history.DecodeSites(saved, c.Table)
				if err != nil {
					t.Fatal(err)
				}
				restored = compare.NewComparer(decoded)
			}
			got, want := h.Compare(window, compare.Brief), h.Compare(window, compare.Steady)
			compareBrief(t, got, want, c.Table, 0)
			// its memory changes nothing, and neither do several goroutines
			fresh := compare.NewComparer(h.Sites)
			fresh.Spread = atOnce
			compareBrief(t, fresh.Compare(window, compare.Brief), got, c.Table, 0)
			// it adds up sites in another order
			compareBrief(t, restored.Compare(window, compare.Brief), got, c.Table, 1e-9)
			if t.Failed() {
				t.Fatalf("seed %d, epoch %d", seed, end-first)
			}
			for i := range want.Suspects {
				if want.Suspects[i].Score > 0 {
					scores++
				}
			}
		}
	}
	if scores < 1000 {
		t.Errorf("%d scores, want a thousand", scores)
	}
}

// TestSpread compares windows of some thousand sites with several goroutines. Their results are the same as without.
func TestSpread(t *testing.T) {
	c := history.NewRandomCalls(4)
	for range 2500 {
		c.Add()
	}
	h := history.NewSites(c.Table)
	one, several := compare.NewComparer(h), compare.NewComparer(h)
	several.Spread = atOnce
	first := history.Slice(180_000_000)
	for end := first; end < first+70; end++ {
		now := trace.Nanos(end) * trace.Nanos(history.SliceLength)
		h.Merge(c.Tally(end))
		h.Age(now)
		c.KnowLong(h)
		if end < first+60 {
			continue
		}
		window := history.Interval{now.Add(-3 * time.Minute), now}
		for _, judge := range []compare.Judge{compare.Brief, compare.Steady, compare.Plain} {
			if got, want := several.Compare(window, judge), one.Compare(window, judge); !reflect.DeepEqual(got, want) {
				t.Fatalf("epoch %d: got %+v, want %+v", end-first, got, want)
			}
		}
	}
	if h.Len() < 2000 {
		t.Errorf("%d sites", h.Len())
	}
}

// atOnce makes all calls at the same time.
func atOnce(n int, do func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { do(i) })
	}
	calls.Wait()
}

// compareBrief compares two comparisons with a relative tolerance. It ignores Soft and the order of suspects that are
// otherwise equal.
func compareBrief(t *testing.T, got, want compare.Comparison, table *trace.Table, tolerance float64) {
	t.Helper()
	for _, c := range []compare.Comparison{got, want} {
		for i := 1; i < len(c.Suspects); i++ {
			a, b := &c.Suspects[i-1], &c.Suspects[i]
			if x, y := a.Score+a.Shape, b.Score+b.Shape; y > x {
				t.Errorf("the order is wrong: %v before %v", x, y)
			}
		}
		slices.SortFunc(c.Suspects, func(a, b compare.Suspect) int {
			return cmp.Or(cmp.Compare(b.Score+b.Shape, a.Score+a.Shape), compare.ByName(table, a.Service, b.Service))
		})
		for i := range c.Suspects {
			c.Suspects[i].Soft = 0
		}
	}
	if reflect.DeepEqual(got, want) { // nearly always, in a twentieth of the time
		return
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateApprox(tolerance, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// BenchmarkCompare judges three minutes of 20,000 sites with calls at every slice, against two hours. Brief judges all
// of them again, as if each had a call since the last time.
func BenchmarkCompare(b *testing.B) {
	for name, judge := range map[string]compare.Judge{"steady": compare.Steady, "brief": compare.Brief} {
		b.Run(name, func(b *testing.B) {
			h, window := history.ManySites(history.Load{Every: 1, Shapes: 2, Calls: 10})
			c := compare.NewComparer(h)
			for b.Loop() {
				history.Forget(h)
				c.Compare(window, judge)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/history.MaxSites, "ns/site")
		})
	}
}

// BenchmarkSitesMemory measures the memory of 20,000 sites and 4,096 instances after one comparison: with calls of two
// shapes at every minute, at every slice, and with 200,000 calls a second of more shapes than there is room for.
func BenchmarkSitesMemory(b *testing.B) {
	for name, l := range map[string]history.Load{
		"minutes": {int(history.SlicesPerMinute), 2, 10}, "slices": {1, 2, 10}, "most": {1, 5, 100},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heapInUse()
				h, window := history.ManySites(l)
				c := compare.NewComparer(h)
				c.Compare(window, compare.Brief)
				used := float64(heapInUse() - before)
				b.ReportMetric(used/1e6, "MB")
				b.ReportMetric(used/history.MaxSites, "B/site")
				runtime.KeepAlive(c)
			}
		})
	}
}

// heapInUse returns the memory of all live objects.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
