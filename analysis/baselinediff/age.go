package baselinediff

import "slices"

// aging is the change that [Sites.Age] makes to each series.
type aging struct {
	keep      sliceRange         // cells outside of it are deleted
	fold      sliceRange         // of minutes, whose cells are joined
	skips     bool               // some slices are skipped, so that it matters in which one a call is
	forgotten func(s slice) bool // whether the cells of a slice in keep are deleted, too; nil: none are
	unpacked  cells              // scratch
	encoded   []byte             // scratch
}

// apply returns the cells that are left. It reorders all.
func (a *aging) apply(all cells) cells {
	all = all.within(a.keep).fold(a.fold.from, a.fold.to)
	if a.forgotten == nil {
		return all
	}
	return slices.DeleteFunc(all, func(x cell) bool { return a.forgotten(x.slice) })
}

// age applies a. It reports whether cells were deleted or joined, or moved in a way that matters. It only decodes those
// and their neighbours, unless slices in the middle are forgotten.
func (c *counts) age(a *aging) (changed bool) {
	switch {
	case c.empty():
		return false
	case a.forgotten != nil || c.newest >= a.keep.to || c.newest < a.keep.from:
		a.unpacked = c.unpack(a.unpacked)
		c.pack(a.apply(a.unpacked))
		return true
	}
	changed = c.trim(a)
	return c.fold(a) || changed
}

// trim deletes the cells before a.keep. There are others.
func (c *counts) trim(a *aging) (changed bool) {
	first, end := decodeCell(c.bytes, 0, 0)
	if first.slice >= a.keep.from {
		return false
	}
	deleted, deletedLogs := uint64(0), int64(0)
	for first.slice < a.keep.from {
		deleted += uint64(first.calls)
		deletedLogs += first.logs
		first, end = decodeCell(c.bytes, end, first.slice)
	}
	a.encoded = appendCells(a.encoded[:0], cells{first}, 0)
	c.splice(mark{}, int32(end), a.encoded)
	c.calls -= deleted
	if c.window.offset > 0 {
		c.earlier -= deleted
		c.earlierLogs -= deletedLogs
	}
	return true
}

// fold joins the cells of each minute of a.fold. It reports whether any minute has several, or moving one matters.
func (c *counts) fold(a *aging) (changed bool) {
	a.unpacked = a.unpacked[:0]
	first, at := c.fine, c.fine // of the cells to fold, and behind them
	count, moved := 0, false
	var next cell
	end := int32(0)
	for int(at.offset) < len(c.bytes) {
		x, behind := decodeCell(c.bytes, int(at.offset), at.before)
		if x.slice >= a.fold.to {
			next, end = x, int32(behind)
			break
		}
		at = mark{int32(behind), x.slice}
		if x.slice < a.fold.from {
			first = at
			continue
		}
		count++
		moved = moved || x.slice != x.slice.minute()
		x.slice = x.slice.minute()
		a.unpacked.add(x)
	}
	c.fine = at
	if !moved {
		return false
	}
	a.encoded = appendCells(a.encoded[:0], a.unpacked, first.before)
	fine := mark{first.offset + int32(len(a.encoded)), a.unpacked[len(a.unpacked)-1].slice}
	if end > 0 { // its distance changes
		a.encoded = appendCells(a.encoded, cells{next}, fine.before)
	}
	c.splice(first, max(end, at.offset), a.encoded)
	c.fine = fine
	if end == 0 { // the last cell moved
		c.newest = fine.before
		for _, m := range []*mark{&c.recent, &c.window} {
			if m.offset == fine.offset {
				*m = fine
			}
		}
	}
	return len(a.unpacked) < count || a.skips
}

// splice replaces the bytes from a mark to an offset. If others are behind them, the last cell of the new bytes is in
// the same slice as that of the old ones.
func (c *counts) splice(from mark, to int32, with []byte) {
	n := len(c.bytes)
	by := int32(len(with)) - (to - from.offset)
	if grown := n + int(by); grown > cap(c.bytes) {
		c.bytes = append(make([]byte, 0, grown+slackOf(grown)), c.bytes...)
	}
	c.bytes = c.bytes[:max(n, n+int(by))]
	copy(c.bytes[to+by:], c.bytes[to:n])
	c.bytes = c.bytes[:n+int(by)]
	copy(c.bytes[from.offset:], with)
	if slack := cap(c.bytes) - len(c.bytes); slack > 2*slackOf(len(c.bytes)) {
		c.bytes = append(make([]byte, 0, len(c.bytes)+slackOf(len(c.bytes))), c.bytes...)
	}
	if c.tail.offset < to || c.recent.offset < to {
		c.after = recentCells
	}
	for _, m := range []*mark{&c.recent, &c.fine, &c.tail} {
		m.splice(from, to, by)
	}
	if c.window.splice(from, to, by); c.window == from {
		c.forgetWindow()
	}
}

// splice moves a mark as [counts.splice] moves cells: to the beginning of the replaced bytes if it was among them.
func (m *mark) splice(from mark, to, by int32) {
	switch {
	case m.offset >= to:
		m.offset += by
	case m.offset > from.offset:
		*m = from
	}
}
