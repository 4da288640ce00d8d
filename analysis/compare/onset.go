package compare

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Constants of [Comparer.Onset].
const (
	settled = 3 * time.Minute // length of the end of an interval that shows the extent of a change
	loudest = 4               // maximum weight of a slice, in multiples of the extent of the change
)

// Onset estimates the start of the change that service shows at the end of the interval: more time in the service or in
// calls to or from it, or calls that fail or get no answer. Other changed shapes don't count, because a deploy may
// precede a fault, except for added, the calls that the service is known to add at a cost. Onset returns the start of a
// slice in the interval.
//
// Each slice scores its loss relative to the means before the interval, minus half the mean loss of the slices at the
// end. The change starts at the slice that maximizes the sum of the scores from there to the end: this is the
// maximum-likelihood estimate of a shift of known size in normal noise (Page, "Continuous inspection schemes",
// Biometrika 41, 1954). The weight of a single slice is limited, so that one slow request shortly before a change is
// not mistaken for its start.
func (m *Comparer) Onset(service trace.Symbol, added []AddedCall, within history.Interval) trace.Nanos {
	r := within.Slices()
	losses := m.lossesOf(m.Services.Number(service), added, r)
	after := 0.0
	last := losses[max(0, len(losses)-int(settled/history.SliceLength)):]
	for _, x := range last {
		after += x / float64(len(last))
	}
	sum, most, onset := 0.0, 0.0, r.To-history.Slice(len(last))
	for i, x := range slices.Backward(losses) {
		if sum += min(x, loudest*after) - after/2; sum > most {
			most, onset = sum, r.From+history.Slice(i)
		}
	}
	return onset.Start()
}

// losses counts the time and the calls that a service and its neighbours lose relative to the history before a window.
type losses struct {
	*liveWindow
	bySlice []float64 // by slice of the window, in requests
}

// lossesOf returns the losses of a service, which adds calls, and its neighbours by slice of r.
func (m *Comparer) lossesOf(service int32, added []AddedCall, r history.Range) []float64 {
	h, sites := m.Sites, m.All()
	c := losses{m.comparison(r, h.Skipped.Any()), make([]float64, max(0, r.Length()))}
	usual := c.usual()
	c.chooseTimes()
	callees, _ := h.Callees(nil)
	for i := 1; i < len(sites); i++ {
		if sites[i].Service != service && callees[i].Service != service {
			continue
		}
		c.site.Cells = c.times(int32(i)).Unpack(c.site.Cells)
		// The calls at a new site, such as those that end after a timeout, may be long because of the change.
		isNew := len(c.site.Cells) > 0 && c.site.Cells[0].Slice >= r.From
		if _, long := h.Long(int32(i)); long && !isNew {
			continue
		}
		now := c.site.Cells.Within(r)
		if sites[i].Parent == 0 {
			c.addMissing(h.Series(int32(i)))
		}
		if len(now) == 0 {
			continue
		}
		c.skip(sites[i].Service)
		c.site.unpackShapes(h.Series(int32(i)))
		series, past, before := c.history(int32(i))
		if before < history.MinHistory {
			continue
		}
		c.poolShapes(series)
		mean, onPath := float64(past.Own())/float64(before), now.OnPath()
		for _, x := range now {
			if c.inside(int32(i)) {
				break
			}
			c.bySlice[x.Slice-r.From] += (float64(x.Own()) - mean*float64(x.Calls)) * onPath / usual
		}
		for k := range c.site.shapes {
			x := &c.site.shapes[k]
			if x.Failed || sites[i].Service != service && !x.ShowsAnswer() {
				c.addShape(now, x, series, before)
			}
		}
	}
	for i := range added {
		c.addCalls(&added[i], sites, callees, usual)
	}
	return c.bySlice
}

// addCalls adds the time of the calls that x.Caller makes beyond their usual number. Own times don't show it: they are
// compared per call, and a new operation has no earlier calls to compare with.
func (c *losses) addCalls(x *AddedCall, sites []history.Site, callees []history.Callee, usual float64) {
	if x.Now <= x.Before {
		return
	}
	each := x.Nanos / (x.Now - x.Before) / usual
	for i := 1; i < len(sites); i++ {
		number := 0.0
		if sites[i].Op == x.Caller && !sites[i].Border {
			number -= x.Before
		}
		if sites[i].Parent == x.Caller && (sites[i].Op == x.Op || callees[i].Op == x.Op) {
			number++
		}
		if number == 0 {
			continue
		}
		c.site.Cells = c.times(int32(i)).Unpack(c.site.Cells)
		for _, y := range c.site.Cells.Within(c.window) {
			c.bySlice[y.Slice-c.window.From] += number * each * float64(y.Calls)
		}
	}
}

// addMissing adds the calls that are missing since the last call in s, the series of a site where requests start, if
// there are no calls at the end of the window. c.site must hold the cells of s.
func (c *losses) addMissing(s *history.Series) {
	last := s.Last()
	if c.window.To-last < history.Slice(settled/history.SliceLength) {
		return
	}
	past := c.site.Cells.Within(history.Range{From: 0, To: last})
	if len(past) == 0 {
		return
	}
	rate := float64(past.Calls()) / float64(last-past[0].Slice)
	for at := max(c.window.From, last+1); at < c.window.To; at++ {
		c.bySlice[at-c.window.From] += rate
	}
}

// addShape adds the calls of shape x beyond the share of that shape before the window. now holds all calls at the site,
// and before is the number of calls in series. Only shapes that became more frequent count, as in Compare.
func (c *losses) addShape(now history.Cells, x *judgedShape, series *judgedSeries, before uint64) {
	share := 0.0
	for i := range series.shapes {
		if y := &series.shapes[i]; y.Shape == x.Shape {
			share = float64(c.past(y.Cells, &c.keptShape).Calls()) / float64(before)
		}
	}
	within := x.Within(c.window)
	if float64(within.Calls()) <= share*float64(now.Calls()) {
		return
	}
	for _, y := range within {
		c.bySlice[y.Slice-c.window.From] += float64(y.Calls)
	}
	for _, y := range now {
		c.bySlice[y.Slice-c.window.From] -= share * float64(y.Calls)
	}
}
