package baselinediff

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Constants of [Sites.Onset].
const (
	settled = 3 * time.Minute // at the end of an interval, which shows the extent of a change
	loudest = 4               // times the extent of the change, the most that a slice counts
)

// Onset estimates when a change began that a service shows at the end of an interval: more time in the service or in
// calls to or from it, or other shapes of its calls. It returns the beginning of a slice in the interval.
//
// For each slice it adds up what requests lose relative to the means before the interval. The change begins where the
// sum of these losses, each less half of what a slice loses at the end, is largest up to the end: the estimate by
// maximum likelihood of a shift of known size in normal noise (Page, "Continuous inspection schemes", Biometrika 41,
// 1954). Single slices count little, so that one slow request shortly before a change is not its beginning.
func (h *Sites) Onset(service trace.Symbol, within Interval) trace.Nanos {
	r := sliceRange{sliceOf(within.From), sliceOf(within.To)}
	losses := h.losses(h.serviceNumbers[service], r)
	after := 0.0
	last := losses[max(0, len(losses)-int(settled/Slice)):]
	for _, x := range last {
		after += x / float64(len(last))
	}
	sum, most, onset := 0.0, 0.0, r.to-slice(len(last))
	for i, x := range slices.Backward(losses) {
		if sum += min(x, loudest*after) - after/2; sum > most {
			most, onset = sum, r.from+slice(i)
		}
	}
	return trace.Nanos(onset) * trace.Nanos(Slice)
}

// losses returns, by slice, the requests' worth of time and calls that a service and those that it calls or is called
// by lose relative to the history before r.
func (h *Sites) losses(service int32, r sliceRange) []float64 {
	c := liveComparison{liveMemory: &liveMemory{}, h: h, window: r, skipped: h.skipped.all().before(r.from)}
	usual, callees := c.usual(), c.graph().callee
	losses := make([]float64, max(0, r.to-r.from))
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].service != service && callees[i].service != service {
			continue
		}
		c.site.cells = h.series[i].unpack(c.site.cells)
		now := c.site.cells.within(r)
		if h.sites[i].parent == 0 {
			c.addMissing(losses, &h.series[i])
		}
		if len(now) == 0 {
			continue
		}
		c.skip(h.sites[i].service)
		c.site.unpackShapes(&h.series[i])
		history, past, before := c.history(int32(i))
		if before < minHistory {
			continue
		}
		c.poolShapes(history)
		mean := float64(past.time()) / float64(before)
		for _, x := range now {
			losses[x.slice-r.from] += (float64(x.nanos) - mean*float64(x.calls)) / usual
		}
		for k := range c.site.shapes {
			c.addShapeLosses(losses, now, &c.site.shapes[k], history, before)
		}
	}
	return losses
}

// addMissing adds the calls that are missing since the last one at a site where requests begin, if there are none at
// the end of the window.
func (c *liveComparison) addMissing(losses []float64, s *siteSeries) {
	last := s.last()
	if c.window.to-last < slice(settled/Slice) {
		return
	}
	past := c.site.cells.within(sliceRange{0, last})
	if len(past) == 0 {
		return
	}
	rate := float64(past.calls()) / float64(last-past[0].slice)
	for at := max(c.window.from, last+1); at < c.window.to; at++ {
		losses[at-c.window.from] += rate
	}
}

// addShapeLosses adds the calls of a shape beyond its share of the calls before the window. Only shapes that became
// more frequent count, as in Compare.
func (c *liveComparison) addShapeLosses(losses []float64, now cells, x *judgedShape, history *judgedSeries, before uint64) {
	share := 0.0
	for i := range history.shapes {
		if y := &history.shapes[i]; y.shape == x.shape {
			share = float64(c.past(y.cells, &c.keptShape).calls()) / float64(before)
		}
	}
	within := x.within(c.window)
	if float64(within.calls()) <= share*float64(now.calls()) {
		return
	}
	for _, y := range within {
		losses[y.slice-c.window.from] += float64(y.calls)
	}
	for _, y := range now {
		losses[y.slice-c.window.from] -= share * float64(y.calls)
	}
}
