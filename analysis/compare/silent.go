package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
)

// Constants of silence. They are numbers of calls and pieces, and depend on no application.
const (
	// leastMissing is the number of calls that are expected in the time without any. Calls that come at random, with
	// that mean, stay away once in 500 million times.
	leastMissing = 20
	// leastPieces is the number of pieces of the history, each as long as the silence, that all have calls, and
	// leastSteady their length together. A job that runs once an hour, or for less than an hour, is not steady.
	leastPieces = 10
	leastSteady = history.SlicesPerHour
	// longestPiece bounds the length of a piece, so that half of a history has enough of them.
	longestPiece = history.Slice(history.Span/history.SliceLength) / leastPieces / 2
)

// chargeSilent charges a site without calls in the window, where requests begin that came steadily, with the requests
// that did not come.
func (c *liveWindow) chargeSilent(number int32) {
	s := &c.sites[number]
	if s.Parent != 0 || s.Border {
		return
	}
	c.site.Cells = c.h.Series(number).Unpack(c.site.Cells)
	past := c.site.Cells // also when incidents were open: they do not change how often requests come
	if len(past) == 0 {
		return
	}
	end := past[len(past)-1].Slice + 1
	piece := max(c.window.To-c.window.From, min(c.window.To-end, longestPiece))
	if c.h.Series(number).Week.SilentAt(c.window.To - 1) {
		return
	}
	steady := history.Range{From: end - piece*max(leastPieces, (leastSteady+piece-1)/piece), To: end}
	if steady.From < past[0].Slice {
		return
	}
	for from := steady.From; from < end; from += piece {
		if len(past.Within(history.Range{From: from, To: from + piece})) == 0 {
			return
		}
	}
	rate := float64(past.Within(steady).Calls()) / float64(steady.To-steady.From)
	if rate*float64(c.window.To-end) < leastMissing || !c.observed() {
		return
	}
	missing := rate * float64(c.window.To-c.window.From)
	if c.continued(number, end) >= missing/2 {
		return
	}
	c.evidence[s.Service].silent += missing / c.requests
	k := history.Callee{Service: s.Service, Op: s.Op}
	c.ops[k] += missing / c.requests
	of := c.called.at(number, s)
	of.calls, of.known.calls, of.failed = of.calls+missing, of.known.calls+missing, of.failed+missing
}

// observed reports whether traces began in each part of the window. If not, the service did not run, or all requests
// stopped. Senders try again at different times after that.
func (c *liveWindow) observed() bool {
	for i := range c.parts {
		part := c.window.Part(i, c.parts)
		if len(c.h.Total().Within(part)) == 0 {
			return false
		}
	}
	return true
}

// continued returns the number of calls in the window that may continue a site without calls since a slice: of the same
// step under a caller that sends spans now, or of new operations where requests begin, of the same service or with the
// same name in another one, which may be new names.
func (c *liveWindow) continued(number int32, since history.Slice) (calls float64) {
	s := &c.sites[number]
	old := c.h.Table().Operation(s.Op)
	for i := 1; i < len(c.sites); i++ {
		x, series := &c.sites[i], c.h.Series(int32(i))
		begins := x.Parent == 0 && series.First() >= since-history.SlicesPerMinute
		if begins && x.Service != s.Service {
			o := c.h.Table().Operation(x.Op)
			begins = o.Name == old.Name && o.Kind == old.Kind
		}
		if x.Op == s.Op || begins {
			calls += float64(series.Within(c.window).Calls())
		}
	}
	return calls
}
