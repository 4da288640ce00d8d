package group

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// byHit splits one group by cache hits.
type byHit struct {
	whole analysis.Hash
	miss  trace.Symbol
	at    trace.Context
}

func (s *byHit) Bin(o *observation.Observation, whole analysis.Hash) uint64 {
	if whole == s.whole && o.Variables[0].Text == s.miss {
		return 42
	}
	return 0
}

func (s *byHit) Bins(whole analysis.Hash) map[uint64]VariableBin {
	if whole != s.whole {
		return nil
	}
	return map[uint64]VariableBin{0: {"cache.hit", "true", s.at}, 42: {"cache.hit", "false", s.at}}
}

func (s *byHit) Keep(kept func(whole analysis.Hash) bool) {
	if !kept(s.whole) {
		s.whole = analysis.Hash{}
	}
}

// hitsAndMisses returns requests with cache hits and misses, and a Grouper that observed the first ones and is about to
// split their group.
func hitsAndMisses(options Options) (w *requests.Builder, g *Grouper, requestType, whole *Group, splits *byHit) {
	w = requests.NewBuilder()
	for i := range 256 {
		db, hit := 20*w.Heavy(0.1), "false"
		if i%3 > 0 {
			db, hit = db/5, "true"
		}
		w.Text(w.Request(5*w.Heavy(0.1), db), "cache.hit", hit)
	}
	types := &RequestTypes{}
	types.Freeze()
	g = NewGrouper(types, w.Table, options)
	requestType, whole = g.Observe(w.Requests[0])
	splits = &byHit{whole.ID, w.Table.Symbol("false"), w.Get}
	g.Keys.Splits = splits
	return w, g, requestType, whole, splits
}

// A split group is several groups. Bin 0 keeps the identity of the whole group, and so its history. Requests belong to
// the whole group again once the split is removed.
func TestSplitGroups(t *testing.T) {
	w, g, requestType, whole, splits := hitsAndMisses(Options{})
	for _, o := range w.Requests {
		g.Observe(o)
	}
	g.EndEpoch(0)
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
			t.Errorf("whole group %v, want %v, CoV %v", group.Whole, whole.ID, s.CoV)
		}
		total += s.Count
		got = append(got, s.Bins...)
	}
	want := []VariableBin{{"cache.hit", "true", w.Get}, {"cache.hit", "false", w.Get}} // more hits than misses
	if diff := cmp.Diff(want, got); diff != "" || total != 257 || g.Group(whole.ID) == nil {
		t.Errorf("%d requests in %s", total, diff)
	}
	splits.whole = analysis.Hash{}
	for _, o := range w.Requests {
		if _, group := g.Observe(o); group != whole {
			t.Fatal("without the split, a request is not in the whole group")
		}
	}
	if bins := g.Summarize(whole).Bins; bins != nil {
		t.Errorf("bins %v without a split, want none", bins)
	}
}

// The split of a group is kept as long as one of its bins.
func TestSplitsOfEvictedGroups(t *testing.T) {
	w, g, _, _, splits := hitsAndMisses(Options{Groups: 3})
	for _, o := range w.Requests {
		g.Observe(o)
	}
	for epoch := 1; g.Len() > 0; epoch++ {
		g.EndEpoch(1e12 * 10)
		g.closed++ // no group has been seen since
		g.evict()
		if kept := g.Len() > 1; kept != (splits.whole != analysis.Hash{}) {
			t.Fatalf("%d groups, split %v", g.Len(), splits.whole)
		}
		if epoch > 10 {
			t.Fatal("no group is evicted")
		}
	}
}
