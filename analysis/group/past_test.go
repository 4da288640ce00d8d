package group_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// pastOf returns the Past of up to five requests with many edges.
func pastOf(t *rapid.T) (p group.Past) {
	for range rapid.IntRange(0, 5).Draw(t, "requests") {
		one := group.Past{Failed: uint64(rapid.IntRange(0, 1).Draw(t, "failed"))}
		for i := range rapid.IntRange(0, 50).Draw(t, "edges") {
			one.Edges = append(one.Edges, group.PastEdge{
				Edge:  trace.Edge(1 + i*rapid.IntRange(1, 3).Draw(t, "step")),
				Nanos: rapid.Uint64Range(0, 1<<50).Draw(t, "nanos"),
			})
			if n := len(one.Edges); n > 1 && one.Edges[n-1].Edge <= one.Edges[n-2].Edge {
				one.Edges = one.Edges[:n-1]
			}
		}
		for _, e := range one.Edges {
			one.Total.Add(int64(e.Nanos >> 6))
			one.Latency.Add(int64(e.Nanos>>6), 1)
		}
		p.Merge(one)
	}
	return p
}

// Merging gives the same Past in any order. It is bounded and keeps all durations and times.
func TestPastMerges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := pastOf(t), pastOf(t), pastOf(t)
		sum := func(parts ...group.Past) (p group.Past) {
			for _, x := range parts {
				p.Merge(x)
			}
			return p
		}
		left := sum(sum(a, b), c)
		if diff := cmp.Diff(left, sum(c, sum(b, a))); diff != "" {
			t.Error(diff)
		}
		var want, got uint64
		for _, p := range []group.Past{a, b, c} {
			for _, e := range p.Edges {
				want += e.Nanos
			}
		}
		for i, e := range left.Edges {
			got += e.Nanos
			if i > 0 && e.Edge <= left.Edges[i-1].Edge {
				t.Errorf("edges %v", left.Edges)
			}
		}
		var counted uint64
		for bin, n := range left.Latency.All() {
			if bin[0] >= bin[1] || n == 0 {
				t.Errorf("bin %v of %d", bin, n)
			}
			counted += n
		}
		if counted != left.Total.N {
			t.Errorf("%d durations in bins, %d in all", counted, left.Total.N)
		}
		if got != want || len(left.Edges) > 33 {
			t.Errorf("%d ns of %d in %d edges", got, want, len(left.Edges))
		}
	})
}

func TestPastSaturates(t *testing.T) {
	var p group.Past
	for range 3 {
		p.Merge(group.Past{Edges: []group.PastEdge{{Edge: 1, Nanos: math.MaxUint64 / 2}}})
	}
	if p.Edges[0].Nanos != math.MaxUint64 {
		t.Errorf("%d ns", p.Edges[0].Nanos)
	}
}

const epoch = 10 * time.Second

// The windows of a group hold the number, the durations, the failures and the edges of the requests of their period.
func TestWindowsOverTime(t *testing.T) {
	g := newGrouper(group.Options{})
	at := trace.Nanos(1e18)
	g.EndEpoch(at)
	var grp *group.Group
	for i := range 100 {
		d := time.Millisecond
		if i == 99 {
			d = 3 * time.Millisecond
		}
		for k := range 4 {
			o := requests.Plain(1, 1, at.Add(time.Duration(k)), d)
			o.Failed = k == 0
			_, grp = g.Observe(o)
		}
		at = at.Add(epoch)
		g.EndEpoch(at)
	}
	windows := grp.Windows()
	if n := len(windows); n < 5 || n > stats.MaxBuckets {
		t.Fatalf("%d windows", n)
	}
	var requests uint64
	for i, w := range windows {
		requests += w.Total.N
		if i > 0 && w.From != windows[i-1].To || w.Failed*4 != w.Total.N {
			t.Errorf("window %+v after %+v", w, windows[max(0, i-1)])
		}
		if len(w.Edges) != 1 || w.Edges[0].Edge != grp.Edges()[0] ||
			math.Abs(w.Mean(w.Edges[0])-w.Total.Mean()) > 1e-6 {
			t.Errorf("edges %+v of %v", w.Edges, w.Total.Mean())
		}
	}
	last := windows[len(windows)-1]
	if requests != 400 || last.To != at || last.To.Sub(last.From) != stats.Tick || last.Total.Mean() != 3e6 {
		t.Errorf("%d requests, the last window is %+v", requests, last)
	}
}

// Every duration lies in its bin. A bin is at most a quarter wider than its lower limit.
func TestLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(4, int64(39*time.Hour)).Draw(t, "ns")
		var l group.Latencies
		l.Add(ns, 3)
		for bin, n := range l.All() {
			if n != 3 || ns < bin[0] || ns >= bin[1] || 4*(bin[1]-bin[0]) > bin[0] {
				t.Errorf("%d in %v: %d", ns, bin, n)
			}
		}
	})
	var l group.Latencies
	for _, ns := range []int64{math.MinInt64, 0, 3, math.MaxInt64} {
		l.Add(ns, 1)
	}
	sum := uint64(0)
	for bin, n := range l.All() {
		if sum += n; bin[0] >= bin[1] {
			t.Errorf("bin %v", bin)
		}
	}
	if sum != 4 {
		t.Errorf("%d of 4 durations counted", sum)
	}
}

// restartedGroups returns the Grouper that continues g after a restart.
func restartedGroups(t rapid.TB, g *group.Grouper, options group.Options) *group.Grouper {
	t.Helper()
	b := g.AppendBinary(nil, func(b []byte, _ *group.Group) []byte { return b })
	again, rest, err := group.DecodeGrouper(b, g.Types, g.Table, options,
		func(b []byte, _ *group.Group) ([]byte, error) { return b, nil })
	if err != nil || len(rest) > 0 {
		t.Fatalf("decoding leaves %d bytes, error %v", len(rest), err)
	}
	return again
}

// If all requests are sampled, their time stamps put as many of them into each window of the history as it counts. This
// holds whatever start times they claim, however long epochs are, after a pause, a restart, or with a bound on edges.
func TestSampledTimeStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := group.Options{Edges: 5, Sample: 1000}
		g := newGrouper(options)
		now, all := trace.Nanos(rapid.Int64Range(0, 1e11).Draw(t, "begin")), 0
		for range rapid.IntRange(1, 12).Draw(t, "epochs") {
			for range rapid.IntRange(0, 4).Draw(t, "requests") {
				o := requests.Edged(rand.New(rand.NewPCG(1, uint64(all))), 1, 1)
				o.Start = now.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "start")))
				o.Trace[2] = byte(all)
				g.Observe(o)
				all++
			}
			now = now.Add(time.Duration(rapid.Int64Range(1, 3e10).Draw(t, "epoch")))
			g.EndEpoch(now)
			if rapid.Bool().Draw(t, "down") {
				now = now.Add(time.Hour)
			}
			if rapid.Bool().Draw(t, "restart") {
				g = restartedGroups(t, g, options)
			}
		}
		for _, grp := range g.Groups() {
			left := all
			for _, w := range grp.Windows() {
				n := 0
				for _, row := range grp.Current.Sample.All() {
					if from, to := row.Arrival(); from >= int64(w.From) && to <= int64(w.To) {
						n++
					}
				}
				if uint64(n) != w.Total.N {
					t.Fatalf("window of %d requests from %v to %v has %d time stamps", w.Total.N, w.From, w.To, n)
				}
				left -= n
			}
			if grp.Current.Sample.Len() != all || left < 0 {
				t.Fatalf("%d requests sampled, want %d; %d before the first window",
					grp.Current.Sample.Len(), all, left)
			}
		}
	})
}

// Sampled requests have no time stamp without epochs.
func TestSampledWithoutEpochs(t *testing.T) {
	g := newGrouper(group.Options{})
	g.Observe(requests.Plain(1, 1, 1e18, time.Millisecond))
	g.EndEpoch(0)
	for _, row := range g.Groups()[0].Current.Sample.All() {
		if from, to := row.Arrival(); from != 0 || to != 0 {
			t.Errorf("time stamp [%d, %d), want none", from, to)
		}
	}
}

// Requests since a recent instant are exact, and stay exact when later ones are added. Requests since an earlier
// instant are the requests of whole windows, and their time says which.
func TestRequestsSince(t *testing.T) {
	g, at := newGrouper(group.Options{}), trace.Nanos(0).Add(1000*time.Hour)
	begin := at
	var since group.Since
	for g.EndEpoch(at); at < begin.Add(5*time.Hour); g.EndEpoch(at) {
		for k := range 10 {
			o := requests.Plain(1, 1, at.Add(time.Duration(k)*time.Second), time.Millisecond)
			o.Failed = k == 0
			g.Observe(o)
		}
		at = at.Add(10 * time.Second)
		requestType := firstType(g)
		switch elapsed := at.Sub(begin); {
		case elapsed == time.Hour+6*time.Minute:
			g.EndEpoch(at)
			since = requestType.RequestsSince(begin.Add(time.Hour), at)
		case elapsed > time.Hour+6*time.Minute && elapsed%(7*time.Minute) < 10*time.Second:
			g.EndEpoch(at)
			since.Extend(requestType, at)
		}
	}
	requestType := firstType(g)
	for _, ago := range []time.Duration{10 * time.Second, 90 * time.Second, 6 * time.Minute} {
		if s := requestType.RequestsSince(at.Add(-ago), at); s.Until.Sub(s.From) != ago ||
			float64(s.Total.N) != ago.Seconds() || s.Failed != s.Total.N/10 {
			t.Errorf("%v ago: %d requests in %v, want one a second", ago, s.Total.N, s.Until.Sub(s.From))
		}
	}
	for _, ago := range []time.Duration{10 * time.Minute, time.Hour, 10 * time.Hour} {
		s := requestType.RequestsSince(at.Add(-ago), at)
		if span := s.Until.Sub(s.From); span > ago || span < min(ago, 2*time.Hour)/3 ||
			math.Abs(float64(s.Total.N)-span.Seconds()) > 0.01*span.Seconds() {
			t.Errorf("%v ago: %d requests in %v, want one a second", ago, s.Total.N, span)
		}
	}
	since.Extend(requestType, at)
	if want := 4 * time.Hour; since.From != begin.Add(time.Hour) || float64(since.Total.N) != want.Seconds() {
		t.Errorf("%d requests since an hour after the beginning, want %v", since.Total.N, want.Seconds())
	}
	state := since.AppendBinary(nil)
	decoded, err := group.DecodeSince(state)
	if err != nil || !bytes.Equal(decoded.AppendBinary(nil), state) || decoded.Total != since.Total ||
		decoded.Until != since.Until {
		t.Errorf("decoded %+v with error %v, want %+v", decoded, err, since)
	}
	for n := range state {
		if _, err := group.DecodeSince(state[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: error %v", n, len(state), err)
		}
	}
}

// firstType returns the first request type.
func firstType(g *group.Grouper) *group.Group {
	for grp := range g.Each() {
		return grp // a request type precedes its groups
	}
	return nil
}

// Healthy requests become part of the reference once they have been followed by healthy ones for six minutes, unless
// they turn out to belong to an incident. A restart changes nothing.
func TestReferenceIsProven(t *testing.T) {
	g, at := newGrouper(group.Options{}), trace.Nanos(0).Add(1000*time.Hour)
	tests := stats.DefaultTestOptions()
	play := func(minutes int, took time.Duration) {
		for range minutes {
			for k := range 6 {
				g.Observe(requests.Plain(1, 1, at.Add(time.Duration(k)*10*time.Second), took))
			}
			at = at.Add(time.Minute)
			g.EndEpoch(at)
			for grp := range g.Each() {
				if grp.Expectation.Learned {
					grp.UpdateReference(at, 1e9, 1e9, tests)
				}
			}
		}
		state := g.AppendBinary(nil, func(b []byte, _ *group.Group) []byte { return b })
		learned := make(map[analysis.Hash]group.Expectation)
		for grp := range g.Each() {
			learned[grp.ID] = grp.Expectation
		}
		restored, _, err := group.DecodeGrouper(state, g.Types, g.Table, group.Options{},
			func(b []byte, grp *group.Group) ([]byte, error) {
				if grp != nil {
					grp.Expectation = learned[grp.ID]
				}
				return b, nil
			})
		if err != nil ||
			!bytes.Equal(restored.AppendBinary(nil, func(b []byte, _ *group.Group) []byte { return b }), state) {
			t.Fatalf("decoding: error %v", err)
		}
		g = restored
	}
	play(10, time.Millisecond)
	for grp := range g.Each() {
		grp.Learn(tests)
	}
	mean := func() float64 { return firstType(g).Reference.Total.Mean() }
	play(20, time.Millisecond)
	if n := firstType(g).Reference.Total.N; n < 60+6*(20-12) || n > 60+6*(20-6) {
		t.Errorf("the reference has %d requests", n)
	}
	onset := at
	play(6, time.Second)
	if mean() != 1e6 {
		t.Errorf("six minutes after the onset the usual mean is %v", mean())
	}
	for grp := range g.Each() {
		grp.Unlearn(onset)
	}
	if play(30, time.Millisecond); mean() != 1e6 {
		t.Errorf("after the incident the usual mean is %v", mean())
	}
	play(6, time.Second)
	if play(20, time.Second); mean() < 50e6 {
		t.Errorf("without an incident the usual mean stays at %v", mean())
	}
}
