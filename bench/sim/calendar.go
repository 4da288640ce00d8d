package sim

import "sort"

// calendar holds when something that one request at a time can have is taken: a lock, a core. Reservations are made in
// the order in which the requests arrived; each takes the first gap that is long enough, so that nothing is taken twice
// and nobody waits for a gap that he could have used.
type calendar struct {
	taken []interval // ascending, without overlap; what touches is merged
}

type interval struct{ start, end int64 }

// first returns the earliest time at or after t from which the calendar is free for d, and the index in taken of what
// follows.
func (c *calendar) first(t, d int64) (start int64, before int) {
	i := sort.Search(len(c.taken), func(i int) bool { return c.taken[i].end > t })
	for ; i < len(c.taken) && c.taken[i].start < t+d; i++ {
		t = max(t, c.taken[i].end)
	}
	return t, i
}

// take reserves [start, start+d), which [calendar.first] returned with before.
func (c *calendar) take(start, d int64, before int) {
	end := start + d
	joinsLeft := before > 0 && c.taken[before-1].end == start
	joinsRight := before < len(c.taken) && c.taken[before].start == end
	switch {
	case joinsLeft && joinsRight:
		c.taken[before-1].end = c.taken[before].end
		c.taken = append(c.taken[:before], c.taken[before+1:]...)
	case joinsLeft:
		c.taken[before-1].end = end
	case joinsRight:
		c.taken[before].start = start
	default:
		c.taken = append(c.taken, interval{})
		copy(c.taken[before+1:], c.taken[before:])
		c.taken[before] = interval{start, end}
	}
}

// forget drops what ended before now: no reservation will be made there any more.
func (c *calendar) forget(now int64) {
	i := 0
	for i < len(c.taken) && c.taken[i].end < now {
		i++
	}
	if i > 0 {
		c.taken = append(c.taken[:0], c.taken[i:]...)
	}
}

// reserveAny reserves d on the calendar that is free first, and returns from when.
func reserveAny(calendars []calendar, t, d int64) int64 {
	best, bestStart, bestBefore := 0, int64(0), 0
	for i := range calendars {
		if start, before := calendars[i].first(t, d); i == 0 || start < bestStart {
			best, bestStart, bestBefore = i, start, before
		}
	}
	calendars[best].take(bestStart, d, bestBefore)
	return bestStart
}
