package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// commonEpochs is the number of epochs between comparisons of the series.
const commonEpochs = 6

// seriesSet records, per epoch, the time that the most frequent request types spend in their leading edges, and
// compares these series.
type seriesSet struct {
	types  []*typeSeries
	epochs int // number of epochs since the types were chosen
	common []explain.CommonEdges
}

// typeSeries holds the number of requests of one type in each of the last [explain.SeriesWindows] epochs, latest last.
type typeSeries struct {
	id     analysis.Hash
	counts []uint64
	edges  []edgeSeries
}

// edgeSeries holds the total time that requests spent in one edge in each epoch, in ns.
type edgeSeries struct {
	edge  trace.Edge
	nanos []uint64
}

// observe adds the epoch that is about to end. Every [explain.SeriesWindows] epochs, it first chooses the types and
// edges again.
func (s *seriesSet) observe(groups *group.Grouper) {
	if s.epochs%explain.SeriesWindows == 0 {
		s.choose(groups)
	}
	s.epochs = s.epochs%explain.SeriesWindows + 1
	for _, t := range s.types {
		var open group.Window
		if g := groups.Group(t.id); g != nil {
			open = g.Open
		}
		t.counts = appendWindow(t.counts, open.Total.N)
		for i := range t.edges {
			e := &t.edges[i]
			e.nanos = appendWindow(e.nanos, open.Tally.Edge(e.edge).Sum.Lo) // an epoch has at most 2⁶⁴ ns
		}
	}
}

// appendWindow appends x, the value of an epoch, and drops the oldest values beyond [explain.SeriesWindows].
func appendWindow(values []uint64, x uint64) []uint64 {
	values = append(values, x)
	return slices.Delete(values, 0, max(0, len(values)-explain.SeriesWindows))
}

// choose selects the most frequent request types and the edges where each of them spends the most time. A series that
// is selected again continues.
func (s *seriesSet) choose(groups *group.Grouper) {
	var types []*group.Group
	requests := make(map[analysis.Hash]uint64)
	for g := range groups.Each() {
		if g.Level == group.LevelRequestType {
			total, _ := g.Retained()
			requests[g.ID] = total.N
			types = append(types, g)
		}
	}
	sorting.Slice(types, func(a, b *group.Group) int {
		return cmp.Or(cmp.Compare(requests[b.ID], requests[a.ID]), a.ID.Compare(b.ID))
	})
	windows, before := 0, make(map[analysis.Hash]*typeSeries)
	for _, t := range s.types {
		windows, before[t.id] = len(t.counts), t
	}
	s.types = nil
	for _, g := range types[:min(len(types), explain.SeriesTypes)] {
		t := &typeSeries{id: g.ID, counts: make([]uint64, windows)}
		old := before[g.ID]
		if old != nil {
			t.counts = old.counts
		}
		for _, e := range leadingEdges(g) {
			t.edges = append(t.edges, edgeSeries{e, old.nanosOf(e, windows)})
		}
		s.types = append(s.types, t)
	}
}

// nanosOf returns the series of e, or one zero per window if e has no series or t is nil.
func (t *typeSeries) nanosOf(e trace.Edge, windows int) []uint64 {
	if t != nil {
		if i := slices.IndexFunc(t.edges, func(x edgeSeries) bool { return x.edge == e }); i >= 0 {
			return t.edges[i].nanos
		}
	}
	return make([]uint64, windows)
}

// leadingEdges returns the edges where the requests of g spend the most time, in descending order of that time.
func leadingEdges(g *group.Group) []trace.Edge {
	w := g.Judged()
	if w.Total.N == 0 {
		w = &g.Open
	}
	edges := slices.DeleteFunc(slices.Clone(w.Tally.Edges), func(e group.EdgeTally) bool { return e.Edge == 0 })
	sorting.Slice(edges, func(a, b group.EdgeTally) int {
		return cmp.Or(cmp.Compare(b.Sum.Hi, a.Sum.Hi), cmp.Compare(b.Sum.Lo, a.Sum.Lo), cmp.Compare(a.Edge, b.Edge))
	})
	var leading []trace.Edge
	for _, e := range edges[:min(len(edges), explain.SeriesEdges)] {
		leading = append(leading, e.Edge)
	}
	return leading
}

// compare updates the common edges every commonEpochs epochs while they are needed, and clears them otherwise.
func (s *seriesSet) compare(needed bool) {
	switch {
	case !needed:
		s.common = nil
	case s.epochs%commonEpochs == 0:
		s.common = explain.CommonOf(s.series())
	}
}

// series converts the series to the form used by package explain.
func (s *seriesSet) series() []explain.EdgeSeries {
	var all []explain.EdgeSeries
	for _, t := range s.types {
		for i := range t.edges {
			e := &t.edges[i]
			x := explain.EdgeSeries{
				RequestType: t.id,
				Edge:        e.edge,
				Means:       make([]float64, len(t.counts)),
				Counts:      t.counts,
			}
			for k, nanos := range e.nanos {
				x.Means[k] = float64(nanos) / float64(max(1, t.counts[k]))
			}
			all = append(all, x)
		}
	}
	return all
}

// savedSeries is the saved form of a seriesSet.
type savedSeries struct {
	Types  []savedTypeSeries
	Epochs int
	Common []explain.CommonEdges
}

type savedTypeSeries struct {
	ID     analysis.Hash
	Counts []uint64
	Edges  []savedEdgeSeries
}

type savedEdgeSeries struct {
	Edge  trace.Edge
	Nanos []uint64
}

// save implements section.
func (s *seriesSet) save(saved *savedCore) {
	saved.Series = savedSeries{Epochs: s.epochs, Common: s.common}
	for _, t := range s.types {
		x := savedTypeSeries{ID: t.id, Counts: t.counts}
		for _, e := range t.edges {
			x.Edges = append(x.Edges, savedEdgeSeries{e.edge, e.nanos})
		}
		saved.Series.Types = append(saved.Series.Types, x)
	}
}

// restore implements section.
func (s *seriesSet) restore(core *savedCore) error {
	saved := &core.Series
	*s = seriesSet{epochs: saved.Epochs, common: saved.Common}
	for i := range saved.Types {
		x := &saved.Types[i]
		t := &typeSeries{id: x.ID, counts: x.Counts}
		for _, e := range x.Edges {
			if len(e.Nanos) != len(x.Counts) || len(x.Counts) != len(saved.Types[0].Counts) {
				return fmt.Errorf("%w: series of edges", codec.ErrCorrupt)
			}
			t.edges = append(t.edges, edgeSeries{e.Edge, e.Nanos})
		}
		s.types = append(s.types, t)
	}
	return nil
}
