package compare

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Crept compares each of the last three hours or days before now with an earlier time, which `than` selects. It charges
// the sites whose local times were longer in all three. Each call in the last hour is charged according to the lowest
// of the three ratios. There are no suspects if the last hour has no requests or is not learned yet. Crept also
// compares all calls of each service together, where chance largely cancels out. Inner spans count in the local times
// around them.
func (m *Comparer) Crept(now trace.Nanos, than history.Earlier) Comparison {
	h, w := m.Sites, history.LastHour(now)
	c := m.comparison(w.Slices(), h.Skipped.Any())
	requests := h.Requests.Total().Within(c.window).Calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 || h.Learned() != w+1 {
		return result
	}
	result.Mean = float64(h.Requests.Total().Within(c.window).Time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, Plain)
	c.long, c.source = h.Long, creptWindow{c}
	wholes := make([]creptTimes, len(h.Services.Names()))
	for i := 1; i < len(c.sites); i++ {
		last := h.Series(int32(i)).Week.Last(than)
		if last == nil || last.Growth() == 0 || c.sites[i].Inner {
			continue
		}
		c.site.Cells = h.Series(int32(i)).Unpack(c.site.Cells)
		hour := c.site.Within(c.window)
		if len(hour) == 0 {
			continue
		}
		calls := float64(hour.Calls())
		_, long := h.Long(int32(i))
		if service, known := c.ownerOf(int32(i)); known && !long {
			wholes[service].add(last, calls, hour.OnPath())
		}
		if rise := last.Growth(); rise > 1 {
			mean := last[0].Now.Nanos()
			c.chargeTime(&siteTime{
				number: int32(i),
				calls:  calls,
				onPath: hour.OnPath(),
				mean:   mean,
				means:  []float64{mean / rise},
				before: mean / rise,
			})
		}
	}
	result.Suspects = c.rank()
	for i := range result.Suspects {
		s := &result.Suspects[i]
		s.Whole = wholes[h.Services.Number(s.Service)].operation(c.ledger)
	}
	return result
}

// creptWindow is the last hour, as compared by [Comparer.Crept]. It does not screen the sites, so it counts calls on
// demand.
type creptWindow struct {
	*liveWindow
}

func (c creptWindow) counts(number int32) (now, before float64) {
	series := c.h.Series(number)
	now = float64(series.InWindow(c.window, nil).Calls())
	return now, float64(series.Calls) - now
}

// creptTimes sums up the local times of all calls of a service in ns: in the last hours or days, the latest first, and
// in the earlier ones. Each site is weighted by its calls in the last hour, and by the part of their time that is on
// the critical path.
type creptTimes struct {
	calls       float64
	now, before [len(history.Recent{})]float64
}

// add adds the calls at a site. The growth of last must be known.
func (t *creptTimes) add(last *history.Recent, calls, onPath float64) {
	t.calls += calls
	calls *= onPath
	for i, c := range last {
		t.now[i] += c.Now.Nanos() * calls
		t.before[i] += c.Before.Nanos() * calls
	}
}

// operation returns the calls as an operation with Op 0, or the zero value if they have not become longer.
func (t *creptTimes) operation(l *ledger) (o SuspectOperation) {
	rise := math.Inf(1)
	for i := range t.now {
		rise = min(rise, t.now[i]/max(1, t.before[i]))
	}
	if t.calls == 0 || rise <= 1 {
		return o
	}
	mean := t.now[0] / t.calls
	o.Calls, o.Usual, o.Excess = t.calls, mean/rise, mean-mean/rise
	o.Score = o.Excess * o.Calls / l.requests / l.duration
	return o
}
