package group_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// A group still has exactly the requests of a period until the first epoch of the next period ends. This holds for
// epochs of any length, after pauses and after restarts.
func TestPeriodsHaveTheirRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGrouper(group.Options{})
		now := trace.Nanos(1e18) + trace.Nanos(rapid.Int64Range(0, 1e12).Draw(t, "begin"))
		g.EndEpoch(now)
		length := time.Duration(rapid.Int64Range(1e9, 5e10).Draw(t, "epoch"))
		var want group.Past // of the period of the last epoch
		for range rapid.IntRange(1, 80).Draw(t, "epochs") {
			next := now.Add(length)
			if rapid.IntRange(0, 9).Draw(t, "pause") == 0 {
				next = next.Add(time.Duration(rapid.Int64Range(1, 4e13).Draw(t, "pause for")))
			}
			if last := group.PeriodOf(now); group.PeriodOf(next) > last {
				var got group.Past
				for _, grp := range g.Groups() {
					if grp.InPeriod(last, &got); grp.Level == group.LevelGroup && !cmp.Equal(got, want) {
						t.Fatalf("the period from %d on has %d requests, want %d", last, got.Total.N, want.Total.N)
					}
				}
				want = group.Past{}
			}
			for range rapid.IntRange(0, 3).Draw(t, "requests") {
				d := rapid.Int64Range(1, 1e10).Draw(t, "duration")
				one := group.Past{Failed: uint64(rapid.IntRange(0, 1).Draw(t, "failed"))}
				o := requests.Plain(1, 1, now, time.Duration(d))
				o.Failed = one.Failed > 0
				g.Observe(o)
				one.Total.Add(o.Duration.Nanoseconds())
				want.Merge(one)
			}
			now = next
			for _, grp := range g.Groups() {
				if grp.Level == group.LevelGroup { // the limit of the bin of a sketch, not the duration
					for limit, n := range grp.Open.Latency.Bins() {
						want.Latency.Add(min(limit, grp.Open.Latency.Longest()), n)
					}
				}
			}
			g.EndEpoch(now)
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				g = restartedGroups(t, g, group.Options{})
			}
		}
	})
}

// A day is decoded as it was encoded: counts exactly, times within 0.05 %.
func TestDayIsRestored(t *testing.T) {
	day := trace.Nanos(20_000 * group.Day)
	rapid.Check(t, func(t *rapid.T) {
		var all []group.Numbers
		for i := range int64(group.Day / group.LongPeriod) {
			var p group.Past
			for range rapid.IntRange(0, 4).Draw(t, "requests") {
				d := rapid.Int64Range(0, 1e13).Draw(t, "duration")
				p.Total.Add(d)
				p.Latency.Add(d, 1)
			}
			if p.Total.N > 0 {
				p.Failed = rapid.Uint64Range(0, p.Total.N).Draw(t, "failed")
				from := day.Add(time.Duration(i) * group.LongPeriod)
				all = append(all, p.Numbers(from, from.Add(group.LongPeriod)))
			}
		}
		got, err := group.DecodeDay(group.AppendDay(nil, all), day)
		if err != nil {
			t.Fatal(err)
		}
		near := cmp.Comparer(func(x, y float64) bool {
			return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= 5e-4*max(x, y)+1e-3
		})
		if diff := cmp.Diff(all, got, near); diff != "" {
			t.Error(diff)
		}
		again, err := group.DecodeDay(group.AppendDay(nil, got), day)
		if err != nil || !cmp.Equal(got, again, near) {
			t.Errorf("encoded again, it differs: %v", err)
		}
	})
}

// The quantiles of a histogram lie within their bin, and never above the longest duration.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(4, 1e12), 1, 50).Draw(t, "durations")
		var l group.Latencies
		for _, d := range all {
			l.Add(d, 1)
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			want := float64(all[max(1, int(math.Ceil(q*float64(len(all)))))-1])
			if got := l.Quantile(q); got < want/1.25 || got > want*1.25 || got > float64(all[len(all)-1]) {
				t.Errorf("quantile %v of %v is %v, want %v", q, all, got, want)
			}
		}
	})
	if got := new(group.Latencies).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func FuzzDecodeDay(f *testing.F) {
	day := trace.Nanos(20_000 * group.Day)
	f.Add(group.AppendDay(nil, []group.Numbers{{
		From:  day,
		To:    day.Add(group.LongPeriod),
		Count: 3,
		Mean:  1,
		CoV:   math.NaN(),
		P50:   1,
		P99:   2,
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := group.DecodeDay(b, day)
		if (err != nil) != (all == nil && !slices.Equal(b, group.AppendDay(nil, nil))) ||
			err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%v with error %v", all, err)
		}
	})
}
