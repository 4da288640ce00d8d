package compare

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

// Most sites are healthy, or only slightly slower than usual. Part of the history of a site usually suffices to show
// that it is healthy: a value in the window is within the fence if one piece in twenty reaches it; see [Judge]. A
// screener looks for such pieces from the start of the history, and stops as soon as it has found enough. Its result
// for a site remains valid until calls are added to the site, leave the window, or are deleted; see [verdict].

// verdict is the evidence of a site: the number of its calls, their mean own time, and the limit of that mean, which is
// 0 if the mean is within it. There is no verdict if the shapes of the calls are evidence. A verdict is valid for
// windows that start in [from, until] and contain all later calls at the site. The zero value means that there is no
// verdict.
type verdict struct {
	from, until history.Slice
	changes     uint64 // of the history, see [history.Changes.Since]
	calls       uint32
	mean, limit float64
	onPath      float64 // see [siteTime]
}

// wanted is a value in the window, and the number of pieces of the history that must still reach it to show that it is
// usual.
type wanted struct {
	value  float64
	pieces int
}

// reach counts a piece with the given value if it reaches w.value.
func (w *wanted) reach(value float64) {
	if value >= w.value {
		w.pieces--
	}
}

// wantedShape is a shape of calls in the window. The value of the embedded wanted is the lowest share of the shape over
// the parts of the window; see [liveWindow.share].
type wantedShape struct {
	wanted
	whole wanted          // the same for its share in the whole window
	rest  history.Encoded // unread cells of the past
}

// enough returns the number of values, out of n, that must be at least some x to show that the fence of all n values is
// at least x, too; see [atMost]. It is nondecreasing in n.
func (j Judge) enough(n uint64) int { return int(n) - int(j.rare*float64(n-1)) }

// screening is the scratch memory of a screener.
type screening struct {
	now, past history.Cells
	shapes    []wantedShape
}

// screener judges sites without reading their whole history, where possible.
type screener struct{ *liveWindow }

// screen returns the verdict on site `number`. ok is false if the site has to be judged in detail. A verdict without
// calls means that the site has no calls in the window.
func (c screener) screen(number int32) (v verdict, ok bool) {
	s, known := c.h.Series(number), &c.of.verdicts[number]
	if known.from <= c.window.From && c.window.From <= known.until &&
		s.Last() < c.window.To && !c.h.Changes.Since(s, known.changes) {
		return *known, true
	}
	*known = verdict{}
	x := &c.screening
	encoded, rest, before := s.Split(c.window.From)
	x.now = rest.Decode(x.now[:0]).Within(c.window)
	n := x.now.Calls()
	if n == 0 {
		return verdict{}, true
	}
	x.shapes = x.shapes[:0]
	if k := len(c.skipped); k > 0 && before > 0 && encoded.Peek().Slice < c.skipped[k-1].To {
		before, _ = s.Before(c.window.From, c.skipped, &c.h.Changes)
	}
	if before < history.MinHistory || n > math.MaxUint32 {
		return v, false
	}
	pieces := max(1, before/n, min(minPieces, before))
	until, ok := c.wantShapes(number, n, pieces)
	if !ok {
		return v, false
	}
	v = verdict{from: c.window.From, until: until, changes: c.of.changes, calls: uint32(n)}
	v.mean, v.onPath = x.now.LowestMean(c.parts), x.now.OnPath()
	time := wanted{v.mean, c.enough(pieces)}
	if !c.reached(&time, before, pieces, encoded) {
		if slices.ContainsFunc(x.shapes, func(s wantedShape) bool { return s.pieces > 0 }) {
			return v, false
		}
		c.divide(x.past, before, n)
		v.limit = c.limit()
	}
	if slices.ContainsFunc(x.shapes, func(s wantedShape) bool { return s.whole.pieces > 0 }) {
		v.until = c.window.From // shapes may have larger shares in the parts of later windows
	}
	if s.Last() < c.window.To {
		*known = v
	}
	return v, true
}

// limit returns the limit of the mean of the calls in the window. c.screening.past must hold the pieces of the history.
func (c screener) limit() float64 {
	past := c.screening.past
	c.means = c.means[:0]
	for _, p := range c.pieces {
		c.means = append(c.means, past[p.first:p.last].LowestMean(c.parts))
	}
	_, limit := c.fence(c.means)
	return limit
}

// wantShapes lists the shapes of the n calls in the window whose share the history must reach. It returns the last
// start of a window with the same calls and the same result, and false if the history lacks any of the shapes.
func (c screener) wantShapes(number int32, n, pieces uint64) (until history.Slice, ok bool) {
	s, x := c.h.Series(number), &c.screening
	until = x.now[0].Slice
	if c.sites[number].Border || len(s.Shapes) == 1 {
		return until, true
	}
	if _, long := c.h.Long(number); long {
		until = c.window.From // parts of later windows contain other calls
	}
	if gap := c.gap(number, x.now); gap >= c.window.From {
		return min(until, gap), true
	}
	for i := range s.Shapes {
		shape := &s.Shapes[i]
		if shape.Last() < c.window.From {
			continue
		}
		encoded, rest, earlier := shape.Split(c.window.From)
		now := rest.Decode(c.keptShape[:0]).Within(c.window)
		c.keptShape = now[:0]
		calls := now.Calls()
		if calls == 0 {
			continue
		}
		if earlier == 0 || allSkipped(encoded, c.skipped) {
			return until, false
		}
		x.shapes = append(x.shapes, wantedShape{
			wanted: wanted{c.share(number, x.now, now), c.enough(pieces)},
			whole:  wanted{float64(calls) / float64(n), c.enough(pieces)},
			rest:   encoded,
		})
	}
	return until, true
}

// gap returns the last slice, at most the slice of the first call, such that all windows starting from c.window.From up
// to that slice have a part without calls. Shapes are no evidence in such windows. If all parts of the current window
// have calls, gap returns the slice before c.window.From. now holds the calls at site `number`.
func (c *liveWindow) gap(number int32, now history.Cells) history.Slice {
	length := c.ended(number, now).Length()
	for from := c.window.From; ; from++ {
		var parts [history.SteadyParts]bool
		for i := range now {
			for k := range c.parts {
				part := history.Range{From: from, To: from + length}.Part(k, c.parts)
				parts[k] = parts[k] || part.Contains(now[i].Slice)
			}
		}
		if !slices.Contains(parts[:c.parts], false) {
			return from - 1
		}
		if from == now[0].Slice {
			return from
		}
	}
}

// allSkipped reports whether all cells of encoded are skipped.
func allSkipped(encoded history.Encoded, skipped history.Ranges) bool {
	for encoded.More() {
		if !skipped.Contains(encoded.Next().Slice) {
			return false
		}
	}
	return true
}

// reached reports whether enough pieces of the history reach the own time and the shares of the wanted shapes. before
// is the number of calls in the history. If reached returns false, c.screening.past holds all cells of the history.
func (c screener) reached(time *wanted, before, pieces uint64, encoded history.Encoded) bool {
	x, skipped := &c.screening, c.skipped
	x.past = x.past[:0]
	first, calls, nanos, done := 0, uint64(0), int64(0), uint64(0) // of the current piece; done: calls before it
	for encoded.More() {
		cell := encoded.Next()
		for len(skipped) > 0 && skipped[0].To <= cell.Slice {
			skipped = skipped[1:]
		}
		if len(skipped) > 0 && skipped[0].Contains(cell.Slice) {
			continue
		}
		x.past = append(x.past, cell)
		calls += uint64(cell.Calls)
		nanos += cell.Own()
		if calls*pieces < before || (before-done-calls)*pieces < before {
			continue // the last piece also gets the rest
		}
		if c.reachedIn(time, x.past[first:], calls, nanos, cell.Slice+1) {
			return true
		}
		done += calls
		first, calls, nanos = len(x.past), 0, 0
	}
	return c.reachedIn(time, x.past[first:], calls, nanos, c.window.From)
}

// reachedIn counts piece, which has the given calls and own time and ends at slice `to`. It reports whether enough
// pieces have reached all wanted values.
func (c screener) reachedIn(time *wanted, piece history.Cells, calls uint64, nanos int64, to history.Slice) bool {
	if time.pieces > 0 && float64(nanos)/float64(calls) >= time.value { // its parts may have lower means
		time.reach(piece.LowestMean(c.parts))
	}
	all := time.pieces <= 0
	for i := range c.screening.shapes {
		s := &c.screening.shapes[i]
		n := s.read(piece[0].Slice, to, c.skipped)
		share := float64(n) / float64(calls)
		s.reach(share)
		s.whole.reach(share)
		all = all && s.pieces <= 0
	}
	return all
}

// read returns the number of calls of a shape in [from, to) that are not skipped. It consumes all cells before `to`.
func (s *wantedShape) read(from, to history.Slice, skipped history.Ranges) (calls uint64) {
	for s.rest.More() {
		x := s.rest.Peek()
		if x.Slice >= to {
			break
		}
		if x.Slice >= from && !skipped.Contains(x.Slice) {
			calls += uint64(x.Calls)
		}
		s.rest.Next()
	}
	return calls
}
