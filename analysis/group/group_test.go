package group_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// newGrouper returns a Grouper whose request types learned nothing, so that every entry operation is one type.
func newGrouper(o group.Options) *group.Grouper {
	types := &group.RequestTypes{}
	types.Freeze()
	return group.NewGrouper(types, &trace.Table{}, o)
}

// sums returns the statistics of w that depend neither on enabled tracepoints nor on the order of requests.
func sums(w *group.Window) any {
	rows := [][]byte{}
	for _, row := range w.Sample.All() {
		rows = append(rows, row)
	}
	return []any{
		w.Total, slices.Clone(w.Tally.Edges), w.Latency.AppendBinary(nil), w.Failed, w.First, w.Last,
		len(rows),
	}
}

// Enabling tracepoints changes neither the group of a request nor the statistics.
func TestSwitchingChangesNoGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		full := tracetest.Traces(tracetest.Shape{Attrs: true}).Draw(t, "trace")
		off := rapid.SliceOfN(rapid.Bool(), len(full.Spans), len(full.Spans)).Draw(t, "off")
		some := tracetest.Without(full, func(i int) bool { return off[i] })
		none := tracetest.Without(full, func(int) bool { return true })
		var want any
		for _, variant := range []*trace.Trace{none, some, full} {
			g := newGrouper(group.Options{})
			var got []any
			for _, o := range requests.Observe(variant) {
				requestType, grp := g.Observe(o)
				got = append(got, requestType.ID, grp.ID, requestType.Edges(), grp.Edges(), sums(&requestType.Open),
					sums(&grp.Open))
			}
			if want == nil {
				want = got
			} else if diff := cmp.Diff(want, any(got)); diff != "" {
				t.Fatalf("switched-on spans change statistics: %s", diff)
			}
		}
	})
}

// The table has the complete path of every edge and context of both levels, down to switched-on spans, from their first
// request on.
func TestPathsAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGrouper(group.Options{})
		for range 3 {
			for _, o := range requests.Observe(tracetest.Traces(tracetest.Shape{}).Draw(t, "trace")) {
				requestType, grp := g.Observe(o)
				for _, x := range []*group.Group{requestType, grp} {
					for _, e := range x.Edges() {
						if path := g.Table.Path(g.Table.EdgeInfo(e).Context); len(path) == 0 || path[0] != o.Entry {
							t.Errorf("level %v: path %v of an edge does not start at the entry", x.Level, path)
						}
					}
				}
				for _, c := range o.Contexts {
					path := g.Table.Path(c.Context)
					if len(path) == 0 || path[0] != o.Entry || path[len(path)-1] != c.Step() {
						t.Errorf("path %v of a context from %v to %v", path, o.Entry, c.Step())
					}
				}
			}
		}
	})
}

// Summaries don't depend on the order of requests, with any bound on edges.
func TestGroupsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := requests.Random(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 60).Draw(t, "requests"))
		options := group.Options{Edges: rapid.IntRange(1, 30).Draw(t, "edges"), Sample: 8}
		summaries := func(all []*observation.Observation) (s []group.Summary) {
			g := newGrouper(options)
			for _, o := range all {
				g.Observe(o)
			}
			g.EndEpoch(0)
			for _, grp := range g.Groups() {
				s = append(s, g.Summarize(grp))
			}
			return s
		}
		want := summaries(all)
		diff := cmp.Diff(want, summaries(rapid.Permutation(all).Draw(t, "order")), cmpopts.EquateNaNs())
		if diff != "" {
			t.Error(diff)
		}
	})
}

// Shares of mean and of variance, including Edge 0, add up to 1. Intervals contain their value.
func TestSharesAddUp(t *testing.T) {
	for _, edges := range []int{5, 100} {
		g := newGrouper(group.Options{Edges: edges})
		for _, o := range requests.Random(1, 500) {
			g.Observe(o)
		}
		g.EndEpoch(0)
		for _, grp := range g.Groups() {
			s := g.Summarize(grp)
			mean, variance := 0.0, 0.0
			for i, e := range s.Edges {
				mean += e.ShareMean
				variance += e.ShareVariance
				if in := e.ShareLow <= e.ShareVariance && e.ShareVariance <= e.ShareHigh; edges == 100 && !in {
					t.Errorf("share %v not in [%v, %v]", e.ShareVariance, e.ShareLow, e.ShareHigh)
				}
				if e.Edge == 0 && i != len(s.Edges)-1 {
					t.Error("Edge 0 is not last")
				}
			}
			if math.Abs(mean-1) > 1e-12 || math.Abs(variance-1) > 1e-9 {
				t.Errorf("%d edges: shares add up to %v of the mean and %v of the variance",
					len(s.Edges), mean, variance)
			}
			if !(s.CoVLow <= s.CoV && s.CoV <= s.CoVHigh) {
				t.Errorf("CoV %v not in [%v, %v]", s.CoV, s.CoVLow, s.CoVHigh)
			}
			if n := sumBins(s.Latency); n != s.Count {
				t.Errorf("the histogram holds %d durations, want %d", n, s.Count)
			}
			if between := s.Between; math.IsNaN(between) == (s.Level == group.LevelRequestType) || between < 0 ||
				between > 1 {
				t.Errorf("between %v at level %v", between, s.Level)
			}
		}
	}
}

func sumBins(bins []group.Bin) (n uint64) {
	for _, b := range bins {
		n += b.Count
	}
	return n
}

// At the bound, requests of new groups count only for their type, and requests of new types not at all. The end of an
// epoch evicts the groups that have not been seen for longest, and a type only after its groups.
func TestGroupsAreEvicted(t *testing.T) {
	g := newGrouper(group.Options{Groups: 4})
	at := trace.Nanos(time.Hour)
	epoch := func(requests ...*observation.Observation) {
		for _, o := range requests {
			g.Observe(o)
		}
		at = at.Add(10 * time.Second)
		g.EndEpoch(at)
	}
	old, kept := requests.Plain(1, 1, at, 10), requests.Plain(2, 1, at, 10)
	epoch(old, kept)
	requestType, grp := g.Observe(requests.Plain(2, 2, at, 10))
	if requestType == nil || grp != nil {
		t.Errorf("beyond the bound: type %v, group %v; want a type only", requestType, grp)
	}
	if requestType, _ := g.Observe(requests.Plain(3, 1, at, 10)); requestType != nil {
		t.Error("a type is added beyond the bound")
	}
	if g.Refused != 2 || g.Len() != 4 {
		t.Errorf("%d refused, %d groups and types; want 2 and 4", g.Refused, g.Len())
	}
	if n := g.Group(g.Types.Of(kept)).Open.Total.N; n != 1 {
		t.Errorf("the type counts %d requests of refused groups, want 1", n)
	}
	epoch(kept) // each epoch evicts one: first the group, then its type
	epoch(kept)
	if g.Evicted != 1 || g.Group(g.Types.Of(old)) == nil {
		t.Errorf("%d evicted, want 1: the group without its type", g.Evicted)
	}
	epoch(kept, requests.Plain(2, 2, at, 10))
	if g.Evicted != 2 || g.Group(g.Types.Of(old)) != nil || g.Len() != 3 {
		t.Errorf("%d evicted, %d groups and types; want 2 and 3", g.Evicted, g.Len())
	}
}

// Forget deletes the groups last seen before a time, and a type with the last of its groups.
func TestGroupsAreForgotten(t *testing.T) {
	g := newGrouper(group.Options{})
	at := trace.Nanos(time.Hour)
	gone, kept, rare := requests.Plain(1, 1, at, 10), requests.Plain(2, 1, at, 10), requests.Plain(2, 2, at, 10)
	for _, o := range []*observation.Observation{gone, kept, rare} {
		g.Observe(o)
	}
	g.EndEpoch(at.Add(10 * time.Second))
	g.Observe(kept)
	g.EndEpoch(at.Add(time.Hour))
	if g.Forget(at); g.Len() != 5 {
		t.Errorf("%d groups and types, want 5", g.Len())
	}
	g.Forget(at.Add(time.Minute))
	if g.Group(g.Types.Of(gone)) != nil || g.Group(g.Types.Of(kept)) == nil || g.Len() != 2 || g.Evicted != 0 {
		t.Errorf("%d groups and types, %d evicted; want 2 and none", g.Len(), g.Evicted)
	}
}

// A request whose clock is wrong by years affects neither the rate nor the history of its group.
func TestWrongClocks(t *testing.T) {
	g := newGrouper(group.Options{})
	at := trace.Nanos(1e18)
	g.EndEpoch(at)
	var grp *group.Group
	for range 6 {
		for i := range 20 {
			_, grp = g.Observe(requests.Plain(1, 1, at.Add(time.Duration(i)*time.Second/2), time.Millisecond))
		}
		g.Observe(requests.Plain(1, 1, 1, time.Millisecond))
		g.Observe(requests.Plain(1, 1, trace.MaxNanos, time.Millisecond))
		at = at.Add(10 * time.Second)
		g.EndEpoch(at)
	}
	if rate := grp.Current.Rate(); math.Abs(rate-2.2) > 0.1 {
		t.Errorf("rate %v, want 2.2", rate)
	}
	var past uint64
	for _, w := range grp.Windows() {
		past += w.Total.N
	}
	if past != 6*22 {
		t.Errorf("%d requests in the history", past)
	}
}

// Epochs without traffic change nothing.
func TestQuietEpochs(t *testing.T) {
	g := newGrouper(group.Options{})
	o := requests.Plain(1, 1, 1e18, time.Millisecond)
	g.Observe(o)
	g.EndEpoch(1e18 + 1e10)
	before := sums(&g.Group(g.Types.Of(o)).Current)
	for i := range trace.Nanos(5) {
		g.EndEpoch(1e18 + (i+2)*1e10)
	}
	if diff := cmp.Diff(before, sums(&g.Group(g.Types.Of(o)).Current)); diff != "" {
		t.Error(diff)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	g := newGrouper(group.Options{})
	all := requests.Random(1, 2000)
	for _, o := range all {
		g.Observe(o)
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() { g.Observe(all[i%len(all)]); i++ }); n > 0 {
		t.Errorf("%v allocations per request, want none", n)
	}
}

// If there are too many edges, samples hold the same ones whatever the order of requests, even if most epochs lack most
// of them.
func TestManyEdgesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var all []*observation.Observation
		for i := range 40 {
			o := requests.Plain(1, 1, trace.Nanos(i+1), 0)
			root, op := o.Contexts[0].Context, o.Contexts[0].Op
			o.Edges = nil
			for range 1 + r.IntN(4) {
				ctx := root.Child(trace.Op(r.IntN(30)))
				ns := 1 + r.Int64N(1e6)
				o.Edges = append(o.Edges,
					observation.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, After: op, Nanos: ns})
			}
			requests.Sort(o)
			o.Edges = slices.CompactFunc(o.Edges, func(a, b observation.EdgeTime) bool { return a.Edge == b.Edge })
			for _, e := range o.Edges {
				o.Duration += time.Duration(e.Nanos)
			}
			all = append(all, o)
		}
		limit := rapid.IntRange(1, 20).Draw(t, "edges")
		summaries := func(all []*observation.Observation) (s []group.Summary) {
			g := newGrouper(group.Options{Edges: limit, Sample: 16})
			for i, o := range all {
				g.Observe(o)
				if i%7 == 0 {
					g.EndEpoch(0)
				}
			}
			g.EndEpoch(0)
			for _, grp := range g.Groups() {
				s = append(s, g.Summarize(grp))
			}
			return s
		}
		diff := cmp.Diff(summaries(all), summaries(rapid.Permutation(all).Draw(t, "order")), cmpopts.EquateNaNs())
		if diff != "" {
			t.Error(diff)
		}
	})
}
