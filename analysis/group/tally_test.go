package group_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// request holds the times of one request by edge, ascending. They add up to its duration.
type request []observation.EdgeNanos

func (r request) duration() (ns int64) {
	for _, x := range r {
		ns += x.Nanos
	}
	return ns
}

func drawRequests(t *rapid.T) (all []request) {
	for range rapid.IntRange(0, 20).Draw(t, "requests") {
		var r request
		for e := range trace.Edge(8) {
			if ns := rapid.Int64Range(0, 50).Draw(t, "ns") - 20; ns > 0 {
				r = append(r, observation.EdgeNanos{Edge: e + 1, Nanos: ns << rapid.IntRange(0, 40).Draw(t, "scale")})
			}
		}
		all = append(all, r)
	}
	return all
}

func tallyOf(all []request, limit int) *group.Tally {
	var t group.Tally
	for _, r := range all {
		t.Add(r.duration(), r, limit)
	}
	return &t
}

// The same requests give the same sums in any order, added or merged, even with more edges than the limit.
func TestTallyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawRequests(t)
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		whole := tallyOf(all, limit)
		shuffled := rapid.Permutation(all).Draw(t, "order")
		if diff := cmp.Diff(whole, tallyOf(shuffled, limit), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("added in another order: %s", diff)
		}
		i := rapid.IntRange(0, len(all)).Draw(t, "first part")
		k := rapid.IntRange(i, len(all)).Draw(t, "second part")
		merged := tallyOf(shuffled[:i], limit)
		rest := tallyOf(shuffled[i:k], limit)
		rest.Merge(tallyOf(shuffled[k:], limit), limit)
		merged.Merge(rest, limit)
		if diff := cmp.Diff(whole, merged, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("merged: %s", diff)
		}
	})
}

// The sums of all edges, including Edge 0, equal the sums of the durations exactly, so that shares add up to 1.
func TestTallyAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawRequests(t)
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		tally := tallyOf(all, limit)
		var sum, products stats.Uint128
		for i := range tally.Edges {
			sum = sum.Add(tally.Edges[i].Sum)
			products = products.Add(tally.Edges[i].SumT)
			if i > 0 && tally.Edges[i-1].Edge >= tally.Edges[i].Edge {
				t.Error("edges are not ascending")
			}
		}
		if sum != tally.Total.Sum || products != tally.Total.Sum2 {
			t.Errorf("edges add up to %v and %v, durations to %v and %v",
				sum, products, tally.Total.Sum, tally.Total.Sum2)
		}
		kept := slices.DeleteFunc(slices.Clone(tally.Edges), func(e group.EdgeTally) bool { return e.Edge == 0 })
		if len(kept) > limit {
			t.Errorf("%d edges, limit %d", len(kept), limit)
		}
	})
}

// Sums of separate edges are exact, as without a limit.
func TestTallyKeepsEdgesExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawRequests(t)
		exact, limited := tallyOf(all, 100), tallyOf(all, 3)
		for _, e := range limited.Edges {
			if e.Edge != 0 && e != exact.Edge(e.Edge) {
				t.Errorf("edge %d: %v, want %v", e.Edge, e, exact.Edge(e.Edge))
			}
		}
	})
}

func TestTallyCountsNewEdges(t *testing.T) {
	var tally group.Tally
	for i, want := range []int{2, 0, 1} {
		r := []request{
			{{Edge: 1, Nanos: 5}, {Edge: 2, Nanos: 5}},
			{{Edge: 2, Nanos: 5}},
			{{Edge: 1, Nanos: 1}, {Edge: 3, Nanos: 1}},
		}[i]
		if got := tally.Add(r.duration(), r, 10); got != want {
			t.Errorf("request %d: %d new edges, want %d", i, got, want)
		}
	}
	if got := tally.Edge(7); got != (group.EdgeTally{Edge: 7}) {
		t.Errorf("edge without requests: %v", got)
	}
}
