package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A group that is split is several groups; bin 0 keeps the identity of the whole, and with it the history. When the split is undone
// requests are in the whole again.
func TestSplitGroups(t *testing.T) {
	w := newWorld(1)
	for range 256 {
		splitWorlds["cache"](w)
	}
	types := &RequestTypes{}
	types.Freeze()
	g := NewGrouper(types, w.table, GroupOptions{})
	g.Splits = NewSplits(SplitOptions{})
	requestType, whole := g.Observe(w.requests[0])
	if !g.Splits.Learn(whole.ID, w.requests, w.table) {
		t.Fatal("not split")
	}
	for _, o := range w.requests {
		g.Observe(o)
	}
	g.Close(0)
	var got []VariableBin
	total := uint64(0)
	for _, group := range g.Groups() {
		s := g.Summarize(group)
		if group == requestType {
			if s.Bins != nil || !(s.Between > 0.5) {
				t.Errorf("the type has bins %v, and %v of its variance between groups", s.Bins, s.Between)
			}
			continue
		}
		if group.Whole != whole.ID || s.CoV > 0.2 {
			t.Errorf("a group of %v, want %v, with a CoV of %v", group.Whole, whole.ID, s.CoV)
		}
		total += s.Count
		got = append(got, s.Bins...)
	}
	want := []VariableBin{{"cache.hit", "true", w.get}, {"cache.hit", "false", w.get}} // more hits than misses
	if diff := cmp.Diff(want, got); diff != "" || total != 257 || g.Group(whole.ID) == nil {
		t.Errorf("%d requests in %s", total, diff)
	}
	g.Splits.Forget(whole.ID)
	for _, o := range w.requests {
		if _, group := g.Observe(o); group != whole {
			t.Fatal("a request is not in the whole group after the split was undone")
		}
	}
	if bins := g.Summarize(whole).Bins; bins != nil {
		t.Errorf("bins %v of a group that is not split", bins)
	}
}

// The split of a group is kept as long as any of its bins is.
func TestSplitsOfEvictedGroups(t *testing.T) {
	w := newWorld(1)
	for range 256 {
		splitWorlds["cache"](w)
	}
	types := &RequestTypes{}
	types.Freeze()
	g := NewGrouper(types, w.table, GroupOptions{Groups: 3})
	g.Splits = NewSplits(SplitOptions{})
	_, whole := g.Observe(w.requests[0])
	g.Splits.Learn(whole.ID, w.requests, w.table)
	for _, o := range w.requests {
		g.Observe(o)
	}
	for epoch := 1; g.Len() > 0; epoch++ {
		g.Close(1e12 * 10)
		g.closed++ // nothing was seen since
		g.evict()
		if kept := g.Len() > 1; kept != (g.Splits.Of(whole.ID) != nil) {
			t.Fatalf("%d groups left, split %v", g.Len(), g.Splits.Of(whole.ID))
		}
		if epoch > 10 {
			t.Fatal("nothing is evicted")
		}
	}
}
