package compare

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// SteadyFor is the minimum time that requests must have come without a gap before their absence counts.
const SteadyFor = time.Hour

// Constants of silence. They are numbers of calls and pieces, so they don't depend on the application.
const (
	// leastMissing is the minimum number of calls expected during a silence. With that mean, calls at random times are
	// all absent by chance once in 500 million times.
	leastMissing = 20
	// leastPieces is the minimum number of pieces of the history, each as long as the silence, that must all have
	// calls, and leastSteady is their minimum total length. A job that runs once an hour, or for less than an hour, is
	// not steady.
	leastPieces = 10
	leastSteady = history.Slice(SteadyFor / history.SliceLength)
	// longestPiece is the maximum length of a piece, chosen so that half of a history contains enough pieces.
	longestPiece = history.Slice(history.Span/history.SliceLength) / leastPieces / 2
)

// silence is a time without calls at a site where requests start, after a time when requests came steadily.
type silence struct {
	*silences
	number        int32         // of the site
	steady, since history.Range // since ends before any request that may still be running
}

// silences finds the sites of a window where requests stopped.
type silences struct {
	*liveWindow
	started history.Cells // requests that start at the sites with calls in the window
	found   []silentSite
}

// due reports whether to judge sites without calls in the window. Once a minute is often enough.
func (c *silences) due() bool { return c.lasting() && c.window.To%history.SlicesPerMinute == 0 }

// note records that the requests at site `number` stopped, if requests start there and came steadily. There must be no
// calls at the site in the window.
func (c *silences) note(number int32) {
	s := &c.sites[number]
	if s.Parent != 0 || s.Border {
		return
	}
	series := c.h.Series(number)
	end := series.Last() + 1
	piece := max(c.window.Length(), min(c.window.To-end, longestPiece))
	if end == 0 || series.Week.SilentAt(c.window.To-1) {
		return
	}
	open := history.Slice(series.StillOpen() / history.SliceLength)
	x := silence{
		silences: c,
		number:   number,
		steady:   history.Range{From: end - piece*max(leastPieces, (leastSteady+piece-1)/piece), To: end},
		since:    history.Range{From: end, To: c.window.To - open},
	}
	if x.steady.From < series.First() || x.expected(series.Calls) < leastMissing { // checked before its calls are read
		return
	}
	c.site.Cells = series.Unpack(c.site.Cells)
	past := c.site.Cells // including times of open incidents, because these don't change how often requests come
	for from := x.steady.From; from < end; from += piece {
		if len(past.Within(history.Range{From: from, To: from + piece})) == 0 {
			return
		}
	}
	calls := past.Within(x.steady).Calls()
	if x.expected(calls) < leastMissing || !x.observed() { // checked before all sites are read
		return
	}
	rate := float64(calls) / float64(x.steady.Length())
	usual := rate / history.SliceLength.Seconds()
	rate *= x.traffic()
	expected := rate * float64(x.since.Length())
	if expected < leastMissing || x.continued() >= expected/2 {
		return
	}
	c.found = append(c.found, silentSite{number, rate * float64(c.window.Length()), usual})
}

// silentSite is a site whose calls stopped.
type silentSite struct {
	number  int32
	missing float64 // calls in the window
	usual   float64 // calls per second
}

// charge charges the silent sites. If requests other than messages stopped, too, it leaves out consumers, because
// nothing sends them messages then.
func (c *silences) charge() {
	consumes := func(x silentSite) bool { return c.table.Operation(c.sites[x.number].Base).Kind == trace.Consumer }
	if stopped := slices.DeleteFunc(slices.Clone(c.found), consumes); len(stopped) > 0 {
		c.found = stopped
	}
	for _, x := range c.found {
		s, part := &c.sites[x.number], x.missing/c.requests
		c.evidence[s.Service].silent += part
		c.ops[history.Callee{Service: s.Service, Op: s.Op}] += part
		of := c.called.at(x.number, s)
		of.calls, of.known.calls, of.failed = of.calls+x.missing, of.known.calls+x.missing, of.failed+x.missing
		of.stopped += x.usual
	}
}

// expected returns the number of calls in x.since at the rate of `calls` in x.steady.
func (x *silence) expected(calls uint64) float64 {
	return float64(calls) / float64(x.steady.Length()) * float64(x.since.Length())
}

// traffic returns the traffic in the window as a fraction of the traffic in x.steady, at most 1. It counts all requests
// that start at sites with calls in the window. If there are fewer requests of every kind, a rare kind may be absent by
// chance.
func (x *silence) traffic() float64 {
	now, before := x.started.Within(x.window).Calls(), x.started.Within(x.steady).Calls()
	if before == 0 {
		return 1
	}
	return min(1, float64(now)/float64(before)*float64(x.steady.Length())/float64(x.window.Length()))
}

// countStarted sets c.started.
func (c *silences) countStarted() {
	c.sum.restart(c.window.To + history.Ahead)
	for i := 1; i < len(c.sites); i++ {
		s, series := &c.sites[i], c.h.Series(int32(i))
		if s.Parent == 0 && !s.Border && series.Last() >= c.window.From {
			c.screening.now = series.InWindow(c.window, c.screening.now)
			if len(c.screening.now) > 0 {
				c.sum.addAll(series.Encoded())
			}
		}
	}
	c.started = c.sum.take()
}

// observed reports whether traces started in each part of the window. If not, either Sibyl did not run or all requests
// stopped. A site without calls is then no evidence, because senders retry at different times when requests resume.
func (x *silence) observed() bool {
	for i := range x.parts {
		part := x.window.Part(i, x.parts)
		if len(x.h.Requests.Total().Within(part)) == 0 {
			return false
		}
	}
	return true
}

// continued returns the number of calls in x.since that may have replaced the calls at the site: calls of the same step
// under a caller that emits spans only now, and calls of new operations where requests start. Such an operation must be
// in the same service, or have the same name in another service, because the service or the operation may have been
// renamed.
func (x *silence) continued() (calls float64) {
	silent := &x.sites[x.number]
	old := x.h.Table().Operation(silent.Op)
	for i := 1; i < len(x.sites); i++ {
		s := &x.sites[i]
		begins := s.Parent == 0
		if begins && s.Service != silent.Service {
			o := x.h.Table().Operation(s.Op)
			begins = o.Name == old.Name && o.Kind == old.Kind
		}
		if s.Op != silent.Op && !begins || x.h.Series(int32(i)).Last() < x.since.From {
			continue // checked before all of its calls are read
		}
		if before, now := x.around(int32(i)); s.Op == silent.Op || x.isNew(before, now) {
			calls += now
		}
	}
	return calls
}

// around returns the number of calls at site `number` in x.steady and in x.since, which follows it.
func (x *silence) around(number int32) (before, now float64) {
	for cells := x.h.Series(number).Encoded(); cells.More(); {
		switch c := cells.Next(); {
		case x.steady.Contains(c.Slice):
			before += float64(c.Calls)
		case x.since.Contains(c.Slice):
			now += float64(c.Calls)
		}
	}
	return before, now
}

// leastGrown is the minimum ratio of the call rate of a new operation to its earlier call rate. It isn't infinite,
// because phones with wrong clocks send calls that seem to be earlier than they were.
const leastGrown = 10

// isNew reports whether the calls at a site in x.since are new: the site had hardly any calls in x.steady.
func (x *silence) isNew(before, now float64) bool {
	return leastGrown*before*float64(x.since.Length()) <= now*float64(x.steady.Length())
}
