package baselinediff

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Slice is the length of the slices of time by which calls are counted.
const Slice = 10 * time.Second

// slice numbers a slice of time, from the Unix epoch.
type slice int32

func sliceOf(t trace.Nanos) slice { return slice(int64(t) / int64(Slice)) }

const slicesPerMinute = slice(time.Minute / Slice)

func (s slice) minute() slice { return s - s%slicesPerMinute }

// sliceRange is the slices [from, to).
type sliceRange struct{ from, to slice }

func (r sliceRange) contains(s slice) bool { return r.from <= s && s < r.to }

// cell counts the calls of a slice.
type cell struct {
	slice slice
	calls uint32
	nanos int64 // total time of the calls; 0 if only calls are counted
}

// cells holds calls by slice: ascending, none is empty.
type cells []cell

// add adds calls with their total time.
func (c *cells) add(at slice, calls uint32, nanos int64) {
	i := len(*c) // calls mostly come in the order of time
	if i > 0 && (*c)[i-1].slice >= at {
		i, _ = slices.BinarySearchFunc(*c, at, func(x cell, at slice) int { return cmp.Compare(x.slice, at) })
	}
	if i == len(*c) || (*c)[i].slice != at {
		*c = slices.Insert(*c, i, cell{slice: at})
	}
	(*c)[i].calls += calls
	(*c)[i].nanos += nanos
}

// within returns the cells in r. It shares their memory.
func (c cells) within(r sliceRange) cells {
	first := len(c)
	for first > 0 && c[first-1].slice >= r.from {
		first--
	}
	last := len(c)
	for last > first && c[last-1].slice >= r.to {
		last--
	}
	return c[first:last]
}

// calls returns the number of calls.
func (c cells) calls() (n uint64) {
	for i := range c {
		n += uint64(c[i].calls)
	}
	return n
}

// time returns the total time.
func (c cells) time() (nanos int64) {
	for i := range c {
		nanos += c[i].nanos
	}
	return nanos
}

// fold joins the cells of each minute in [from, to), in place. Those before from cover minutes already.
func (c cells) fold(from, to slice) cells {
	n := len(c)
	for n > 0 && c[n-1].slice >= from {
		n--
	}
	folded := c[:n]
	for _, x := range c[n:] { // each is read before its memory is written
		if x.slice < to {
			x.slice = x.slice.minute()
		}
		folded.add(x.slice, x.calls, x.nanos)
	}
	return folded
}

// counts holds calls, and maybe their times, by slice, in few bytes: [cells] encoded one after the other. The zero
// value is empty.
type counts struct {
	bytes  []byte
	calls  uint64 // of all cells
	newest slice  // of the last cell
	recent mark   // before the last few cells: calls are added to them without decoding the others
	fine   mark   // the cells before it cover minutes
	tail   mark   // before the last cell, if there are less than recentCells recent ones
	after  uint8  // number of recent cells; recentCells: unknown
	// window is the beginning of the window of the last comparison, see [counts.seek], and earlier the number of calls
	// before it.
	window  mark
	earlier uint64
}

// mark is a place between two cells.
type mark struct {
	offset int32 // of the bytes of the cell behind it
	before slice // of the cell before it; 0: there is none
}

// recentCells is the largest number of recent cells: more than epochs end while a trace is open, so that late calls
// mostly find their cell among them.
const recentCells = 8

// empty reports whether there are no calls.
func (c *counts) empty() bool { return len(c.bytes) == 0 }

// unpack returns all cells, in the memory of into.
func (c *counts) unpack(into cells) cells { return decodeCells(into[:0], c.bytes, 0) }

// last returns the last slice with calls; -1 if there is none.
func (c *counts) last() slice {
	if c.empty() {
		return -1
	}
	return c.newest
}

// first returns the first slice with calls; -1 if there is none.
func (c *counts) first() slice {
	if c.empty() {
		return -1
	}
	distance, _ := binary.Uvarint(c.bytes)
	return slice(distance >> 1)
}

// within returns the cells in r.
func (c *counts) within(r sliceRange) cells { return c.unpack(nil).within(r) }

// seek moves the mark of the window to the first cell at or after a slice. It is fast if the slice is a little later
// than that of the last call.
func (c *counts) seek(at slice) {
	if c.window.before >= at {
		c.window, c.earlier = mark{}, 0
	}
	for int(c.window.offset) < len(c.bytes) {
		x, next := decodeCell(c.bytes, int(c.window.offset), c.window.before)
		if x.slice >= at {
			return
		}
		c.window = mark{int32(next), x.slice}
		c.earlier += uint64(x.calls)
	}
}

// add adds calls with their total time.
func (c *counts) add(at slice, calls uint32, nanos int64) {
	if c.recent.offset > 0 && at <= c.recent.before {
		all := c.unpack(nil)
		all.add(at, calls, nanos)
		c.pack(all)
		return
	}
	if c.after == 0 || c.after == recentCells || at < c.newest {
		var memory [recentCells + 1]cell
		recent := decodeCells(memory[:0], c.bytes[c.recent.offset:], c.recent.before)
		recent.add(at, calls, nanos)
		c.bytes = c.bytes[:c.recent.offset]
		c.append(recent)
	} else {
		c.addLast(cell{at, calls, nanos})
	}
	c.calls += uint64(calls)
	c.newest = max(c.newest, at)
	if at <= c.window.before {
		c.window, c.earlier = mark{}, 0
	}
	if at <= c.fine.before {
		c.fine = mark{}
	}
}

// addLast adds calls to the last cell, or behind it.
func (c *counts) addLast(x cell) {
	if x.slice == c.newest {
		last, _ := decodeCell(c.bytes, int(c.tail.offset), c.tail.before)
		x.calls += last.calls
		x.nanos += last.nanos
		c.bytes = c.bytes[:c.tail.offset]
	} else {
		c.tail = mark{int32(len(c.bytes)), c.newest}
		c.after++
	}
	c.bytes = appendCells(c.bytes, cells{x}, c.tail.before)
}

// pack replaces all cells.
func (c *counts) pack(all cells) {
	*c = counts{bytes: c.bytes[:0], calls: all.calls()}
	c.append(all)
	if len(all) > 0 {
		c.newest = all[len(all)-1].slice
	}
	if slack := cap(c.bytes) - len(c.bytes); slack > 2*slackOf(len(c.bytes)) {
		c.bytes = append(make([]byte, 0, len(c.bytes)+slackOf(len(c.bytes))), c.bytes...)
	}
}

// append appends cells. The last recentCells/2 of more than recentCells are recent.
func (c *counts) append(last cells) {
	if n := len(last) - recentCells/2; len(last) > recentCells {
		c.bytes = appendCells(c.bytes, last[:n], c.recent.before)
		c.recent = mark{int32(len(c.bytes)), last[n-1].slice}
		last = last[n:]
	}
	c.tail, c.after = c.recent, uint8(len(last))
	if n := len(last) - 1; n > 0 {
		c.bytes = appendCells(c.bytes, last[:n], c.recent.before)
		c.tail = mark{int32(len(c.bytes)), last[n-1].slice}
		last = last[n:]
	}
	c.bytes = appendCells(c.bytes, last, c.tail.before)
}

// maxSlice is the end of time.
const maxSlice = slice(1<<31 - 1)

// slackOf returns the number of bytes to reserve beyond n: an eighth, since the length of a history soon stays about
// the same.
func slackOf(n int) int { return n/8 + 8 }

// appendCells encodes cells that follow one of slice before: each as the distance of its slice with a bit that tells
// whether it has a time, its calls, and its time.
func appendCells(b []byte, of cells, before slice) []byte {
	const longest = 2*binary.MaxVarintLen64 + binary.MaxVarintLen32 // bytes of a cell
	for _, x := range of {
		if len(b)+longest > cap(b) {
			b = append(make([]byte, 0, len(b)+longest+slackOf(len(b))), b...)
		}
		distance := uint64(x.slice-before) << 1
		before = x.slice
		if x.nanos == 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, distance), uint64(x.calls))
			continue
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, distance|1), uint64(x.calls))
		b = binary.AppendVarint(b, x.nanos)
	}
	return b
}

// decodeCells appends the cells that appendCells encoded.
func decodeCells(into cells, b []byte, before slice) cells {
	for i := 0; i < len(b); {
		var x cell
		x, i = decodeCell(b, i, before)
		before = x.slice
		into = append(into, x)
	}
	return into
}

// decodeCell returns the cell that begins at offset i and the offset of the next one.
func decodeCell(b []byte, i int, before slice) (x cell, next int) {
	// Most distances and calls have a single byte.
	distance, n := uint64(b[i]), 1
	if distance >= 0x80 {
		distance, n = binary.Uvarint(b[i:])
	}
	i += n
	calls, n := uint64(b[i]), 1
	if calls >= 0x80 {
		calls, n = binary.Uvarint(b[i:])
	}
	i += n
	x = cell{slice: before + slice(distance>>1), calls: uint32(calls)}
	if distance&1 == 0 {
		return x, i
	}
	nanos, shift := uint64(0), 0
	for b[i] >= 0x80 {
		nanos |= uint64(b[i]&0x7f) << shift
		shift += 7
		i++
	}
	nanos |= uint64(b[i]) << shift
	x.nanos = int64(nanos>>1) ^ -int64(nanos&1) // as in [binary.Varint]
	return x, i + 1
}
