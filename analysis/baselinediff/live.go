package baselinediff

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Manner selects how [Sites.Compare] judges the own time of calls.
type Manner uint8

const (
	// Plain judges the mean in the window. It ranks the causes of a change that is known to have happened.
	Plain Manner = iota
	// Steady judges the lowest mean of three parts of the window, against the same of each piece of the history, and of
	// shapes the lowest share of three parts. Only a change that lasts counts, not a burst that ends within one part. It
	// must also exceed what rare pieces of the history reach.
	Steady
)

// steadyParts is the number of parts into which Steady divides a window.
const steadyParts = 3

// Comparison is the result of [Sites.Compare].
type Comparison struct {
	Suspects []Suspect // like those of [Normal.Compare]
	Requests uint64    // traces in the window
	Duration float64   // mean duration of a trace in the history in ns, at least 1: the unit of the times in Suspects
}

// Compare ranks all services by their additional cost in a window relative to the traces before it that were not
// skipped. It follows [Normal.Compare], with these differences: history and window are divided at slices of time
// instead of at calls, and the shapes of callers are charged beyond those of their callees by site instead of by trace,
// which is the same unless a call has several changed callees.
//
// It takes time linear in the number of cells of the sites with calls in the window.
func (h *Sites) Compare(window Interval, manner Manner) Comparison {
	w := sliceRange{sliceOf(window.From), sliceOf(window.To)}
	c := liveComparison{h: h, window: w, manner: manner}
	requests := h.Requests(window)
	result := Comparison{Requests: requests, Duration: h.usual(w.from)}
	if requests == 0 {
		return result
	}
	limit := fence
	if manner == Steady {
		limit = highFence
	}
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, limit)
	for i := 1; i < len(h.sites); i++ {
		if n := windowCalls(h.series[i].cells, w); n > 0 {
			c.judge(int32(i), n)
		}
	}
	c.chargeShapes()
	result.Suspects = c.rank()
	return result
}

// liveComparison is the state of one call of Compare.
type liveComparison struct {
	*ledger
	h      *Sites
	window sliceRange
	manner Manner
	wide   map[siteKey]*siteSeries // histories pooled over sites, for those that have too little of their own
	bad    []badCalls              // by site
	judged []int32                 // sites with calls in the window

	means, values []float64
	pieces        []sliceRange
}

// badCalls counts the calls of a site in the window with a shape beyond the variation of the history.
type badCalls struct {
	calls  float64 // all calls
	shapes []badShape
	total  float64
}

type badShape struct {
	failed, answered bool
	calls            float64
}

// windowCalls returns the number of calls in a window.
func windowCalls(cells []siteCell, w sliceRange) (n uint64) {
	for _, c := range slices.Backward(cells) {
		if c.slice < w.from {
			break
		}
		if c.slice < w.to {
			n += uint64(c.calls)
		}
	}
	return n
}

// graph resolves the callees of sites: the target of the step or, if it has none, of the step of the same operation
// that is called most often.
func (c *liveComparison) graph() graph {
	h := c.h
	service, opaque := h.resolve()
	callees := make([]callee, len(h.sites))
	type usual struct {
		target target
		calls  uint64
	}
	best := make(map[siteKey]usual)
	keyOf := func(i int, anyCaller bool) siteKey {
		k := siteKey{op: h.sites[i].base, parent: h.sites[i].parent}
		if anyCaller {
			k.parent = ^trace.Op(0)
		}
		return k
	}
	for i := 1; i < len(h.sites); i++ {
		if t := h.targets[i]; t.service != 0 && !h.sites[i].border {
			calls := uint64(0)
			for _, x := range h.series[i].cells {
				calls += uint64(x.calls)
			}
			for _, wide := range []bool{false, true} {
				k := keyOf(i, wide)
				if b, ok := best[k]; !ok || cmp.Or(cmp.Compare(calls, b.calls), cmp.Compare(b.target.op, t.op)) > 0 {
					best[k] = usual{t, calls}
				}
			}
		}
	}
	for i := 1; i < len(h.sites); i++ {
		if !h.sites[i].client {
			continue
		}
		t := h.targets[i]
		for _, wide := range []bool{false, true} {
			if t.service == 0 {
				t = best[keyOf(i, wide)].target
			}
		}
		if t.service == 0 {
			continue
		}
		if t.external {
			t.op = h.sites[i].op
		}
		callees[i] = callee{service[t.service], t.op}
	}
	return graph{table: h.table, sites: h.sites, names: h.names, opaque: opaque, callee: callees}
}

// judge compares the calls at a site, n in the window, with its history.
func (c *liveComparison) judge(number int32, n uint64) {
	history := c.history(number)
	if !c.divide(history.cells, n) {
		return
	}
	c.means = c.means[:0]
	for _, p := range c.pieces {
		c.means = append(c.means, c.mean(history.cells, p))
	}
	c.chargeTime(number, float64(n), c.mean(c.h.series[number].cells, c.window), c.means)
	if !c.h.sites[number].border {
		c.shifted(number, n, history)
	}
}

// history returns the series that a site is compared with: its own or, with too little of it, that of its step under
// all callers or of its operation whatever it calls.
func (c *liveComparison) history(number int32) *siteSeries {
	s := &c.h.series[number]
	if c.before(s.cells) >= minHistory {
		return s
	}
	for _, key := range c.h.sites[number].wider() {
		if wide := c.pooled(key); c.before(wide.cells) >= minHistory {
			return wide
		}
	}
	return s
}

// before returns the number of calls in the history.
func (c *liveComparison) before(cells []siteCell) (n uint64) {
	for _, x := range cells {
		if x.slice >= c.window.from {
			break
		}
		if !c.h.isSkipped(x.slice) {
			n += uint64(x.calls)
		}
	}
	return n
}

// pooled returns the sum of the series of all sites with a wider key.
func (c *liveComparison) pooled(key siteKey) *siteSeries {
	if s := c.wide[key]; s != nil {
		return s
	}
	if c.wide == nil {
		c.wide = make(map[siteKey]*siteSeries)
	}
	sum := &siteSeries{}
	for i := 1; i < len(c.h.sites); i++ {
		if !slices.Contains(c.h.sites[i].wider(), key) {
			continue
		}
		s := &c.h.series[i]
		for _, x := range s.cells {
			sum.add(x.slice, &tallyCell{calls: uint64(x.calls), nanos: x.nanos})
		}
		for _, x := range s.shapes {
			into := sum.shape(x.shape)
			for _, y := range x.cells {
				into.add(y.slice, y.calls)
			}
		}
	}
	c.wide[key] = sum
	return sum
}

// divide divides the history of a site into pieces of whole cells, each with about as many calls as the window, n, but
// into at least minPieces if there are as many cells. It reports whether the history is enough to judge.
func (c *liveComparison) divide(cells []siteCell, n uint64) bool {
	total := c.before(cells)
	if total < minHistory {
		return false
	}
	number := max(1, total/n, min(minPieces, total))
	c.pieces = c.pieces[:0]
	calls, from := uint64(0), slice(0)
	for _, x := range cells {
		if x.slice >= c.window.from {
			break
		}
		if c.h.isSkipped(x.slice) {
			continue
		}
		if calls == 0 {
			from = x.slice
		}
		if calls += uint64(x.calls); calls*number >= total {
			c.pieces = append(c.pieces, sliceRange{from, x.slice + 1})
			calls = 0
		}
	}
	if calls > 0 && len(c.pieces) > 0 {
		c.pieces[len(c.pieces)-1].to = c.window.from // the rest is less than a piece
	} else if calls > 0 {
		c.pieces = append(c.pieces, sliceRange{from, c.window.from})
	}
	return true
}

// mean returns the mean own time of the calls in r in ns, or the lowest of its parts, as c.manner says. r contains
// calls.
func (c *liveComparison) mean(cells []siteCell, r sliceRange) float64 {
	first, _ := slices.BinarySearchFunc(cells, r.from, func(x siteCell, at slice) int { return cmp.Compare(x.slice, at) })
	last := first
	calls, nanos := uint64(0), int64(0)
	for ; last < len(cells) && cells[last].slice < r.to; last++ {
		if c.skips(cells[last].slice) {
			continue
		}
		calls += uint64(cells[last].calls)
		nanos += cells[last].nanos
	}
	whole := float64(nanos) / float64(calls)
	if c.manner == Plain {
		return whole
	}
	least, partCalls, partNanos, done := whole, uint64(0), int64(0), uint64(0)
	for _, x := range cells[first:last] {
		if c.skips(x.slice) {
			continue
		}
		partCalls += uint64(x.calls)
		partNanos += x.nanos
		// A part ends with the cell that completes a third of the calls.
		if (done+partCalls)*steadyParts >= calls*(partNumber(done, calls)+1) {
			least = min(least, float64(partNanos)/float64(partCalls))
			done += partCalls
			partCalls, partNanos = 0, 0
		}
	}
	return least
}

// partNumber returns the number of the part that begins after done calls of all.
func partNumber(done, all uint64) uint64 { return done * steadyParts / all }

// skips reports whether a slice belongs neither to the window nor to the history.
func (c *liveComparison) skips(s slice) bool { return s < c.window.from && c.h.isSkipped(s) }

// count returns the number of calls of a shape in r.
func (c *liveComparison) count(cells []shapeCell, r sliceRange) (n float64) {
	first, _ := slices.BinarySearchFunc(cells, r.from, func(x shapeCell, at slice) int { return cmp.Compare(x.slice, at) })
	for _, x := range cells[first:] {
		if x.slice >= r.to {
			break
		}
		if !c.skips(x.slice) {
			n += float64(x.calls)
		}
	}
	return n
}

// callsIn returns the number of calls in r.
func (c *liveComparison) callsIn(cells []siteCell, r sliceRange) (n float64) {
	first, _ := slices.BinarySearchFunc(cells, r.from, func(x siteCell, at slice) int { return cmp.Compare(x.slice, at) })
	for _, x := range cells[first:] {
		if x.slice >= r.to {
			break
		}
		if !c.skips(x.slice) {
			n += float64(x.calls)
		}
	}
	return n
}

// share returns the share of a shape in the calls of the window or, as c.manner says, the lowest of its parts.
func (c *liveComparison) share(cells []siteCell, shape []shapeCell) float64 {
	share := c.count(shape, c.window) / c.callsIn(cells, c.window)
	if c.manner == Plain {
		return share
	}
	length := c.window.to - c.window.from
	for i := range slice(steadyParts) {
		part := sliceRange{c.window.from + i*length/steadyParts, c.window.from + (i+1)*length/steadyParts}
		calls := c.callsIn(cells, part)
		if calls == 0 {
			return 0 // a part without calls does not show that the change lasts
		}
		share = min(share, c.count(shape, part)/calls)
	}
	return share
}

// shifted finds the calls of a site whose shapes are more frequent in the window than in the pieces of the history.
func (c *liveComparison) shifted(number int32, n uint64, history *siteSeries) {
	if c.bad == nil {
		c.bad = make([]badCalls, len(c.h.sites))
	}
	b := &c.bad[number]
	b.calls = float64(n)
	c.judged = append(c.judged, number)
	inPiece := make([]float64, len(c.pieces))
	for i, p := range c.pieces {
		inPiece[i] = c.callsIn(history.cells, p)
	}
	unique := make([]float64, len(c.pieces)) // share of the shapes that occur in no other piece
	known := make(map[uint64][]float64)      // shares in the pieces, by shape
	for i := range history.shapes {
		x := &history.shapes[i]
		shares, pieces, last := make([]float64, len(c.pieces)), 0, 0
		for k, p := range c.pieces {
			if count := c.count(x.cells, p); count > 0 {
				shares[k] = count / inPiece[k]
				pieces, last = pieces+1, k
			}
		}
		switch pieces {
		case 0:
			continue
		case 1:
			unique[last] += shares[last]
		}
		known[x.hash] = shares
	}
	novel, novelShapes, novelCells := 0.0, []badShape{}, []shapeCell{}
	own := &c.h.series[number]
	for i := range own.shapes {
		x := &own.shapes[i]
		count := c.count(x.cells, c.window)
		if count == 0 {
			continue
		}
		shares := known[x.hash]
		if shares == nil {
			novel += count
			novelCells = append(novelCells, x.cells...)
			novelShapes = append(novelShapes, badShape{x.failed, x.answered, count})
			continue
		}
		c.values = append(c.values[:0], shares...)
		_, limit := c.fence(c.values)
		if surplus := max(0, c.share(own.cells, x.cells)-limit) * b.calls; surplus > 0 {
			b.shapes = append(b.shapes, badShape{x.failed, x.answered, surplus})
			b.total += surplus
		}
	}
	if novel == 0 {
		return
	}
	_, limit := c.fence(unique)
	slices.SortFunc(novelCells, func(a, b shapeCell) int { return cmp.Compare(a.slice, b.slice) })
	if surplus := max(0, c.share(own.cells, novelCells)-limit) * b.calls; surplus > 0 {
		for _, x := range novelShapes {
			x.calls *= surplus / novel
			b.shapes = append(b.shapes, x)
		}
		b.total += surplus
	}
}

// chargeShapes charges each site beyond the surplus of its callees.
func (c *liveComparison) chargeShapes() {
	callees := make(map[trace.Op][]int32)                                     // sites by the step of their caller
	sameStep, calls := make(map[trace.Op]float64), make(map[trace.Op]float64) // by step, under all callers
	for _, i := range c.judged {
		s := &c.h.sites[i]
		callees[s.parent] = append(callees[s.parent], i)
		sameStep[s.op] += c.bad[i].total
		calls[s.op] += c.bad[i].calls
	}
	below := make([]float64, len(c.h.sites)) // bad calls at or below a site
	state := make([]uint8, len(c.h.sites))
	const visiting, done = 1, 2
	var visit func(i int32)
	visit = func(i int32) {
		if state[i] != 0 {
			return
		}
		state[i] = visiting
		s, b := &c.h.sites[i], &c.bad[i]
		explained := 0.0
		for _, k := range callees[s.op] {
			visit(k)
			if state[k] == done {
				explained += below[k]
			}
		}
		// The same step has sites under other callers, which share its callees.
		if all := sameStep[s.op]; all > 0 {
			explained *= b.total / all
		} else {
			explained *= b.calls / calls[s.op]
		}
		explained = min(explained, b.calls)
		if rest := b.total - explained; rest > 0 {
			for _, x := range b.shapes {
				c.chargeShape(i, x.failed, x.answered, x.calls*rest/b.total/c.requests)
			}
		}
		below[i] = max(b.total, explained)
		state[i] = done
	}
	for _, i := range c.judged {
		visit(i)
	}
}
