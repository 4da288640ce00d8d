package compare

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// liveWindow is a window of the history of a running service, to be compared with the time before.
type liveWindow struct {
	*ledger
	*comparing
	of      *Comparer
	h       *history.Sites
	window  history.Range
	skipped history.Ranges // times excluded from the history of the current service, or of all services
	skips   []serviceSkips // the same, by number of the service
	local   []bool         // by number of the service: whether it is judged by local times; nil if no service is
	// wide holds, by number of the pool, the pooled histories of sites that have too little history of their own.
	wide map[int32]*pooledSeries
}

// serviceSkips holds the skipped times of a service.
type serviceSkips struct {
	history.Ranges
	known bool
}

// comparing is memory that successive comparisons reuse.
type comparing struct {
	bad    []badCalls // by site
	now    []float64  // by site: calls in the window
	judged []int32    // sites with calls in the window

	otherTargets bool // the current site is compared with all calls of its operation, whatever their targets

	pieces    []livePiece // of the history of the current site
	means     []float64
	current   sample
	shapes    []history.Shape             // of the current sample
	shares    []float64                   // of shapes in pieces
	known     map[history.Shape][]float64 // the same by shape
	site      judgedSeries                // the current one
	kept      history.Cells               // scratch memory for the past of a site
	keptShape history.Cells               // the same for a shape
	sum       sums
	screening screening
	assessed  [2][]assessment // of the current block of sites and the next one

	callees, behind []history.Callee // by site
	below           []explained
	visited         []uint8
}

// judgedSeries is the unpacked history of a site.
type judgedSeries struct {
	history.Cells
	shapes []judgedShape
}

type judgedShape struct {
	history.Shape
	history.Cells
}

// unpackShapes unpacks the shapes of a site into s.
func (s *judgedSeries) unpackShapes(of *history.Series) {
	s.shapes = slices.Grow(s.shapes[:0], len(of.Shapes))[:len(of.Shapes)]
	for i := range of.Shapes {
		s.shapes[i].Shape = of.Shapes[i].Shape
		s.shapes[i].Cells = of.Shapes[i].Unpack(s.shapes[i].Cells)
	}
}

// livePiece is a piece of the history of a site.
type livePiece struct {
	history.Range
	first, last int // cells of the past
	calls       float64
}

// badCalls counts the calls at a site in the window whose shapes are beyond the variation of the history.
type badCalls struct {
	calls  float64 // all calls
	shapes []badShape
	total  float64
	failed float64 // the part of total whose spans failed
}

type badShape struct {
	history.Shape
	calls float64
}

// skip sets c.skipped to the skipped times of service.
func (c *liveWindow) skip(service int32) {
	if c.skips == nil {
		c.skips = make([]serviceSkips, len(c.h.Services.Names()))
	}
	s := &c.skips[service]
	if !s.known {
		*s = serviceSkips{c.h.Skipped.Of(c.h.Services.Names()[service]).Before(c.window.From), true}
	}
	c.skipped = s.Ranges
}

// past returns the cells of `all` before the window, without skipped ones. They share the memory of `all` or, if some
// are skipped, of kept.
func (c *liveWindow) past(all history.Cells, kept *history.Cells) history.Cells {
	end := len(all)
	for end > 0 && all[end-1].Slice >= c.window.From {
		end--
	}
	return all[:end].Without(c.skipped, kept)
}

// usual returns the mean duration of a trace in the history in ns, at least 1, because all times are relative to it. If
// the whole history is skipped, it uses the skipped traces. If there is no history, it uses the window.
func (c *liveWindow) usual() float64 {
	skipped := c.skipped
	traces := c.past(c.h.Requests.Total(), &c.kept)
	if len(traces) == 0 {
		c.skipped = nil
		traces = c.past(c.h.Requests.Total(), &c.kept)
	}
	if c.skipped = skipped; len(traces) == 0 {
		traces = c.h.Requests.Total().Within(c.window)
	}
	return max(1, float64(traces.Time())/max(1, float64(traces.Calls())))
}

// graph returns the sites of the history with their services and callees. It is valid until the next comparison.
func (c *liveWindow) graph() graph {
	h := c.h
	callees, opaque := h.Callees(c.callees)
	c.callees = callees
	g := graph{
		table:  h.Table(),
		sites:  h.All(),
		names:  h.Services.Names(),
		opaque: opaque,
		callee: callees,
		behind: c.behind,
		index:  c.of.index(),
	}
	g.setBehind(c.calls)
	c.behind = g.behind
	return g
}

// calls returns the number of calls at site `number` in the whole history and the window.
func (c *liveWindow) calls(number int32) uint64 {
	return c.h.Series(number).Calls
}

// pass charges the calls at site `number` in the window according to the verdict in a.
func (c *liveWindow) pass(number int32, a *assessment) {
	if c.now[number] = float64(a.calls); a.calls == 0 {
		return
	}
	if !c.sites[number].Border {
		c.note(number, uint64(a.calls))
	}
	x := &a.siteTime
	if c.means = c.means[:0]; a.limit > 0 {
		c.means = append(c.means, a.limit) // the fence of a single value is the value
		x.window = c.h.Series(number).InWindow(c.window, c.screening.now)
		c.screening.now = x.window[:0]
	}
	x.means = c.means
	c.chargeTime(x)
}

// siteTime returns the own time of the calls at site `number` in the window, given their number, their mean own time,
// and the part of that time on the critical path. The result also contains the mean that is usual at that hour.
func (c *liveWindow) siteTime(number int32, calls, mean, onPath float64) siteTime {
	return siteTime{
		number: number,
		calls:  calls,
		mean:   mean,
		onPath: onPath,
		usual:  c.usualTime(number),
		inside: c.inside(number),
		young:  c.isYoung(number),
	}
}

// isYoung reports whether site `number` has not been known for long enough to judge its calls separately.
func (c *liveWindow) isYoung(number int32) bool {
	return c.h.Series(number).Week.KnownFor((c.window.To - 1).Hour()) < history.HoursPerDay
}

// divide divides the past of a site, which has total calls, into pieces of whole cells. Each piece has about n calls,
// the number of calls in the window, or fewer if that would give fewer than minPieces pieces.
func (c *liveWindow) divide(past history.Cells, total, n uint64) {
	number := max(1, total/n, min(minPieces, total))
	c.pieces = c.pieces[:0]
	calls, first := uint64(0), 0
	piece := func(to history.Slice, last int) livePiece {
		return livePiece{history.Range{From: past[first].Slice, To: to}, first, last, float64(calls)}
	}
	for i, x := range past {
		if calls += uint64(x.Calls); calls*number >= total {
			c.pieces = append(c.pieces, piece(x.Slice+1, i+1))
			calls, first = 0, i+1
		}
	}
	if last := len(c.pieces) - 1; calls > 0 && last >= 0 {
		p := &c.pieces[last] // the rest is less than a piece
		p.To, p.last, p.calls = c.window.From, len(past), p.calls+float64(calls)
	} else if calls > 0 {
		c.pieces = append(c.pieces, piece(c.window.From, len(past)))
	}
}

// inPieces sets calls[k] to the number of calls of x in piece k.
func (c *liveWindow) inPieces(x *judgedShape, calls []float64) {
	past := c.past(x.Cells, &c.keptShape)
	for k := range c.pieces {
		p, n := c.pieces[k].Range, uint64(0)
		for len(past) > 0 && past[0].Slice < p.To {
			if past[0].Slice >= p.From {
				n += uint64(past[0].Calls)
			}
			past = past[1:]
		}
		calls[k] = float64(n)
	}
}

// count returns the number of calls of `in` in part.
func count(in history.Cells, part history.Range) float64 { return float64(in.Within(part).Calls()) }

// ended returns the part of the window whose requests with calls at site `number` are likely to have ended. now holds
// the calls at the site in the window. We see requests only once they end, so long requests are missing at the end of a
// window. This gap is as long as they usually take. A longer gap means that no requests came.
func (c *liveWindow) ended(number int32, now history.Cells) history.Range {
	w := c.window
	if nanos, long := c.h.Long(number); long && len(now) > 0 {
		w.To = max(now[len(now)-1].Slice+1, w.To-history.Slice(time.Duration(nanos)/history.SliceLength))
	}
	return w
}

// share returns the share that a shape has in `all`, the calls at site `number`: the lowest share over the parts of the
// window, or 0 if a part has no calls.
func (c *liveWindow) share(number int32, all, shape history.Cells) float64 {
	share := count(shape, c.window) / count(all, c.window)
	ended := c.ended(number, all.Within(c.window))
	for i := range c.parts {
		part := ended.Part(i, c.parts)
		calls := count(all, part)
		if calls == 0 {
			return 0 // a part without calls doesn't show that the change lasts
		}
		share = min(share, count(shape, part)/calls)
	}
	return share
}

// note records a site whose calls in the window can be judged, and their number.
func (c *liveWindow) note(number int32, calls uint64) {
	c.bad[number].calls = float64(calls)
	c.judged = append(c.judged, number)
}

// addShapes adds the shapes of the calls at site `number` in the window to s, unless all known calls have the same
// shape. series is the history that the site is compared with.
func (c *liveWindow) addShapes(s *sample, number int32, series *judgedSeries) {
	own := c.h.Series(number)
	if series == &c.site && len(own.Shapes) == 1 {
		return
	}
	c.poolShapes(series)
	c.site.unpackShapes(own)
	s.unique = c.readPieces(series)
	c.shapes = c.shapes[:0]
	novel := history.Cells{}
	for i := range c.site.shapes {
		x := &c.site.shapes[i]
		now := x.Within(c.window)
		calls := float64(now.Calls())
		// A call to another target is another call, not a changed one, unless it failed or got no answer.
		if calls == 0 || c.otherTargets && !x.Failed && x.Hash != callgraph.Leaf {
			continue
		}
		shape := shapeSample{
			calls:  calls,
			pieces: c.known[x.Shape],
			leaf:   x.Hash == callgraph.Leaf || x.Hash == callgraph.FailedLeaf,
			failed: x.Failed,
		}
		if shape.pieces == nil {
			novel = append(novel, now...)
		} else if !atMost(calls/s.time.calls, shape.pieces, upperQuartile) {
			shape.share = c.share(number, c.site.Cells, x.Cells)
		}
		s.shapes, c.shapes = append(s.shapes, shape), append(c.shapes, x.Shape)
	}
	if len(novel) > 0 {
		sorting.Slice(novel, func(a, b history.Cell) int { return cmp.Compare(a.Slice, b.Slice) })
		s.novel = c.share(number, c.site.Cells, novel)
	}
}

// readPieces sets c.known to the shares that the shapes of series have in each of c.pieces. It returns, for each piece,
// the share of its shapes that occur in no other piece.
func (c *liveWindow) readPieces(series *judgedSeries) (unique []float64) {
	c.shares = scratch.Sized(c.shares, (1+len(series.shapes))*len(c.pieces))
	unique, all := c.shares[:len(c.pieces)], c.shares[len(c.pieces):]
	clear(unique)
	clear(c.known)
	for i := range series.shapes {
		x := &series.shapes[i]
		shares := all[i*len(c.pieces):][:len(c.pieces)]
		c.inPieces(x, shares)
		pieces, last := 0, 0
		for k := range shares {
			if shares[k] > 0 {
				shares[k] /= c.pieces[k].calls
				pieces, last = pieces+1, k
			}
		}
		if pieces == 0 {
			continue
		}
		if pieces == 1 {
			unique[last] += shares[last]
		}
		c.known[x.Shape] = shares
	}
	return unique
}

// changed records the surplus of c.shapes at site `number`, and the total.
func (c *liveWindow) changed(number int32, _ *sample, all []surplus, total float64) {
	b := &c.bad[number]
	b.total = total
	for i, x := range all {
		if x.calls > 0 {
			b.shapes = append(b.shapes, badShape{c.shapes[i], x.calls})
			if c.shapes[i].Failed {
				b.failed += x.calls
			}
		}
	}
}

// chargeShapes charges each site with its surplus beyond the surplus of its callees.
func (c *liveWindow) chargeShapes() {
	if !slices.ContainsFunc(c.judged, func(i int32) bool { return c.bad[i].total > 0 }) {
		return
	}
	w := newShapeWalk(c)
	for _, i := range c.judged {
		w.visit(i)
	}
	w.chargeInner()
}

// counts returns the approximate number of calls at site `number` in the window and before it, including skipped calls.
func (c *liveWindow) counts(number int32) (now, before float64) {
	return c.now[number], float64(c.h.Series(number).Calls) - c.now[number]
}

// sums returns the calls at site `number` in the window and before it, excluding skipped calls.
func (c *liveWindow) sums(number int32) (now, before callSum) {
	c.skip(c.sites[number].Service)
	c.site.Cells = c.h.Series(number).Unpack(c.site.Cells)
	within, past := c.site.Within(c.window), c.past(c.site.Cells, &c.kept)
	return callSum{float64(within.Calls()), float64(within.Time())},
		callSum{float64(past.Calls()), float64(past.Time())}
}

// perCall returns the number of calls at a site per call of its caller's step: in the window (the lowest of its parts),
// in the history, and in each piece of the history. The history starts with the first call at the site, if there is
// one, because earlier calls may have been deleted; see [history.Sites.Accept]. perCall returns 0, 0 and nil if the
// step has too few calls in the history, or no calls in the window.
func (c *liveWindow) perCall(number int32) (now, usual float64, pieces []float64) {
	c.skip(c.sites[number].Service)
	x := c.of.index()
	c.sum.restart(c.window.To + history.Ahead)
	for _, i := range x.at.of(x.caller[number]) {
		c.sum.addAll(c.h.Series(i).Encoded())
	}
	callers := c.sum.take()
	calls := judgedShape{Cells: c.h.Series(number).Unpack(nil)}
	past, own := c.past(callers, &c.kept), c.past(calls.Cells, &c.keptShape)
	if len(own) > 0 {
		past = past.Within(history.Range{From: own[0].Slice, To: c.window.From})
	}
	before, n := past.Calls(), callers.Within(c.window).Calls()
	if before < history.MinHistory || n == 0 {
		return 0, 0, nil
	}
	usual = float64(own.Calls()) / float64(before)
	c.divide(past, before, n)
	pieces = make([]float64, len(c.pieces))
	c.inPieces(&calls, pieces)
	for k := range pieces {
		pieces[k] /= c.pieces[k].calls
	}
	return c.share(number, callers, calls.Cells), usual, pieces
}
