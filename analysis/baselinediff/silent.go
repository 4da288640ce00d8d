package baselinediff

// Constants of silence. They are numbers of calls and pieces, and depend on no application.
const (
	// leastMissing is the number of calls that are expected in the time in which there are none. Calls that come at
	// random, with that mean, stay away once in 500 million times.
	leastMissing = 20
	// leastPieces is the number of pieces of the history, each as long as the silence, that all have calls, and
	// leastSteady their length together. A job that runs once an hour, or for less than an hour, is not steady.
	leastPieces = 10
	leastSteady = slicesPerHour
	// longestPiece bounds the length of a piece, so that half of a history has enough of them.
	longestPiece = slice(Span/Slice) / leastPieces / 2
)

// chargeSilent charges a site without calls in the window, where requests begin that came steadily, with the requests
// that did not come.
func (c *liveComparison) chargeSilent(number int32) {
	s := &c.h.sites[number]
	if s.parent != 0 || s.border {
		return
	}
	c.site.cells = c.h.series[number].unpack(c.site.cells)
	past := c.site.cells // also when incidents were open: they do not change how often requests come
	if len(past) == 0 {
		return
	}
	end := past[len(past)-1].slice + 1
	piece := max(c.window.to-c.window.from, min(c.window.to-end, longestPiece))
	if c.h.series[number].week.silentAt(c.window.to - 1) {
		return
	}
	steady := sliceRange{end - piece*max(leastPieces, (leastSteady+piece-1)/piece), end}
	if steady.from < past[0].slice {
		return
	}
	for from := steady.from; from < end; from += piece {
		if len(past.within(sliceRange{from, from + piece})) == 0 {
			return
		}
	}
	rate := float64(past.within(steady).calls()) / float64(steady.to-steady.from)
	if rate*float64(c.window.to-end) < leastMissing || !c.observed() {
		return
	}
	missing := rate * float64(c.window.to-c.window.from)
	if c.continued(number, end) >= missing/2 {
		return
	}
	c.evidence[s.service].silent += missing / c.requests
	k := callee{s.service, s.op}
	c.ops[k] += missing / c.requests
	of := c.callsOf(k)
	of.calls, of.known.calls, of.failed = of.calls+missing, of.known.calls+missing, of.failed+missing
}

// observed reports whether traces began in each part of the window. If not, the service did not run, or all requests
// stopped. Senders try again at different times after that.
func (c *liveComparison) observed() bool {
	length := c.window.to - c.window.from
	for i := range slice(steadyParts) {
		part := sliceRange{c.window.from + i*length/steadyParts, c.window.from + (i+1)*length/steadyParts}
		if len(c.h.total.within(part)) == 0 {
			return false
		}
	}
	return true
}

// continued returns the number of calls in the window that may be those of a site that has none since a slice: of the
// same step under a caller that sends spans now, or of new operations of the service where requests begin, which may be
// new names.
func (c *liveComparison) continued(number int32, since slice) (calls float64) {
	s := &c.h.sites[number]
	for i := 1; i < len(c.h.sites); i++ {
		x, series := &c.h.sites[i], &c.h.series[i]
		if x.op == s.op || x.parent == 0 && x.service == s.service && series.first() >= since-slicesPerMinute {
			calls += float64(series.within(c.window).calls())
		}
	}
	return calls
}

// silentAt reports whether there were no calls at this hour of the day before, although the site was known. w may be
// nil.
func (w *week) silentAt(at slice) bool {
	yesterday := at.hour() - hoursPerDay
	return w.knownFor(at.hour()) > hoursPerDay && w.highs[yesterday.index()] == 0
}
