package history

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// SliceLength is the length of a slice, the unit of time for counting calls.
const SliceLength = 10 * time.Second

// Slice numbers slices of time, counted from the Unix epoch.
type Slice int32

// SliceOf returns the slice that contains t.
func SliceOf(t trace.Nanos) Slice { return Slice(int64(t) / int64(SliceLength)) }

// SlicesPerMinute is the number of slices of a minute.
const SlicesPerMinute = Slice(time.Minute / SliceLength)

// Start returns the start of s.
func (s Slice) Start() trace.Nanos { return trace.Nanos(s) * trace.Nanos(SliceLength) }

func (s Slice) minute() Slice { return s - s%SlicesPerMinute }

// Range is the slices [From, To).
type Range struct{ From, To Slice }

// Length returns the number of slices in r.
func (r Range) Length() Slice { return r.To - r.From }

// Contains reports whether s is in r.
func (r Range) Contains(s Slice) bool { return r.From <= s && s < r.To }

// Cell counts the calls of a slice.
type Cell struct {
	Slice Slice
	Calls uint32
	Nanos int64 // total time of the calls on the critical path; 0 if only calls are counted
	// Beside is the total own time of the calls off the critical path, which ran while other calls took longer. Such
	// calls move to the path once the other calls become faster or are no longer made. That's why a service is judged
	// by the own times of all of its calls, although only the part on the path counts as added latency.
	Beside int64
	logs   int64 // total of the logarithms of the own times, see [logOf]; 0 if not needed
}

// Own returns the total own time of the calls.
func (x *Cell) Own() int64 { return x.Nanos + x.Beside }

// logsOfMean returns the value that logs would have if all calls of x took the same time. x may have no calls if it
// comes from a damaged file.
func (x *Cell) logsOfMean() int64 { return int64(x.Calls) * logOf(x.Own()/max(1, int64(x.Calls))) }

// Cells holds calls by slice, in ascending order and without empty cells.
type Cells []Cell

// Merge adds the calls of y to x, ignoring the slice of y.
func (x *Cell) Merge(y *Cell) {
	x.Calls += y.Calls
	x.Nanos += y.Nanos
	x.Beside += y.Beside
	x.logs += y.logs
}

// Add adds the calls of x to the cell of its slice, inserting the cell if necessary.
func (c *Cells) Add(x Cell) {
	i := len(*c) // calls mostly arrive in order of time
	if i > 0 && (*c)[i-1].Slice >= x.Slice {
		i, _ = slices.BinarySearchFunc(*c, x.Slice, func(y Cell, at Slice) int { return cmp.Compare(y.Slice, at) })
	}
	if i == len(*c) || (*c)[i].Slice != x.Slice {
		*c = slices.Insert(*c, i, Cell{Slice: x.Slice})
	}
	(*c)[i].Merge(&x)
}

// Within returns the cells in r. It shares the memory of c.
func (c Cells) Within(r Range) Cells {
	first := len(c)
	for first > 0 && c[first-1].Slice >= r.From {
		first--
	}
	last := len(c)
	for last > first && c[last-1].Slice >= r.To {
		last--
	}
	return c[first:last]
}

// Calls returns the number of calls.
func (c Cells) Calls() (n uint64) {
	for i := range c {
		n += uint64(c[i].Calls)
	}
	return n
}

// Time returns the total time on the critical path.
func (c Cells) Time() (nanos int64) {
	for i := range c {
		nanos += c[i].Nanos
	}
	return nanos
}

// Own returns the total own time.
func (c Cells) Own() (nanos int64) {
	for i := range c {
		nanos += c[i].Own()
	}
	return nanos
}

// OnPath returns the fraction (0–1) of the own time that is on the critical path, or 1 if there is no own time.
func (c Cells) OnPath() float64 {
	own := c.Own()
	if own <= 0 {
		return 1
	}
	return float64(c.Time()) / float64(own)
}

// fold joins the cells of each minute in [from, to), in place. Cells before `from` already cover minutes.
func (c Cells) fold(from, to Slice) Cells {
	n := len(c)
	for n > 0 && c[n-1].Slice >= from {
		n--
	}
	folded := c[:n]
	for _, x := range c[n:] { // each is read before its memory is overwritten
		if x.Slice < to {
			x.Slice = x.Slice.minute()
		}
		folded.Add(x)
	}
	return folded
}

// timeUnit is the resolution in ns of the times in counts. A finer resolution takes 40 % more bytes.
const timeUnit = 1000

// round rounds nanos to a multiple of [timeUnit].
func round(nanos int64) int64 { return (nanos + timeUnit/2) / timeUnit * timeUnit }

// Counts holds calls, and optionally their times, by slice, in few bytes: as [Cells] encoded one after another. Times
// are multiples of [timeUnit], so sums are exact. The zero value is empty and ready to use.
type Counts struct {
	bytes  []byte
	Calls  uint64 // of all cells
	newest Slice  // of the last cell
	recent mark   // before the last few cells, to which calls can be added without decoding the others
	fine   mark   // cells before it cover minutes
	tail   mark   // before the last cell, if there are fewer than recentCells recent ones
	after  uint8  // number of recent cells; recentCells means unknown
	// window is the start of the window of the last comparison; see [Counts.seek]. earlier is the number of calls
	// before it, and earlierLogs the total of their logarithms.
	window      mark
	following   Slice // at most the slice of the cell after window; 0 if unknown
	earlier     uint64
	earlierLogs int64
}

// mark is a position between two cells.
type mark struct {
	offset int32 // of the first byte of the cell after it
	before Slice // slice of the cell before it; 0 if there is no such cell
}

// recentCells is the largest number of recent cells. A trace is rarely open for more epochs than that, so the cell of a
// late call is usually among them.
const recentCells = 8

// empty reports whether there are no calls.
func (c *Counts) empty() bool { return len(c.bytes) == 0 }

// clone returns a copy of c that shares no memory with it.
func (c *Counts) clone() Counts {
	copied := *c
	copied.bytes = slices.Clone(c.bytes)
	return copied
}

// Unpack returns all cells, reusing the memory of into.
func (c *Counts) Unpack(into Cells) Cells { return decodeCells(into[:0], c.bytes, 0) }

// Last returns the last slice with calls, or -1 if there are no calls.
func (c *Counts) Last() Slice {
	if c.empty() {
		return -1
	}
	return c.newest
}

// First returns the first slice with calls, or -1 if there are no calls.
func (c *Counts) First() Slice {
	if c.empty() {
		return -1
	}
	distance, _ := binary.Uvarint(c.bytes)
	return Slice(distance >> cellFlags)
}

// Within returns the cells in r.
func (c *Counts) Within(r Range) Cells { return c.Unpack(nil).Within(r) }

// Encoded is a sequence of encoded cells, decoded one at a time.
type Encoded struct {
	rest   []byte
	before Slice // slice of the cell before rest
}

// More reports whether any cells are left.
func (p *Encoded) More() bool { return len(p.rest) > 0 }

// Next removes and returns the first cell. It must not be called if there are no cells left.
func (p *Encoded) Next() Cell {
	x, i := decodeCell(p.rest, 0, p.before)
	p.rest, p.before = p.rest[i:], x.Slice
	return x
}

// Peek returns the first cell. It must not be called if there are no cells left.
func (p *Encoded) Peek() Cell {
	x, _ := decodeCell(p.rest, 0, p.before)
	return x
}

// Decode appends the cells to into.
func (p Encoded) Decode(into Cells) Cells { return decodeCells(into, p.rest, p.before) }

// Encoded returns all cells, encoded.
func (c *Counts) Encoded() Encoded { return Encoded{rest: c.bytes} }

// Split returns the encoded cells before slice `at`, the other cells, and the number of calls before `at`. It is fast
// if `at` is a little later than in the previous call.
func (c *Counts) Split(at Slice) (past, rest Encoded, before uint64) {
	c.seek(at)
	return Encoded{rest: c.bytes[:c.window.offset]}, Encoded{c.bytes[c.window.offset:], c.window.before}, c.earlier
}

// InWindow returns the cells in r, reusing the memory of into. It is fast if r.From is a little later than in the
// previous call.
func (c *Counts) InWindow(r Range, into Cells) Cells {
	_, rest, _ := c.Split(r.From)
	return rest.Decode(into[:0]).Within(r)
}

// seek moves c.window to the first cell at or after slice `at`, and sums up the cells before it. It is fast if `at` is
// a little later than in the previous call.
func (c *Counts) seek(at Slice) {
	if c.window.before >= at {
		c.forgetWindow()
	} else if c.following >= at {
		return
	}
	for int(c.window.offset) < len(c.bytes) {
		x, next := decodeCell(c.bytes, int(c.window.offset), c.window.before)
		if c.following = x.Slice; x.Slice >= at {
			return
		}
		c.window = mark{int32(next), x.Slice}
		c.earlier += uint64(x.Calls)
		c.earlierLogs += x.logs
	}
	c.following = 0
}

// forgetWindow forgets the result of seek.
func (c *Counts) forgetWindow() { c.window, c.following, c.earlier, c.earlierLogs = mark{}, 0, 0, 0 }

// add adds the calls of x.
func (c *Counts) add(x Cell) {
	if c.recent.offset > 0 && x.Slice <= c.recent.before {
		all := c.Unpack(nil)
		all.Add(x)
		c.pack(all)
		return
	}
	if c.after == 0 || c.after == recentCells || x.Slice < c.newest {
		var memory [recentCells + 1]Cell
		recent := decodeCells(memory[:0], c.bytes[c.recent.offset:], c.recent.before)
		recent.Add(x)
		c.bytes = c.bytes[:c.recent.offset]
		c.append(recent)
	} else {
		c.addLast(x)
	}
	c.Calls += uint64(x.Calls)
	c.newest = max(c.newest, x.Slice)
	if x.Slice <= c.window.before {
		c.forgetWindow()
	}
	c.following = min(c.following, x.Slice)
	if x.Slice <= c.fine.before {
		c.fine = mark{}
	}
}

// addLast adds x to the last cell, or after it. x must not be earlier than that cell, and there must be fewer than
// recentCells recent cells.
func (c *Counts) addLast(x Cell) {
	if x.Slice == c.newest {
		last, _ := decodeCell(c.bytes, int(c.tail.offset), c.tail.before)
		x.Merge(&last)
		c.bytes = c.bytes[:c.tail.offset]
	} else {
		c.tail = mark{int32(len(c.bytes)), c.newest}
		c.after++
	}
	c.bytes = appendCells(c.bytes, Cells{x}, c.tail.before)
}

// pack replaces all cells with `all`.
func (c *Counts) pack(all Cells) {
	*c = Counts{bytes: c.bytes[:0], Calls: all.Calls()}
	c.append(all)
	if len(all) > 0 {
		c.newest = all[len(all)-1].Slice
	}
	if slack := cap(c.bytes) - len(c.bytes); slack > 2*slackOf(len(c.bytes)) {
		c.bytes = append(make([]byte, 0, len(c.bytes)+slackOf(len(c.bytes))), c.bytes...)
	}
}

// append appends cells. If there are more than recentCells of them, the last recentCells/2 count as recent.
func (c *Counts) append(last Cells) {
	if n := len(last) - recentCells/2; len(last) > recentCells {
		c.bytes = appendCells(c.bytes, last[:n], c.recent.before)
		c.recent = mark{int32(len(c.bytes)), last[n-1].Slice}
		last = last[n:]
	}
	c.tail, c.after = c.recent, uint8(len(last))
	if n := len(last) - 1; n > 0 {
		c.bytes = appendCells(c.bytes, last[:n], c.recent.before)
		c.tail = mark{int32(len(c.bytes)), last[n-1].Slice}
		last = last[n:]
	}
	c.bytes = appendCells(c.bytes, last, c.tail.before)
}

// maxSlice is the largest Slice.
const maxSlice = Slice(1<<31 - 1)

// slackOf returns the number of bytes to reserve beyond n. It is small, because the length of a history soon becomes
// stable.
func slackOf(n int) int { return n/16 + 8 }

// Flags for the contents of cells other than calls.
const (
	timed  = 1 << iota // a time
	logged             // logarithms of times
	beside             // a time off the critical path

	cellFlags = 3 // number of bits
)

// appendCells encodes the cells in `of`, which follow a cell in slice `before`, and appends them to b. Each cell
// consists of the distance of its slice with flags, its calls, its times, and its logarithms.
func appendCells(b []byte, of Cells, before Slice) []byte {
	const longest = 4*binary.MaxVarintLen64 + binary.MaxVarintLen32 // bytes per cell
	for _, x := range of {
		if len(b)+longest > cap(b) {
			b = append(make([]byte, 0, len(b)+longest+slackOf(len(b))), b...)
		}
		distance := uint64(x.Slice-before) << cellFlags
		before = x.Slice
		if x.Nanos != 0 {
			distance |= timed
		}
		if x.logs != 0 {
			distance |= logged
		}
		if x.Beside != 0 {
			distance |= beside
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, distance), uint64(x.Calls))
		if x.Nanos != 0 {
			b = binary.AppendVarint(b, x.Nanos/timeUnit)
		}
		if x.Beside != 0 {
			b = binary.AppendVarint(b, x.Beside/timeUnit)
		}
		if x.logs != 0 {
			b = binary.AppendVarint(b, x.logsOfMean()-x.logs) // most have a single byte
		}
	}
	return b
}

// decodeCells appends the decoded cells of b to into. before is the slice of the cell before them, as in appendCells.
func decodeCells(into Cells, b []byte, before Slice) Cells {
	for i := 0; i < len(b); {
		var x Cell
		x, i = decodeCell(b, i, before)
		before = x.Slice
		into = append(into, x)
	}
	return into
}

// decodeCell returns the cell that starts at offset i of b, and the offset of the next one. before is the slice of the
// cell before it.
func decodeCell(b []byte, i int, before Slice) (x Cell, next int) {
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
	x = Cell{Slice: before + Slice(distance>>cellFlags), Calls: uint32(calls)}
	if distance&timed != 0 {
		x.Nanos, i = decodeVarint(b, i)
		x.Nanos *= timeUnit
	}
	if distance&beside != 0 {
		x.Beside, i = decodeVarint(b, i)
		x.Beside *= timeUnit
	}
	if distance&logged != 0 {
		var less int64
		less, i = decodeVarint(b, i)
		x.logs = x.logsOfMean() - less
	}
	return x, i
}

// decodeVarint returns the number that starts at offset i and the offset after it, like [binary.Varint].
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

// LowestMean divides c into consecutive parts with about equally many calls, and returns the lowest mean own time of a
// part in ns. c must have calls.
func (c Cells) LowestMean(parts int) float64 {
	calls, n := c.Calls(), uint64(parts)
	least, partCalls, partNanos, done := float64(c.Own())/float64(calls), uint64(0), int64(0), uint64(0)
	for _, x := range c {
		partCalls += uint64(x.Calls)
		partNanos += x.Own()
		// If there are three parts, each ends with the cell that completes a third of the calls.
		if (done+partCalls)*n >= calls*(done*n/calls+1) {
			least = min(least, float64(partNanos)/float64(partCalls))
			done += partCalls
			partCalls, partNanos = 0, 0
		}
	}
	return least
}

// SteadyParts is the number of parts into which compare.Steady divides a window.
const SteadyParts = 3

// Part returns the i-th of n nearly equal parts of r, counting from 0.
func (r Range) Part(i, n int) Range {
	return Range{r.From + Slice(i)*r.Length()/Slice(n), r.From + Slice(i+1)*r.Length()/Slice(n)}
}

// MinHistory is the minimum number of calls for quartiles.
const MinHistory = 4
