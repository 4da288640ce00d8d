package group

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/bench/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// byHit splits one group by whether the cache was hit.
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

// hitsAndMisses returns requests with a hit or a miss, and a grouper that has seen the first and is about to split its group.
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

// A group that is split is several groups; bin 0 keeps the identity of the whole, and with it the history. When the split is undone
// requests are in the whole again.
func TestSplitGroups(t *testing.T) {
	w, g, requestType, whole, splits := hitsAndMisses(Options{})
	for _, o := range w.Requests {
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
	want := []VariableBin{{"cache.hit", "true", w.Get}, {"cache.hit", "false", w.Get}} // more hits than misses
	if diff := cmp.Diff(want, got); diff != "" || total != 257 || g.Group(whole.ID) == nil {
		t.Errorf("%d requests in %s", total, diff)
	}
	splits.whole = analysis.Hash{}
	for _, o := range w.Requests {
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
	w, g, _, _, splits := hitsAndMisses(Options{Groups: 3})
	for _, o := range w.Requests {
		g.Observe(o)
	}
	for epoch := 1; g.Len() > 0; epoch++ {
		g.Close(1e12 * 10)
		g.closed++ // nothing was seen since
		g.evict()
		if kept := g.Len() > 1; kept != (splits.whole != analysis.Hash{}) {
			t.Fatalf("%d groups left, split %v", g.Len(), splits.whole)
		}
		if epoch > 10 {
			t.Fatal("nothing is evicted")
		}
	}
}
