package compare

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Crept compares calls with calls of an earlier time. It charges the local times that have been longer in all of the
// last three hours, or days: the lowest of their three ratios, for each call in the last hour. It also compares all
// calls of each service together, where chance largely cancels. Inner spans count in the local times around them.
func (m *Comparer) Crept(now trace.Nanos, than history.Earlier) Comparison {
	h, w := m.Sites, history.LastHour(now)
	c := m.comparison(w.Slices(), h.SkippedAny())
	requests := h.Total().Within(c.window).Calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 || h.Learned() != w+1 {
		return result
	}
	result.Mean = float64(h.Total().Within(c.window).Time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, Plain)
	c.long = h.Long
	wholes := make([]creptTimes, len(h.Names()))
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
			wholes[service].add(last, calls)
		}
		if rise := last.Growth(); rise > 1 {
			mean := last[0].Now.Nanos()
			c.chargeTime(&siteTime{
				number: int32(i),
				calls:  calls,
				mean:   mean,
				means:  []float64{mean / rise},
				before: mean / rise,
			})
		}
	}
	result.Suspects = c.rank()
	for i := range result.Suspects {
		s := &result.Suspects[i]
		s.Whole = wholes[h.NumberOf(s.Service)].operation(c.ledger)
	}
	return result
}

// Grown compares the calls of a window, service by service, with the first hours of the day: growth that takes hours
// hides in the hours just before. It sets the Whole of suspects only. Growth that most services share, as with more
// traffic, does not count.
func (m *Comparer) Grown(window history.Interval) Comparison {
	w := history.Range{From: history.SliceOf(window.From), To: history.SliceOf(window.To)}
	c := m.comparison(w, m.SkippedAny())
	requests := m.Total().Within(w).Calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 {
		return result
	}
	result.Mean = float64(m.Total().Within(w).Time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, Plain)
	wholes := make([]creptTimes, len(m.Names()))
	for i := 1; i < len(c.sites); i++ {
		service, known := c.ownerOf(int32(i))
		week := m.Series(int32(i)).Week
		early := week.Early(w.From)
		if _, long := m.Long(int32(i)); !known || long || early == 0 || c.sites[i].Inner {
			continue
		}
		early = max(early, week.Usual(w.To-1)) // a nightly job is a habit after two nights
		c.site.Cells = m.Series(int32(i)).LocalTimes().Unpack(c.site.Cells)
		if now := c.site.Within(w); len(now) > 0 {
			wholes[service].addParts(now, w, early)
		}
	}
	shared := sharedGrowth(wholes)
	result.Suspects = c.rank()
	for i := range result.Suspects {
		s := &result.Suspects[i]
		times := wholes[m.NumberOf(s.Service)]
		for k := range times.now {
			times.before[k] *= shared
		}
		s.Whole = times.operation(c.ledger)
	}
	return result
}

// sharedGrowth returns the median growth over the services, at least 1.
func sharedGrowth(wholes []creptTimes) float64 {
	var growth []float64
	for i := range wholes {
		if w := &wholes[i]; w.calls > 0 && w.before[0] > 0 {
			growth = append(growth, w.now[0]/w.before[0])
		}
	}
	if len(growth) == 0 {
		return 1
	}
	return max(1, stats.Median(growth))
}

// addParts adds calls at a site in each part of a window, whose calls took early ns each in the time that they are
// compared with.
func (t *creptTimes) addParts(calls history.Cells, w history.Range, early float64) {
	n := float64(calls.Calls())
	t.calls += n
	for k := range t.now {
		mean := early
		if part := calls.Within(w.Part(k, len(t.now))); len(part) > 0 {
			mean = float64(part.Time()) / float64(part.Calls())
		}
		t.now[k] += mean * n
		t.before[k] += early * n
	}
}

// creptTimes sums up the local times of all calls of a service, in ns: in the last hours or days, the last one first,
// and in those before. Each site counts with its calls in the last hour.
type creptTimes struct {
	calls       float64
	now, before [len(history.Recent{})]float64
}

// add adds calls at a site, whose growth is known.
func (t *creptTimes) add(last *history.Recent, calls float64) {
	t.calls += calls
	for i, c := range last {
		t.now[i] += c.Now.Nanos() * calls
		t.before[i] += c.Before.Nanos() * calls
	}
}

// operation returns the calls as an operation with Op 0.
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
