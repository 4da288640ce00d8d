package history

import "slices"

// aging is the change that [Sites.Age] makes to each series.
type aging struct {
	keep      Range              // cells outside of it are deleted
	fold      Range              // whole minutes, whose cells are joined
	skips     bool               // whether some slices are skipped, so that the exact slice of a call matters
	forgotten func(s Slice) bool // reports whether the cells of a slice in keep are deleted, too; nil keeps them all
	unpacked  Cells              // scratch
	encoded   []byte             // scratch
}

// apply returns the cells that remain of `all`, in the memory of `all`.
func (a *aging) apply(all Cells) Cells {
	all = all.Within(a.keep).fold(a.fold.From, a.fold.To)
	if a.forgotten == nil {
		return all
	}
	return slices.DeleteFunc(all, func(x Cell) bool { return a.forgotten(x.Slice) })
}

// age applies a. It reports whether cells were deleted or joined or, if a.skips is set, moved. It decodes only the
// changed cells and their neighbours, unless a.forgotten is set.
func (c *Counts) age(a *aging) (changed bool) {
	switch {
	case c.empty():
		return false
	case a.forgotten != nil || c.newest >= a.keep.To || c.newest < a.keep.From:
		a.unpacked = c.Unpack(a.unpacked)
		c.pack(a.apply(a.unpacked))
		return true
	}
	changed = c.trim(a)
	return c.fold(a) || changed
}

// trim deletes the cells before a.keep, and reports whether there were any. At least one cell must remain.
func (c *Counts) trim(a *aging) (changed bool) {
	first, end := decodeCell(c.bytes, 0, 0)
	if first.Slice >= a.keep.From {
		return false
	}
	deleted, deletedLogs := uint64(0), int64(0)
	for first.Slice < a.keep.From {
		deleted += uint64(first.Calls)
		deletedLogs += first.logs
		first, end = decodeCell(c.bytes, end, first.Slice)
	}
	a.encoded = appendCells(a.encoded[:0], Cells{first}, 0)
	c.splice(mark{}, int32(end), a.encoded)
	c.Calls -= deleted
	if c.window.offset > 0 {
		c.earlier -= deleted
		c.earlierLogs -= deletedLogs
	}
	return true
}

// fold joins the cells of each minute of a.fold. It reports whether it joined any cells or, if a.skips is set, moved
// any.
func (c *Counts) fold(a *aging) (changed bool) {
	a.unpacked = a.unpacked[:0]
	first, at := c.fine, c.fine // start and end of the cells to fold
	count, moved := 0, false
	var next Cell
	end := int32(0)
	for int(at.offset) < len(c.bytes) {
		x, behind := decodeCell(c.bytes, int(at.offset), at.before)
		if x.Slice >= a.fold.To {
			next, end = x, int32(behind)
			break
		}
		at = mark{int32(behind), x.Slice}
		if x.Slice < a.fold.From {
			first = at
			continue
		}
		count++
		moved = moved || x.Slice != x.Slice.minute()
		x.Slice = x.Slice.minute()
		a.unpacked.Add(x)
	}
	c.fine = at
	if !moved {
		return false
	}
	a.encoded = appendCells(a.encoded[:0], a.unpacked, first.before)
	fine := mark{first.offset + int32(len(a.encoded)), a.unpacked[len(a.unpacked)-1].Slice}
	if end > 0 { // its distance from the cell before changes
		a.encoded = appendCells(a.encoded, Cells{next}, fine.before)
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

// splice replaces c.bytes[from.offset:to] with the bytes of `with`. If more bytes follow, the last of the new cells
// must be in the same slice as the last of the replaced cells.
func (c *Counts) splice(from mark, to int32, with []byte) {
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
	c.following = 0
	for _, m := range []*mark{&c.recent, &c.fine, &c.tail} {
		m.splice(from, to, by)
	}
	if c.window.splice(from, to, by); c.window == from {
		c.forgetWindow()
	}
}

// splice moves a mark as [Counts.splice] moves cells. A mark within the replaced bytes moves to their start.
func (m *mark) splice(from mark, to, by int32) {
	switch {
	case m.offset >= to:
		m.offset += by
	case m.offset > from.offset:
		*m = from
	}
}
