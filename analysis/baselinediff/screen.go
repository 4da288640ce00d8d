package baselinediff

import (
	"math"
	"slices"
)

// Most sites are healthy, or only somewhat slower than usual. To know that a site is healthy, it usually suffices to
// look at a part of its history: a value in the window is within the fence if one piece in twenty reaches it, see
// [highFence]. screen looks for these pieces from the beginning of the history, and stops as soon as it has found them.
// What it says of a site remains true until calls are added to the site, leave the window, or are deleted; see
// [verdict].

// verdict is the evidence of a site in the windows that begin in [from, until] and contain all of its calls from then
// on: their number, their mean own time, and its limit, 0 if the mean is within it. Shapes are no evidence. The zero
// value says nothing.
type verdict struct {
	from, until slice
	calls       uint32
	mean, limit float64
}

// wanted is a value of the window and the number of pieces of the history that must reach it.
type wanted struct {
	value  float64
	pieces int
}

// reach counts a piece that has a value.
func (w *wanted) reach(value float64) {
	if value >= w.value {
		w.pieces--
	}
}

// wantedShape is a shape whose share in the calls of the window the history must reach.
type wantedShape struct {
	wanted
	whole wanted // the same for its share in the whole window
	rest  []byte // cells of the past that were not yet read
	last  slice  // the cell before them
}

// enough returns the number of values among n that must reach x so that the fence does: see [atMost]. It does not fall
// with n.
func enough(n uint64) int { return int(n) - int(rare*float64(n-1)) }

// screening is the scratch memory of screen.
type screening struct {
	now, past, all, kept cells
	shapes               []wantedShape
}

// screen returns the verdict on a site, unless the site has to be judged in detail. It has no calls in the window if
// the verdict has none.
func (c *liveComparison) screen(number int32) (v verdict, ok bool) {
	s, known := &c.h.series[number], &c.h.verdicts[number]
	if known.from <= c.window.from && c.window.from <= known.until && s.newest < c.window.to {
		return *known, true
	}
	*known = verdict{}
	s.seek(c.window.from)
	x := &c.screening
	x.now = decodeCells(x.now[:0], s.bytes[s.window.offset:], s.window.before).within(c.window)
	n := x.now.calls()
	if n == 0 {
		return verdict{}, true
	}
	x.past, x.shapes = x.past[:0], x.shapes[:0]
	before, encoded := s.earlier, s.bytes[:s.window.offset]
	if k := len(c.skipped); k > 0 && before > 0 {
		if first, _ := decodeCell(encoded, 0, 0); first.slice < c.skipped[k-1].to {
			x.all = decodeCells(x.all[:0], encoded, 0)
			x.past = c.past(x.all, &x.kept)
			before, encoded = x.past.calls(), nil
		}
	}
	if before < minHistory || n > math.MaxUint32 {
		return v, false
	}
	pieces := max(1, before/n, min(minPieces, before))
	until, ok := c.wantShapes(number, n, pieces)
	if !ok {
		return v, false
	}
	v = verdict{from: c.window.from, until: until, calls: uint32(n)}
	v.mean = c.mean(x.now)
	time := wanted{v.mean, enough(pieces)}
	if !c.reached(&time, before, pieces, encoded) {
		if slices.ContainsFunc(x.shapes, func(s wantedShape) bool { return s.pieces > 0 }) {
			return v, false
		}
		c.divide(x.past, before, n)
		v.limit = c.limit()
	}
	if slices.ContainsFunc(x.shapes, func(s wantedShape) bool { return s.whole.pieces > 0 }) {
		v.until = c.window.from // their shares in the parts of later windows may be larger
	}
	if s.newest < c.window.to {
		*known = v
	}
	return v, true
}

// limit returns the limit of the mean of the calls in the window. The pieces of the history are those of
// c.screening.past.
func (c *liveComparison) limit() float64 {
	past := c.screening.past
	c.means = c.means[:0]
	for _, p := range c.pieces {
		c.means = append(c.means, c.mean(past[p.first:p.last]))
	}
	_, limit := c.fence(c.means)
	return limit
}

// wantShapes lists the shapes of the n calls in the window whose share the history must reach, and returns the last
// beginning of a window with the same calls for which they are the same. It returns false if there are shapes that the
// history does not have.
func (c *liveComparison) wantShapes(number int32, n, pieces uint64) (until slice, ok bool) {
	s, x := &c.h.series[number], &c.screening
	until = x.now[0].slice
	if c.h.sites[number].border || len(s.shapes) == 1 {
		return until, true
	}
	if gap := c.gap(x.now); gap >= c.window.from {
		return min(until, gap), true
	}
	for i := range s.shapes {
		shape := &s.shapes[i]
		if shape.newest < c.window.from {
			continue
		}
		shape.seek(c.window.from)
		now := decodeCells(c.keptShape[:0], shape.bytes[shape.window.offset:], shape.window.before).within(c.window)
		c.keptShape = now[:0]
		calls := now.calls()
		if calls == 0 {
			continue
		}
		encoded := shape.bytes[:shape.window.offset]
		if shape.earlier == 0 || c.allSkipped(encoded) {
			return until, false
		}
		x.shapes = append(x.shapes, wantedShape{
			wanted: wanted{c.share(x.now, now), enough(pieces)}, whole: wanted{float64(calls) / float64(n), enough(pieces)}, rest: encoded,
		})
	}
	return until, true
}

// gap returns the last beginning of a window, at most that of the first of some calls, until which one of the parts of
// each window has none of the calls: no shape is then evidence. It is before the current window if there is none.
func (c *liveComparison) gap(now cells) slice {
	length := c.window.to - c.window.from
	for from := c.window.from; ; from++ {
		var parts [steadyParts]bool
		for i := range now {
			for k := range slice(steadyParts) {
				part := sliceRange{from + k*length/steadyParts, from + (k+1)*length/steadyParts}
				parts[k] = parts[k] || part.contains(now[i].slice)
			}
		}
		if !slices.Contains(parts[:], false) {
			return from - 1
		}
		if from == now[0].slice {
			return from
		}
	}
}

// allSkipped reports whether all cells are skipped.
func (c *liveComparison) allSkipped(encoded []byte) bool {
	var x cell
	for i := 0; i < len(encoded); {
		x, i = decodeCell(encoded, i, x.slice)
		if !c.skipped.contains(x.slice) {
			return false
		}
	}
	return true
}

// reached reports whether enough pieces of the history reach the own time and the shares of the wanted
// shapes. The history has calls before the window; those cells that are not in c.screening.past are encoded. If
// they do not, c.screening.past has all cells in the end.
func (c *liveComparison) reached(time *wanted, before, pieces uint64, encoded []byte) bool {
	x := &c.screening
	first, calls, nanos, done := 0, uint64(0), int64(0), uint64(0) // of the current piece, and the calls before it
	offset, last := 0, slice(0)
	for i := 0; ; i++ {
		if i == len(x.past) {
			if offset == len(encoded) {
				break
			}
			var next cell
			next, offset = decodeCell(encoded, offset, last)
			last = next.slice
			x.past = append(x.past, next)
		}
		calls += uint64(x.past[i].calls)
		nanos += x.past[i].nanos
		if calls*pieces < before || (before-done-calls)*pieces < before {
			continue // the last piece also has the rest
		}
		if c.reachedIn(time, x.past[first:i+1], calls, nanos, x.past[i].slice+1) {
			return true
		}
		done += calls
		first, calls, nanos = i+1, 0, 0
	}
	return c.reachedIn(time, x.past[first:], calls, nanos, c.window.from)
}

// reachedIn counts a piece with a number of calls, up to slice to, and reports whether nothing else is wanted.
func (c *liveComparison) reachedIn(time *wanted, piece cells, calls uint64, nanos int64, to slice) bool {
	if time.pieces > 0 && float64(nanos)/float64(calls) >= time.value { // its parts may be lower
		time.reach(c.mean(piece))
	}
	all := time.pieces <= 0
	for i := range c.screening.shapes {
		s := &c.screening.shapes[i]
		n := c.read(s, piece[0].slice, to)
		share := float64(n) / float64(calls)
		s.reach(share)
		s.whole.reach(share)
		all = all && s.pieces <= 0
	}
	return all
}

// read returns the number of calls of a shape in [from, to), and drops them and those before.
func (c *liveComparison) read(s *wantedShape, from, to slice) (calls uint64) {
	for len(s.rest) > 0 {
		x, next := decodeCell(s.rest, 0, s.last)
		if x.slice >= to {
			break
		}
		if x.slice >= from && !c.skipped.contains(x.slice) {
			calls += uint64(x.calls)
		}
		s.rest, s.last = s.rest[next:], x.slice
	}
	return calls
}
