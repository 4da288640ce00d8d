package compare

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

// SteadyFor is the time that requests must have come without a gap before we miss them.
const SteadyFor = time.Hour

// Constants of silence. They are numbers of calls and pieces, and don't depend on the application.
const (
	// leastMissing is the minimum number of calls that we would expect during a silence. Random calls with that mean
	// stay away once in 500 million times.
	leastMissing = 20
	// leastPieces is the minimum number of pieces of the history, each as long as the silence, that all have calls, and
	// leastSteady their minimum total length. A job that runs once an hour, or for less than an hour, is not steady.
	leastPieces = 10
	leastSteady = history.Slice(SteadyFor / history.SliceLength)
	// longestPiece bounds the length of a piece, so that half of a history has enough of them.
	longestPiece = history.Slice(history.Span/history.SliceLength) / leastPieces / 2
)

// chargeSilent charges site `number` with the requests that did not come, if requests start there and came steadily.
// The window must be without calls at the site.
func (c *liveWindow) chargeSilent(number int32) {
	s := &c.sites[number]
	if s.Parent != 0 || s.Border {
		return
	}
	c.site.Cells = c.h.Series(number).Unpack(c.site.Cells)
	past := c.site.Cells // including times of open incidents, because these don't change how often requests come
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
	since := history.Range{From: end, To: c.window.To - history.Slice(c.h.Series(number).StillOpen()/history.SliceLength)}
	if rate*float64(since.To-since.From) < leastMissing || !c.observed() { // before reading all sites
		return
	}
	usual := rate / history.SliceLength.Seconds()
	rate *= c.trafficSince(steady)
	expected := rate * float64(since.To-since.From)
	if expected < leastMissing || c.continued(number, steady, since) >= expected/2 {
		return
	}
	missing := rate * float64(c.window.To-c.window.From)
	c.evidence[s.Service].silent += missing / c.requests
	k := history.Callee{Service: s.Service, Op: s.Op}
	c.ops[k] += missing / c.requests
	of := c.called.at(number, s)
	of.calls, of.known.calls, of.failed = of.calls+missing, of.known.calls+missing, of.failed+missing
	of.stopped += usual
}

// trafficSince returns the traffic in the window as a fraction of the traffic in `then`, at most 1. It counts all
// requests that start at the sites with calls in the window. If there are fewer requests of every kind, a rare kind may
// stay away by chance.
func (c *liveWindow) trafficSince(then history.Range) float64 {
	var before, now float64
	for i := range c.sites {
		if s, series := &c.sites[i], c.h.Series(int32(i)); i > 0 && s.Parent == 0 && !s.Border {
			if n := series.Within(c.window).Calls(); n > 0 {
				now += float64(n)
				before += float64(series.Within(then).Calls())
			}
		}
	}
	if before == 0 {
		return 1
	}
	return min(1, now/before*float64(then.To-then.From)/float64(c.window.To-c.window.From))
}

// observed reports whether traces started in each part of the window. If not, Sibyl did not run, or all requests
// stopped. Senders retry at different times after that.
func (c *liveWindow) observed() bool {
	for i := range c.parts {
		part := c.window.Part(i, c.parts)
		if len(c.h.Requests.Total().Within(part)) == 0 {
			return false
		}
	}
	return true
}

// continued returns the number of calls in `since` that may replace the calls that site `number` had in `steady`. These
// are calls of the same step under a caller that sends spans now. They are also calls of new operations where requests
// start, in the same service or with the same name in another one, because they may be new names.
func (c *liveWindow) continued(number int32, steady, since history.Range) (calls float64) {
	s := &c.sites[number]
	old := c.h.Table().Operation(s.Op)
	for i := 1; i < len(c.sites); i++ {
		x, series := &c.sites[i], c.h.Series(int32(i))
		begins := x.Parent == 0 && isNew(series, steady, since)
		if begins && x.Service != s.Service {
			o := c.h.Table().Operation(x.Op)
			begins = o.Name == old.Name && o.Kind == old.Kind
		}
		if x.Op == s.Op || begins {
			calls += float64(series.Within(since).Calls())
		}
	}
	return calls
}

// leastGrown is the minimum ratio of the rate of the calls of a new operation to its earlier rate. It isn't infinite,
// because phones with wrong clocks send some calls that seem to come before the first one.
const leastGrown = 10

// isNew reports whether the calls of s in `since` are new: it hardly had any in `earlier`.
func isNew(s *history.Series, earlier, since history.Range) bool {
	before, now := float64(s.Within(earlier).Calls()), float64(s.Within(since).Calls())
	return leastGrown*before*float64(since.To-since.From) <= now*float64(earlier.To-earlier.From)
}
