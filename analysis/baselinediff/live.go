package baselinediff

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Manner selects how [Sites.Compare] judges the own time of calls.
type Manner uint8

const (
	// Plain judges the mean in the window. It ranks the causes of a change that is known to have happened.
	Plain Manner = iota
	// Steady judges the lowest mean of three parts of the window, against the same of each piece of the history, and of
	// shapes the lowest share of three parts. Only a change that lasts counts, not a burst that ends within one part,
	// and only one that rare pieces of the history do not reach.
	Steady
	// Brief is like Steady, but leaves Suspect.Soft at 0 unless it is needed to order suspects with a score. It takes
	// most of the time, since nearly every site has some.
	Brief
)

// steadyParts is the number of parts into which Steady divides a window.
const steadyParts = 3

// Comparison is the result of [Sites.Compare].
type Comparison struct {
	Suspects []Suspect // like those of [Normal.Compare]
	Requests uint64    // traces in the window
	Duration float64   // mean duration of a trace in the history in ns, at least 1: the unit of the times in Suspects
	Mean     float64   // mean duration of a trace in the window in ns
	Young    []YoungOperation
}

// YoungOperation is an operation that cannot be judged by itself yet, because it has been known for less than a day.
type YoungOperation struct {
	Service trace.Symbol
	SuspectOperation
}

// Compare ranks all services by their additional cost in a window relative to the traces before it that were not
// skipped. It follows [Normal.Compare], with these differences: history and window are divided at slices of time
// instead of at calls, and the shapes of callers are charged beyond those of their callees by site instead of by trace,
// which is the same unless a call has several changed callees.
//
// It takes time linear in the number of cells of the sites with calls in the window. Brief takes less: it remembers
// its verdicts on sites whose calls did not change since the last window, see [verdict].
func (h *Sites) Compare(window Interval, manner Manner) Comparison {
	w := sliceRange{sliceOf(window.From), sliceOf(window.To)}
	c := liveComparison{liveMemory: h.comparing(), h: h, window: w, manner: manner, skipped: h.skipped.all().before(w.from)}
	requests := h.Requests(window)
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 {
		return result
	}
	result.Mean = float64(h.total.within(w).time()) / float64(requests)
	limit := fence
	if manner != Plain {
		limit = highFence
	}
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, limit)
	if manner != Plain {
		c.wholes = make([]wholeTimes, len(h.names))
	}
	if manner == Brief && w.to-w.from != h.screened.length {
		clear(h.verdicts)
		h.screened.length = w.to - w.from
	}
	for i := 1; i < len(h.sites); i++ {
		if h.series[i].last() < w.from {
			if manner != Plain && w.to%slicesPerMinute == 0 { // once a minute is often enough
				c.chargeSilent(int32(i))
			}
			continue
		}
		c.skip(h.sites[i].service)
		if manner != Plain {
			c.addTypical(int32(i))
		}
		if manner != Brief || !c.pass(int32(i)) {
			c.judge(int32(i))
		}
	}
	if manner == Brief {
		h.screened.from = max(h.screened.from, w.from)
		for i := range c.evidence {
			c.evidence[i].soft = 0
		}
	}
	c.chargeShapes()
	result.Suspects, result.Young = c.rank(), c.young()
	if manner == Brief && tied(result.Suspects) {
		return h.Compare(window, Steady)
	}
	return result
}

// tied reports whether two suspects with a score are ordered by Soft only.
func tied(suspects []Suspect) bool {
	for i := 1; i < len(suspects); i++ {
		if a, b := &suspects[i-1], &suspects[i]; b.Score > 0 && a.Score == b.Score && a.Opaque == b.Opaque {
			return true
		}
	}
	return false
}

// liveComparison is the state of one call of Compare.
type liveComparison struct {
	*ledger
	*liveMemory
	h       *Sites
	window  sliceRange
	skipped ranges           // that are no history: of the current service, or of all
	skips   map[int32]ranges // the same by number of the service
	manner  Manner
	wide    map[int32]*pooledSeries // by number of the pool: histories pooled over sites, for those that have too little of their own
}

// liveMemory is memory that comparisons use one after the other.
type liveMemory struct {
	bad    []badCalls // by site
	pasts  []pastSum  // by site
	judged []int32    // sites with calls in the window

	otherTargets bool // the history of the current site is that of its operation, whatever it calls

	pieces        []livePiece // of the history of the current site
	means, values []float64
	shares        []float64           // of shapes in pieces
	known         map[shape][]float64 // the same by shape
	site          judgedSeries        // the current one
	kept          cells               // memory of the past of a site
	keptShape     cells               // and of a shape
	sum           sums
	screening     screening

	callees, behind []callee // by site
	below           []float64
	visited         []uint8
}

// comparing returns memory for a comparison.
func (h *Sites) comparing() *liveMemory {
	m := h.memory
	if m == nil || len(m.bad) != len(h.sites) {
		m = &liveMemory{bad: make([]badCalls, len(h.sites)), pasts: make([]pastSum, len(h.sites)), known: make(map[shape][]float64)}
		h.memory = m
	}
	for _, i := range m.judged {
		m.bad[i] = badCalls{shapes: m.bad[i].shapes[:0]}
	}
	m.judged = m.judged[:0]
	return m
}

// judgedSeries is the unpacked history of a site.
type judgedSeries struct {
	cells
	shapes []judgedShape
}

type judgedShape struct {
	shape
	cells
}

// unpackShapes sets the shapes of s to those of a site.
func (s *judgedSeries) unpackShapes(of *siteSeries) {
	s.shapes = slices.Grow(s.shapes[:0], len(of.shapes))[:len(of.shapes)]
	for i := range of.shapes {
		s.shapes[i].shape = of.shapes[i].shape
		s.shapes[i].cells = of.shapes[i].unpack(s.shapes[i].cells)
	}
}

// livePiece is a piece of the history of a site.
type livePiece struct {
	sliceRange
	first, last int // cells of the past
	calls       float64
}

// badCalls counts the calls of a site in the window with a shape beyond the variation of the history.
type badCalls struct {
	calls  float64 // all calls
	shapes []badShape
	total  float64
}

type badShape struct {
	shape
	calls float64
}

// skip sets the skipped times to those of a service.
func (c *liveComparison) skip(service int32) {
	skipped, known := c.skips[service]
	if !known {
		if c.skips == nil {
			c.skips = make(map[int32]ranges)
		}
		skipped = c.h.skipped.of(c.h.names[service]).before(c.window.from)
		c.skips[service] = skipped
	}
	c.skipped = skipped
}

// past returns the cells of the history. They share the memory of all, or of kept if some are skipped.
func (c *liveComparison) past(all cells, kept *cells) cells {
	end := len(all)
	for end > 0 && all[end-1].slice >= c.window.from {
		end--
	}
	return all[:end].without(c.skipped, kept)
}

// usual returns the mean duration of a trace of the history, in ns and at least 1. If all of the history is skipped, it
// is that of the skipped traces, and without any that of the window: as the unit of all times it must not vanish.
func (c *liveComparison) usual() float64 {
	skipped := c.skipped
	traces := c.past(c.h.total, &c.kept)
	if len(traces) == 0 {
		c.skipped = nil
		traces = c.past(c.h.total, &c.kept)
	}
	if c.skipped = skipped; len(traces) == 0 {
		traces = c.h.total.within(c.window)
	}
	return max(1, float64(traces.time())/max(1, float64(traces.calls())))
}

// graph resolves the callees of sites: the target of the step or, if it has none, of the step of the same operation
// that is called most often.
func (c *liveComparison) graph() graph {
	h := c.h
	service, opaque := h.resolve()
	callees := scratch.Filled(c.callees, len(h.sites), callee{})
	c.callees = callees
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
	needed := make(map[siteKey]bool) // of sites without a target
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].client && h.targets[i].service == 0 {
			needed[keyOf(i, false)], needed[keyOf(i, true)] = true, true
		}
	}
	for i := 1; i < len(h.sites) && len(needed) > 0; i++ {
		if t := h.targets[i]; t.service != 0 && !h.sites[i].border {
			calls := uint64(0)
			for _, wide := range []bool{false, true} {
				k := keyOf(i, wide)
				if !needed[k] {
					continue
				}
				if calls == 0 {
					calls = c.calls(int32(i))
				}
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
	g := graph{table: h.table, sites: h.sites, names: h.names, opaque: opaque, callee: callees, behind: c.behind, calling: &h.index().calling}
	g.setBehind(c.calls)
	c.behind = g.behind
	return g
}

// calls returns the number of calls at a site.
func (c *liveComparison) calls(number int32) uint64 {
	return c.h.series[number].calls
}

// pass charges the calls at a site in the window by the verdict on the site. It reports whether there is one.
func (c *liveComparison) pass(number int32) bool {
	v, ok := c.screen(number)
	if !ok || v.calls == 0 {
		return ok
	}
	if !c.h.sites[number].border {
		c.note(number, uint64(v.calls))
	}
	x := c.siteTime(number, float64(v.calls), v.mean)
	if c.means = c.means[:0]; v.limit > 0 {
		c.means = append(c.means, v.limit) // the fence of a single value is the value
		s := &c.h.series[number]
		s.seek(c.window.from)
		x.window = decodeCells(c.screening.now[:0], s.bytes[s.window.offset:], s.window.before).within(c.window)
		c.screening.now = x.window[:0]
	}
	x.means = c.means
	c.chargeTime(&x)
	return true
}

// siteTime returns the mean own time of the calls at a site in the window, with the expectation at that hour.
func (c *liveComparison) siteTime(number int32, calls, mean float64) siteTime {
	w, at := c.h.series[number].week, c.window.to-1
	return siteTime{number: number, calls: calls, mean: mean, usual: w.usual(at), young: w.knownFor(at.hour()) < hoursPerDay}
}

// judge compares the calls at a site in the window, if there are any, with its history.
func (c *liveComparison) judge(number int32) {
	c.site.cells = c.h.series[number].unpack(c.site.cells)
	now := c.site.within(c.window)
	n := now.calls()
	if n == 0 {
		return
	}
	history, past, before := c.history(number)
	if before < minHistory {
		return
	}
	c.divide(past, before, n)
	c.means = c.means[:0]
	for _, p := range c.pieces {
		c.means = append(c.means, c.mean(past[p.first:p.last]))
	}
	x := c.siteTime(number, float64(n), c.mean(now))
	x.means = c.means
	if !c.h.sites[number].border {
		c.note(number, n)
		if c.manner == Plain || c.gap(now) < c.window.from {
			c.shifted(number, history)
		}
		x.leaves = slices.ContainsFunc(c.bad[number].shapes, func(x badShape) bool { return x.hash == leaf || x.hash == failedLeaf })
	}
	if c.manner != Plain {
		x.window = now
	} else {
		x.before = float64(past.time()) / float64(before)
		x.usual = max(x.usual, x.before)
	}
	c.chargeTime(&x)
}

// history returns the series that a site is compared with, its past, and the number of calls in it: its own, c.site,
// or, with too little of it, that of its step under all callers or of its operation whatever it calls, without shapes.
func (c *liveComparison) history(number int32) (s *judgedSeries, past cells, before uint64) {
	s, c.otherTargets = &c.site, false
	past = c.past(s.cells, &c.kept)
	if before = past.calls(); before >= minHistory {
		return s, past, before
	}
	for i, pool := range c.h.index().pools.of(number) {
		s, c.otherTargets = c.pooled(pool), i > 0
		past = c.past(s.cells, &c.kept)
		if before = past.calls(); before >= minHistory {
			break
		}
	}
	return s, past, before
}

// pooledSeries is the sum of the series of several sites.
type pooledSeries struct {
	judgedSeries
	withShapes bool // the shapes were summed up, too
}

// pooled returns the sum of the series of all sites of a pool, without shapes.
func (c *liveComparison) pooled(pool int32) *judgedSeries {
	if s := c.wide[pool]; s != nil {
		return &s.judgedSeries
	}
	if c.wide == nil {
		c.wide = make(map[int32]*pooledSeries)
	}
	sum := &pooledSeries{}
	c.sum.restart(c.window.to + ahead)
	for _, i := range c.h.index().members.of(pool) {
		c.sum.addAll(c.h.series[i].bytes)
	}
	sum.cells = c.sum.take()
	c.wide[pool] = sum
	return &sum.judgedSeries
}

// poolShapes sums up the shapes of a history unless it is that of a single site.
func (c *liveComparison) poolShapes(history *judgedSeries) {
	for pool, sum := range c.wide {
		if &sum.judgedSeries != history || sum.withShapes {
			continue
		}
		sum.withShapes = true
		one := judgedSeries{}
		for _, i := range c.h.index().members.of(pool) {
			one.unpackShapes(&c.h.series[i])
			sum.mergeShapes(&one)
		}
	}
}

// sums adds up cells that do not come in the order of time.
type sums struct {
	from        slice  // of the first cell of recent
	recent      []cell // one for each slice; empty if there are no calls
	first, last int    // the indices of the others
	others      cells
}

// summed is the number of slices that sums adds up fast: more than a history usually covers.
const summed = 2048

// addAll adds encoded cells.
func (s *sums) addAll(encoded []byte) {
	var x cell
	for i := 0; i < len(encoded); {
		x, i = decodeCell(encoded, i, x.slice)
		if x.slice < s.from || x.slice-s.from >= summed {
			s.others.add(x)
			continue
		}
		at := int(x.slice - s.from)
		s.first, s.last = min(s.first, at), max(s.last, at)
		c := &s.recent[at]
		c.slice = x.slice
		c.merge(&x)
	}
}

// restart starts a sum of cells. Most of them come before a slice.
func (s *sums) restart(to slice) {
	if s.recent == nil {
		s.recent = make([]cell, summed)
	}
	s.from, s.first, s.last, s.others = max(0, to-summed), summed, -1, s.others[:0]
}

// take returns the sums, and empties them.
func (s *sums) take() (all cells) {
	later, _ := slices.BinarySearchFunc(s.others, s.from, func(x cell, at slice) int { return cmp.Compare(x.slice, at) })
	all = append(make(cells, 0, max(0, s.last-s.first+1)+len(s.others)), s.others[:later]...)
	for i := s.first; i <= s.last; i++ {
		if s.recent[i].calls > 0 {
			all = append(all, s.recent[i])
		}
		s.recent[i] = cell{}
	}
	return append(all, s.others[later:]...)
}

// mergeShapes adds the shapes of another site.
func (s *judgedSeries) mergeShapes(other *judgedSeries) {
	for i := range other.shapes {
		into := s.shapeOf(other.shapes[i].shape)
		for _, x := range other.shapes[i].cells {
			into.add(cell{slice: x.slice, calls: x.calls})
		}
	}
}

// shapeOf returns the series of a shape, or of the other shapes if there are too many.
func (s *judgedSeries) shapeOf(x shape) *judgedShape {
	for i := range s.shapes {
		if s.shapes[i].shape == x {
			return &s.shapes[i]
		}
	}
	if len(s.shapes) >= siteShapes && x.hash != 0 {
		x.hash = 0
		return s.shapeOf(x)
	}
	s.shapes = append(s.shapes, judgedShape{shape: x})
	return &s.shapes[len(s.shapes)-1]
}

// divide divides the past of a site, of total calls, into pieces of whole cells, each with about as many calls as the
// window, n, but into at least minPieces if there are as many cells.
func (c *liveComparison) divide(past cells, total, n uint64) {
	number := max(1, total/n, min(minPieces, total))
	c.pieces = c.pieces[:0]
	calls, first := uint64(0), 0
	piece := func(to slice, last int) livePiece {
		return livePiece{sliceRange{past[first].slice, to}, first, last, float64(calls)}
	}
	for i, x := range past {
		if calls += uint64(x.calls); calls*number >= total {
			c.pieces = append(c.pieces, piece(x.slice+1, i+1))
			calls, first = 0, i+1
		}
	}
	if last := len(c.pieces) - 1; calls > 0 && last >= 0 {
		p := &c.pieces[last] // the rest is less than a piece
		p.to, p.last, p.calls = c.window.from, len(past), p.calls+float64(calls)
	} else if calls > 0 {
		c.pieces = append(c.pieces, piece(c.window.from, len(past)))
	}
}

// mean returns the mean own time of calls in ns, or the lowest of its parts, as c.manner says. There are calls.
func (c *liveComparison) mean(of cells) float64 {
	if c.manner == Plain {
		return float64(of.time()) / float64(of.calls())
	}
	return steadyMean(of)
}

// steadyMean returns the lowest mean of three parts of calls, each with about a third of them, in ns. There are calls.
func steadyMean(of cells) float64 {
	calls := of.calls()
	least, partCalls, partNanos, done := float64(of.time())/float64(calls), uint64(0), int64(0), uint64(0)
	for _, x := range of {
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

// inPieces sets the number of calls of a shape in each piece.
func (c *liveComparison) inPieces(x *judgedShape, calls []float64) {
	past := c.past(x.cells, &c.keptShape)
	for k := range c.pieces {
		p, n := c.pieces[k].sliceRange, uint64(0)
		for len(past) > 0 && past[0].slice < p.to {
			if past[0].slice >= p.from {
				n += uint64(past[0].calls)
			}
			past = past[1:]
		}
		calls[k] = float64(n)
	}
}

// count returns the number of calls in a part of the window.
func count(in cells, part sliceRange) float64 { return float64(in.within(part).calls()) }

// share returns the share of a shape in the calls of the window or, as c.manner says, the lowest of its parts.
func (c *liveComparison) share(all, shape cells) float64 {
	share := count(shape, c.window) / count(all, c.window)
	if c.manner == Plain {
		return share
	}
	length := c.window.to - c.window.from
	for i := range slice(steadyParts) {
		part := sliceRange{c.window.from + i*length/steadyParts, c.window.from + (i+1)*length/steadyParts}
		calls := count(all, part)
		if calls == 0 {
			return 0 // a part without calls does not show that the change lasts
		}
		share = min(share, count(shape, part)/calls)
	}
	return share
}

// note notes a site whose calls in the window can be judged, and their number.
func (c *liveComparison) note(number int32, calls uint64) {
	c.bad[number].calls = float64(calls)
	c.judged = append(c.judged, number)
}

// shifted finds the calls of a site whose shapes are more frequent in the window than in the pieces of the history.
func (c *liveComparison) shifted(number int32, history *judgedSeries) {
	b := &c.bad[number]
	own := &c.h.series[number]
	if history == &c.site && len(own.shapes) == 1 {
		return // all calls have the same shape
	}
	c.poolShapes(history)
	c.site.unpackShapes(own)
	all := scratch.Sized(c.shares, (1+len(history.shapes))*len(c.pieces))
	c.shares = all
	unique, all := all[:len(c.pieces)], all[len(c.pieces):] // share of the shapes that occur in no other piece
	clear(unique)
	clear(c.known)
	for i := range history.shapes {
		x := &history.shapes[i]
		shares := all[i*len(c.pieces):][:len(c.pieces)]
		c.inPieces(x, shares)
		pieces, last := 0, 0
		for k := range shares {
			if shares[k] > 0 {
				shares[k] /= c.pieces[k].calls
				pieces, last = pieces+1, k
			}
		}
		switch pieces {
		case 0:
			continue
		case 1:
			unique[last] += shares[last]
		}
		c.known[x.shape] = shares
	}
	novel, novelShapes, novelCells := 0.0, []badShape{}, cells{}
	for i := range c.site.shapes {
		x := &c.site.shapes[i]
		now := x.within(c.window)
		count := float64(now.calls())
		// A call to another target is another call, not a changed one, unless it failed or got no answer.
		if count == 0 || c.otherTargets && !x.failed && x.hash != leaf {
			continue
		}
		shares := c.known[x.shape]
		if shares == nil {
			novel += count
			novelCells = append(novelCells, now...)
			novelShapes = append(novelShapes, badShape{x.shape, count})
			continue
		}
		if atMost(count/b.calls, shares, upperQuartile) {
			continue
		}
		c.values = append(c.values[:0], shares...)
		_, limit := c.fence(c.values)
		if surplus := max(0, c.share(c.site.cells, x.cells)-limit) * b.calls; surplus > 0 {
			b.shapes = append(b.shapes, badShape{x.shape, surplus})
			b.total += surplus
		}
	}
	if novel == 0 {
		return
	}
	_, limit := c.fence(unique)
	slices.SortFunc(novelCells, func(a, b cell) int { return cmp.Compare(a.slice, b.slice) })
	if surplus := max(0, c.share(c.site.cells, novelCells)-limit) * b.calls; surplus > 0 {
		for _, x := range novelShapes {
			x.calls *= surplus / novel
			b.shapes = append(b.shapes, x)
		}
		b.total += surplus
	}
}

// chargeShapes charges each site beyond the surplus of its callees.
func (c *liveComparison) chargeShapes() {
	if !slices.ContainsFunc(c.judged, func(i int32) bool { return c.bad[i].total > 0 }) {
		return
	}
	x := c.h.index()
	sameStep, calls := make([]float64, x.steps), make([]float64, x.steps) // by step, under all callers
	for _, i := range c.judged {
		sameStep[x.step[i]] += c.bad[i].total
		calls[x.step[i]] += c.bad[i].calls
	}
	c.below, c.visited = scratch.Sized(c.below, len(c.h.sites)), scratch.Filled(c.visited, len(c.h.sites), 0)
	below, state := c.below, c.visited // bad calls at or below a site
	const visiting, done = 1, 2
	var visit func(i int32)
	visit = func(i int32) {
		if state[i] != 0 {
			return
		}
		state[i] = visiting
		b, step := &c.bad[i], x.step[i]
		explained := 0.0
		for _, k := range x.below.of(step) {
			if c.bad[k].calls == 0 {
				continue // not judged
			}
			visit(k)
			if state[k] == done {
				explained += below[k]
			}
		}
		// The same step has sites under other callers, which share its callees.
		if all := sameStep[step]; all > 0 {
			explained *= b.total / all
		} else {
			explained *= b.calls / calls[step]
		}
		explained = min(explained, b.calls)
		if rest := b.total - explained; rest > 0 {
			for _, x := range b.shapes {
				c.chargeShape(i, x.failed, x.showsAnswer(), x.calls*rest/b.total/c.requests)
			}
		}
		below[i] = max(b.total, explained)
		state[i] = done
	}
	for _, i := range c.judged {
		visit(i)
	}
}
