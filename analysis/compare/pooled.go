package compare

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

// pooledSeries is the sum of the series of several sites.
type pooledSeries struct {
	judgedSeries
	withShapes bool // whether the shapes have been summed up, too
}

// pooled returns the sum of the series of all sites of a pool, without shapes.
func (c *liveWindow) pooled(pool int32) *judgedSeries {
	if s := c.wide[pool]; s != nil {
		return &s.judgedSeries
	}
	if c.wide == nil {
		c.wide = make(map[int32]*pooledSeries)
	}
	sum := &pooledSeries{}
	c.sum.restart(c.window.To + history.Ahead)
	for _, i := range c.of.index().members.of(pool) {
		c.sum.addAll(c.times(i).Encoded()) // all sites of a pool belong to one service
	}
	sum.Cells = c.sum.take()
	c.wide[pool] = sum
	return &sum.judgedSeries
}

// poolShapes sums up the shapes of series if it is a pooled series and has no shapes yet.
func (c *liveWindow) poolShapes(series *judgedSeries) {
	for pool, sum := range c.wide {
		if &sum.judgedSeries != series || sum.withShapes {
			continue
		}
		sum.withShapes = true
		one := judgedSeries{}
		for _, i := range c.of.index().members.of(pool) {
			one.unpackShapes(c.h.Series(i))
			sum.mergeShapes(&one)
		}
	}
}

// sums adds up cells that don't arrive in order of time.
type sums struct {
	from        history.Slice  // slice of the first cell in recent
	recent      []history.Cell // one per slice; empty without calls
	first, last int            // range of indices of slices with calls in recent
	others      history.Cells
}

// summed is the number of slices that sums adds up in an array, more than a history usually covers.
const summed = 2048

// addAll adds encoded cells.
func (s *sums) addAll(encoded history.Encoded) {
	for encoded.More() {
		x := encoded.Next()
		if x.Slice < s.from || x.Slice-s.from >= summed {
			s.others.Add(x)
			continue
		}
		at := int(x.Slice - s.from)
		s.first, s.last = min(s.first, at), max(s.last, at)
		c := &s.recent[at]
		c.Slice = x.Slice
		c.Merge(&x)
	}
}

// restart starts a new sum of cells. Most cells should be in the last `summed` slices before slice `to`, because adding
// other cells is slow.
func (s *sums) restart(to history.Slice) {
	if s.recent == nil {
		s.recent = make([]history.Cell, summed)
	}
	s.from, s.first, s.last, s.others = max(0, to-summed), summed, -1, s.others[:0]
}

// take returns the summed cells, and empties s.
func (s *sums) take() (all history.Cells) {
	later, _ := slices.BinarySearchFunc(s.others, s.from,
		func(x history.Cell, at history.Slice) int { return cmp.Compare(x.Slice, at) })
	all = append(make(history.Cells, 0, max(0, s.last-s.first+1)+len(s.others)), s.others[:later]...)
	for i := s.first; i <= s.last; i++ {
		if s.recent[i].Calls > 0 {
			all = append(all, s.recent[i])
		}
		s.recent[i] = history.Cell{}
	}
	return append(all, s.others[later:]...)
}

// mergeShapes adds the calls of the shapes of other, without their times.
func (s *judgedSeries) mergeShapes(other *judgedSeries) {
	for i := range other.shapes {
		into := s.shapeOf(other.shapes[i].Shape)
		for _, x := range other.shapes[i].Cells {
			into.Add(history.Cell{Slice: x.Slice, Calls: x.Calls})
		}
	}
}

// shapeOf returns the series of shape x, creating it if necessary, or the series of all other shapes if there are too
// many.
func (s *judgedSeries) shapeOf(x history.Shape) *judgedShape {
	for i := range s.shapes {
		if s.shapes[i].Shape == x {
			return &s.shapes[i]
		}
	}
	if len(s.shapes) >= history.SiteShapes && x.Hash != 0 {
		x.Hash = 0
		return s.shapeOf(x)
	}
	s.shapes = append(s.shapes, judgedShape{Shape: x})
	return &s.shapes[len(s.shapes)-1]
}
