package baselinediff

import (
	"cmp"
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
}

// counts holds calls, and maybe their times, by slice. The zero value is empty.
type counts struct {
	cells []cell  // ascending by slice; none is empty
	nanos []int64 // by cell: the total time; nil if only calls are counted
}

// count adds calls without times.
func (c *counts) count(at slice, calls uint32) { c.cells[c.at(at)].calls += calls }

// add adds calls with their total time.
func (c *counts) add(at slice, calls uint32, nanos int64) {
	i := c.at(at)
	if len(c.nanos) < len(c.cells) {
		c.nanos = insert(c.nanos, i, 0)
	}
	c.cells[i].calls += calls
	c.nanos[i] += nanos
}

// at returns the index of the cell of a slice. It inserts the cell if there is none.
func (c *counts) at(at slice) int {
	i := len(c.cells) // calls mostly come in the order of time
	if i > 0 && c.cells[i-1].slice >= at {
		i, _ = slices.BinarySearchFunc(c.cells, at, func(x cell, at slice) int { return cmp.Compare(x.slice, at) })
	}
	if i == len(c.cells) || c.cells[i].slice != at {
		c.cells = insert(c.cells, i, cell{slice: at})
	}
	return i
}

// insert is slices.Insert, but reserves memory for only an eighth more: the length of a history soon stays about the
// same.
func insert[T any](s []T, i int, x T) []T {
	if n := len(s); n == cap(s) {
		s = append(make([]T, 0, n+n/8+4), s...)
	}
	return slices.Insert(s, i, x)
}

// part returns cells [first, last). It shares their memory.
func (c *counts) part(first, last int) counts {
	p := counts{cells: c.cells[first:last]}
	if c.nanos != nil {
		p.nanos = c.nanos[first:last]
	}
	return p
}

// within returns the cells in r. It shares their memory.
func (c *counts) within(r sliceRange) counts {
	first := len(c.cells)
	for first > 0 && c.cells[first-1].slice >= r.from {
		first--
	}
	last := len(c.cells)
	for last > first && c.cells[last-1].slice >= r.to {
		last--
	}
	return c.part(first, last)
}

// calls returns the number of calls.
func (c *counts) calls() (n uint64) {
	for _, x := range c.cells {
		n += uint64(x.calls)
	}
	return n
}

// time returns the total time.
func (c *counts) time() (nanos int64) {
	for _, x := range c.nanos {
		nanos += x
	}
	return nanos
}

// fold joins the cells of each minute in [from, to). Those before from cover minutes already.
func (c *counts) fold(from, to slice) {
	n := len(c.cells)
	for n > 0 && c.cells[n-1].slice >= from {
		n--
	}
	rest := c.part(n, len(c.cells)) // each of its cells is read before its memory is written
	c.cells, c.nanos = c.cells[:n], c.nanos[:min(n, len(c.nanos))]
	for i, x := range rest.cells {
		if x.slice < to {
			x.slice = x.slice.minute()
		}
		if rest.nanos == nil {
			c.count(x.slice, x.calls)
		} else {
			c.add(x.slice, x.calls, rest.nanos[i])
		}
	}
}

// drop deletes the cells before oldest.
func (c *counts) drop(oldest slice) {
	n := 0
	for n < len(c.cells) && c.cells[n].slice < oldest {
		n++
	}
	c.cells = slices.Delete(c.cells, 0, n)
	c.nanos = slices.Delete(c.nanos, 0, min(n, len(c.nanos)))
}
