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
	logs  int64 // total of the logarithms of their times, see [logOf]; 0 if they are not needed
}

// logsOfMean returns the logs of x if all calls took the same time. Damaged cells may have no calls.
func (x *cell) logsOfMean() int64 { return int64(x.calls) * logOf(x.nanos/max(1, int64(x.calls))) }

// cells holds calls by slice: ascending, none is empty.
type cells []cell

// merge adds the calls of y, whatever its slice.
func (x *cell) merge(y *cell) {
	x.calls += y.calls
	x.nanos += y.nanos
	x.logs += y.logs
}

// add adds the calls of x.
func (c *cells) add(x cell) {
	i := len(*c) // calls mostly come in the order of time
	if i > 0 && (*c)[i-1].slice >= x.slice {
		i, _ = slices.BinarySearchFunc(*c, x.slice, func(y cell, at slice) int { return cmp.Compare(y.slice, at) })
	}
	if i == len(*c) || (*c)[i].slice != x.slice {
		*c = slices.Insert(*c, i, cell{slice: x.slice})
	}
	(*c)[i].merge(&x)
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
		folded.add(x)
	}
	return folded
}

// timeUnit is the resolution in ns of the times in counts: finer ones take 40 % more bytes.
const timeUnit = 1000

// counts holds calls, and maybe their times, by slice, in few bytes: [cells] encoded one after the other. Times are
// multiples of [timeUnit]; so sums are exact. The zero value is empty.
type counts struct {
	bytes  []byte
	calls  uint64 // of all cells
	newest slice  // of the last cell
	recent mark   // before the last few cells: calls are added to them without decoding the others
	fine   mark   // the cells before it cover minutes
	tail   mark   // before the last cell, if there are less than recentCells recent ones
	after  uint8  // number of recent cells; recentCells: unknown
	// window is the beginning of the window of the last comparison, see [counts.seek], earlier the number of calls
	// before it, and earlierLogs the total of their logarithms.
	window      mark
	earlier     uint64
	earlierLogs int64
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
	return slice(distance >> cellFlags)
}

// within returns the cells in r.
func (c *counts) within(r sliceRange) cells { return c.unpack(nil).within(r) }

// seek moves the mark of the window to the first cell at or after a slice. It is fast if the slice is a little later
// than that of the last call.
func (c *counts) seek(at slice) {
	if c.window.before >= at {
		c.forgetWindow()
	}
	for int(c.window.offset) < len(c.bytes) {
		x, next := decodeCell(c.bytes, int(c.window.offset), c.window.before)
		if x.slice >= at {
			return
		}
		c.window = mark{int32(next), x.slice}
		c.earlier += uint64(x.calls)
		c.earlierLogs += x.logs
	}
}

// forgetWindow forgets what seek has found.
func (c *counts) forgetWindow() { c.window, c.earlier, c.earlierLogs = mark{}, 0, 0 }

// add adds the calls of x.
func (c *counts) add(x cell) {
	if c.recent.offset > 0 && x.slice <= c.recent.before {
		all := c.unpack(nil)
		all.add(x)
		c.pack(all)
		return
	}
	if c.after == 0 || c.after == recentCells || x.slice < c.newest {
		var memory [recentCells + 1]cell
		recent := decodeCells(memory[:0], c.bytes[c.recent.offset:], c.recent.before)
		recent.add(x)
		c.bytes = c.bytes[:c.recent.offset]
		c.append(recent)
	} else {
		c.addLast(x)
	}
	c.calls += uint64(x.calls)
	c.newest = max(c.newest, x.slice)
	if x.slice <= c.window.before {
		c.forgetWindow()
	}
	if x.slice <= c.fine.before {
		c.fine = mark{}
	}
}

// addLast adds calls to the last cell, or behind it.
func (c *counts) addLast(x cell) {
	if x.slice == c.newest {
		last, _ := decodeCell(c.bytes, int(c.tail.offset), c.tail.before)
		x.merge(&last)
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

// slackOf returns the number of bytes to reserve beyond n: few, since the length of a history soon stays about the
// same.
func slackOf(n int) int { return n/16 + 8 }

// What cells have besides calls.
const (
	timed  = 1 << iota // a time
	logged             // logarithms of times

	cellFlags = 2 // number of bits
)

// appendCells encodes cells that follow one of slice before: each as the distance of its slice with flags, its calls,
// its time, and the logarithms.
func appendCells(b []byte, of cells, before slice) []byte {
	const longest = 3*binary.MaxVarintLen64 + binary.MaxVarintLen32 // bytes of a cell
	for _, x := range of {
		if len(b)+longest > cap(b) {
			b = append(make([]byte, 0, len(b)+longest+slackOf(len(b))), b...)
		}
		distance := uint64(x.slice-before) << cellFlags
		before = x.slice
		if x.nanos != 0 {
			distance |= timed
		}
		if x.logs != 0 {
			distance |= logged
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, distance), uint64(x.calls))
		if x.nanos != 0 {
			b = binary.AppendVarint(b, x.nanos/timeUnit)
		}
		if x.logs != 0 {
			b = binary.AppendVarint(b, x.logsOfMean()-x.logs) // most have a single byte
		}
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
	x = cell{slice: before + slice(distance>>cellFlags), calls: uint32(calls)}
	if distance&timed != 0 {
		x.nanos, i = decodeVarint(b, i)
		x.nanos *= timeUnit
	}
	if distance&logged != 0 {
		var less int64
		less, i = decodeVarint(b, i)
		x.logs = x.logsOfMean() - less
	}
	return x, i
}

// decodeVarint returns the number that begins at offset i and the offset behind it, as [binary.Varint] does.
func decodeVarint(b []byte, i int) (x int64, next int) {
	u := uint64(0)
	for shift := 0; ; shift += 7 {
		c := b[i]
		i++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
}
