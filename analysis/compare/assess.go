package compare

import "github.com/sibyl-trace/sibyl/analysis/internal/scratch"

// A comparison spends most of its time on reading the calls at each site. This needs no other site, so several
// goroutines can do it, see [Comparer]. The evidence is then charged in the order of the sites, because rounded sums
// depend on the order.

const (
	// sitePiece is the number of sites that a goroutine assesses at once: some 0.1 ms of work.
	sitePiece = 32
	// sitePieces is the number of pieces that are assessed before their evidence is charged. More take memory, and
	// fewer let a CPU wait more often.
	sitePieces = 32
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

// assess sets c.assessed to the evidence of the sites [first, last). The skipped times of all services must be known.
func (c *liveWindow) assess(first, last int) {
	c.assessed = scratch.Sized(c.assessed, last-first)
	c.of.Spread((last-first+sitePiece-1)/sitePiece, func(i int) {
		piece := *c
		piece.comparing = &c.of.pieces[i]
		for k := i * sitePiece; k < min(len(c.assessed), (i+1)*sitePiece); k++ {
			c.assessed[k] = piece.assessSite(int32(first + k))
		}
	})
}

// assessSite returns the evidence of the calls at site `number`.
func (c *liveWindow) assessSite(number int32) (a assessment) {
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
	if a.verdict, a.screened = c.screen(number); a.screened && a.calls > 0 {
		a.siteTime = c.siteTime(number, float64(a.calls), a.mean, a.onPath)
	}
	return a
}
