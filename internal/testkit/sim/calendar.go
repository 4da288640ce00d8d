package sim

import "sort"

// calendar holds the reservations of an exclusive resource, such as a lock or a core. Requests reserve the resource in
// the order of their arrival. Each request gets the first gap that is long enough.
type calendar struct {
	taken []interval // ascending, disjoint; adjacent intervals are merged
}

type interval struct{ start, end int64 }

// first returns the earliest time, at or after t, from which the calendar is free for d, and the index in taken of the
// next interval.
func (c *calendar) first(t, d int64) (start int64, before int) {
	i := sort.Search(len(c.taken), func(i int) bool { return c.taken[i].end > t })
	for ; i < len(c.taken) && c.taken[i].start < t+d; i++ {
		t = max(t, c.taken[i].end)
	}
	return t, i
}

// take reserves [start, start+d). start and before must be the results of [calendar.first].
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

// forget drops intervals that ended before now. Later reservations must not start before now.
func (c *calendar) forget(now int64) {
	i := 0
	for i < len(c.taken) && c.taken[i].end < now {
		i++
	}
	if i > 0 {
		c.taken = append(c.taken[:0], c.taken[i:]...)
	}
}

// reserveAny reserves d ns at or after t, on the calendar that is free first. It returns the start of the reservation.
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
