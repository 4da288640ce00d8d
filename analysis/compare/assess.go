package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
)

// A comparison spends most of its time on reading the calls at each site. Sites can be read independently, so several
// goroutines share the work; see [Comparer]. The evidence is charged in the order of the sites, because rounded sums
// depend on the order. Sites are divided into blocks: while one goroutine charges a block, the others read the next
// one.

const (
	sitePiece  = 32                     // sites that a goroutine reads at once, in about 0.1 ms
	sitePieces = 32                     // pieces per block
	siteBlock  = sitePieces * sitePiece // a larger block takes more memory, and a smaller one causes more waits
)

// assessment is the evidence of a site on its own.
type assessment struct {
	called       bool         // there may be calls in the window
	typical      typicalTimes // see [liveWindow.typical]
	typicalCalls float64
	young        bool // see [siteTime]
	screened     bool // the verdict is known, so the site needs no judgement in detail
	verdict
	siteTime siteTime // of the calls that the verdict is about, if any
}

// each calls judge for the sites with calls in the window that have to be judged in detail. It charges the other sites
// according to their verdicts, and also charges silence and the growth of typical times.
func (c *liveWindow) each(judge func(number int32)) {
	for service := range c.h.Services.Names() {
		c.skip(int32(service)) // goroutines below only read the skipped times
	}
	silent, empty := silences{liveWindow: c}, func(int32) {} // empty judges a site without calls
	if silent.due() {
		silent.countStarted()
		empty = silent.note
	}
	reader := *c // because charging changes c
	for first := 1; first < len(c.sites)+siteBlock; first += siteBlock {
		read := c.assessed[0]
		next := scratch.Sized(c.assessed[1], max(0, min(len(c.sites)-first, siteBlock)))
		c.of.Spread(1+(len(next)+sitePiece-1)/sitePiece, func(i int) {
			if i == 0 {
				c.chargeBlock(first-siteBlock, read, judge, empty)
				return
			}
			from := (i - 1) * sitePiece
			reader.readPiece(i-1, first+from, next[from:min(len(next), from+sitePiece)])
		})
		c.assessed = [2][]assessment{next, read}
	}
	c.assessed[0] = c.assessed[0][:0]
	silent.charge()
}

// readPiece sets `into` to the evidence of the sites from `first` on. It uses c.of.pieces[i] as memory, so that pieces
// can be read concurrently.
func (c liveWindow) readPiece(i, first int, into []assessment) {
	c.comparing = &c.of.pieces[i]
	for k := range into {
		into[k] = c.assess(int32(first + k))
	}
}

// chargeBlock charges the evidence of a block of sites, which starts at site `first`. It calls judge for each site that
// has to be judged in detail, and empty for each site without calls in the window.
func (c *liveWindow) chargeBlock(first int, block []assessment, judge, empty func(number int32)) {
	for i := range block {
		number, a := int32(first+i), &block[i]
		if !a.called {
			c.now[number] = 0
			empty(number)
			continue
		}
		c.skip(c.sites[number].Service)
		c.addTypical(number, a)
		if a.screened {
			c.pass(number, a)
		} else {
			judge(number)
		}
	}
}

// assess returns the evidence of the calls at site `number`.
func (c *liveWindow) assess(number int32) (a assessment) {
	if a.called = c.h.Series(number).Last() >= c.window.From; !a.called {
		return a
	}
	c.skip(c.sites[number].Service)
	a.young = c.isYoung(number)
	if c.lasting() {
		a.typical, a.typicalCalls = c.typical(number)
	}
	if c.soft || c.byLocal(c.sites[number].Service) {
		return a
	}
	a.verdict, a.screened = screener{c}.screen(number)
	if a.screened && a.calls > 0 {
		a.siteTime = c.siteTime(number, float64(a.calls), a.mean, a.onPath)
	}
	return a
}

// sample returns the calls at site `number` in the window, or nil if the window has no calls or the history has too
// few.
func (c *liveWindow) sample(number int32) *sample {
	c.site.Cells = c.times(number).Unpack(c.site.Cells)
	now := c.site.Within(c.window)
	n := now.Calls()
	if c.now[number] = float64(n); n == 0 {
		return nil
	}
	series, past, before := c.history(number)
	if before < history.MinHistory {
		return nil
	}
	c.divide(past, before, n)
	c.means = c.means[:0]
	for _, p := range c.pieces {
		c.means = append(c.means, past[p.first:p.last].LowestMean(c.parts))
	}
	s := &c.current
	*s = sample{
		time:   c.siteTime(number, float64(n), now.LowestMean(c.parts), now.OnPath()),
		shapes: s.shapes[:0],
	}
	s.time.means = c.means
	if c.lasting() {
		s.time.window = now
	} else {
		s.time.before = float64(past.Own()) / float64(before)
		s.time.usual = max(s.time.usual, s.time.before)
	}
	if !c.sites[number].Border {
		c.note(number, n)
		if c.gap(number, now) < c.window.From {
			c.addShapes(s, number, series)
		}
	}
	return s
}

// history returns the series that a site is compared with, the cells of its past, and the number of calls in them. The
// series is c.site, the series of the site itself. If that has too few calls, history returns the series of the step
// under all callers, or else the series of the operation with any target; both lack shapes.
func (c *liveWindow) history(number int32) (s *judgedSeries, past history.Cells, before uint64) {
	s, c.otherTargets = &c.site, false
	past = c.past(s.Cells, &c.kept)
	if before = past.Calls(); before >= history.MinHistory {
		return s, past, before
	}
	for i, pool := range c.of.index().pools.of(number) {
		s, c.otherTargets = c.pooled(pool), i > 0
		past = c.past(s.Cells, &c.kept)
		if before = past.Calls(); before >= history.MinHistory {
			break
		}
	}
	return s, past, before
}
