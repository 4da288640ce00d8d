package assemble

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Calendar counts traces by the day on which they ended, in days since 1970, to find traces with wrong clocks. Create
// it with make.
type Calendar map[int]*day

// day counts the traces that ended on one day.
type day struct {
	traces   int
	from, to trace.Nanos // first start and last end
}

// Add adds a trace whose first span starts at `from` and whose last span ends at `to`.
func (c Calendar) Add(from, to trace.Nanos) {
	number := int(to / trace.Nanos(24*time.Hour))
	d := c[number]
	if d == nil {
		d = &day{from: from, to: to}
		c[number] = d
	}
	d.traces++
	d.from, d.to = min(d.from, from), max(d.to, to)
}

// Limits on the distances between the traces of one recording.
const (
	farDays    = 365 // maximum number of days from the median trace; no recording is that long
	apartDays  = 2   // maximum number of days from the other traces, unless these span more days
	apartShare = 100 // traces that are further apart are a separate recording if they are at least 1/apartShare of all
)

// Recorded returns the first start and the last end of the traces whose clocks may be right, or zeros if there are no
// traces. A clock counts as wrong if its traces are more than a year from the median trace, or if there are few of them
// and they are further from the other traces than the time that the others cover.
func (c Calendar) Recorded() (from, to trace.Nanos) {
	days := slices.Sorted(maps.Keys(c))
	if len(days) == 0 {
		return 0, 0
	}
	all := 0
	for _, d := range c {
		all += d.traces
	}
	median, passed := 0, 0
	for 2*(passed+c[days[median]].traces) < all {
		passed += c[days[median]].traces
		median++
	}
	far := func(number int) bool {
		return number < days[median]-farDays || number > days[median]+farDays
	}
	first, last := median, median
	for first > 0 && !far(days[first-1]) &&
		(near(days[first-1:last+1], 1) || apartShare*c.traces(days[:first], far) >= all) {
		first--
	}
	for last+1 < len(days) && !far(days[last+1]) &&
		(near(days[first:last+2], last+1-first) || apartShare*c.traces(days[last+1:], far) >= all) {
		last++
	}
	from, to = c[days[first]].from, c[days[first]].to
	for _, number := range days[first : last+1] {
		from, to = min(from, c[number].from), max(to, c[number].to)
	}
	return from, to
}

// near reports whether the gap between days[:index] and days[index:] is at most apartDays, or at most as long as the
// longer of the two ranges. Neither may be empty.
func near(days []int, index int) bool {
	before, after := days[:index], days[index:]
	lasts := max(before[len(before)-1]-before[0], after[len(after)-1]-after[0]) + 1
	return after[0]-before[len(before)-1] <= max(apartDays, lasts)
}

// traces returns the number of traces on the given days, except the days for which far returns true.
func (c Calendar) traces(days []int, far func(int) bool) (n int) {
	for _, number := range days {
		if !far(number) {
			n += c[number].traces
		}
	}
	return n
}
