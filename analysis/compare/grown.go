package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Grown compares the calls of a window with the first calls of the day. Growth over several hours doesn't show in a
// comparison with the hours just before, and growth since the first minutes doesn't show against any history. Grown
// sets only Whole and Operations of suspects. Growth that most services share, as with more traffic, doesn't count.
func (m *Comparer) Grown(window history.Interval) Comparison {
	w := window.Slices()
	c := m.comparison(w, m.Skipped.Any())
	requests := m.Requests.Total().Within(w).Calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 {
		return result
	}
	result.Mean = float64(m.Requests.Total().Within(w).Time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, Plain)
	covered := m.Requests.CoveredSince(window.To)
	wholes := make([]grownTimes, len(m.Services.Names()))
	operations := make([]map[history.Callee]*grownTimes, len(m.Services.Names()))
	for i := 1; i < len(c.sites); i++ {
		service, known := c.ownerOf(int32(i))
		if _, long := m.Long(int32(i)); !known || long || c.sites[i].Inner {
			continue
		}
		c.skip(c.sites[i].Service)
		series := m.Series(int32(i))
		c.site.Cells = series.LocalTimes().Unpack(c.site.Cells)
		now := c.site.Within(w)
		early, known := series.Early(c.site.Cells, w.From, covered, c.skipped)
		if len(now) == 0 || !known {
			continue
		}
		usual := series.Week.Usual(w.To - 1) // a nightly job is a habit after two nights
		for k := range early {
			early[k].Nanos = max(early[k].Nanos, usual)
		}
		of := history.Callee{Service: c.sites[i].Service, Op: c.sites[i].Op}
		if c.sites[i].Client {
			of = c.callee[i]
		}
		if operations[service] == nil {
			operations[service] = make(map[history.Callee]*grownTimes)
		}
		if operations[service][of] == nil {
			operations[service][of] = &grownTimes{}
		}
		wholes[service].add(now, w, early)
		operations[service][of].add(now, w, early)
	}
	shared := sharedGrowth(wholes)
	for _, number := range c.byName() {
		s := Suspect{Service: m.Services.Names()[number], Opaque: c.opaque[number]}
		s.Whole = wholes[number].operation(shared, c.ledger)
		for of, times := range operations[number] {
			if o := times.operation(shared, c.ledger); o.Score > 0 {
				o.Op = of.Op
				s.Operations = append(s.Operations, o)
			}
		}
		sorting.Slice(s.Operations, compareOperations)
		if s.Whole.Score > 0 || len(s.Operations) > 0 {
			result.Suspects = append(result.Suspects, s)
		}
	}
	sorting.SliceStable(result.Suspects, func(a, b Suspect) int { return cmp.Compare(b.grown(), a.grown()) })
	return result
}

// grown returns the highest score of s in the result of Grown, as a whole or of an operation.
func (s *Suspect) grown() float64 {
	score := s.Whole.Score
	if len(s.Operations) > 0 {
		score = max(score, s.Operations[0].Score)
	}
	return score
}

// sharedGrowth returns the median growth of the services, at least 1. Most services become slower if there is more
// traffic. It returns 1 if there is only one service, which shares nothing.
func sharedGrowth(wholes []grownTimes) float64 {
	var growth []float64
	for i := range wholes {
		if t := &wholes[i]; t.calls > 0 {
			now, early := t.least()
			growth = append(growth, now/max(1, early.Nanos))
		}
	}
	if len(growth) < 2 {
		return 1
	}
	slices.Sort(growth)
	return max(1, growth[(len(growth)-1)/2])
}

// grownTimes sums up the local times of calls in ns, in the parts of a window and in the parts of an early time. Each
// site is weighted by its calls in the window, so that more calls at slow sites don't count as growth, and by the part
// of their time in the window that is on the critical path.
type grownTimes struct {
	calls float64
	parts [history.SteadyParts]float64
	whole history.Mean
	early history.Early
	// typical sums up the growth of the typical time in octaves. known is the number of calls in that sum: those whose
	// early time is known.
	typical, known float64
}

// add adds the calls at a site in a window.
func (t *grownTimes) add(calls history.Cells, w history.Range, early history.Early) {
	n := float64(calls.Calls())
	t.calls += n
	n *= calls.OnPath()
	whole := calls.Mean()
	addMean(&t.whole, whole, n)
	for k := range t.parts {
		mean := early[0].Nanos
		if part := calls.Within(w.Part(k, len(t.parts))); len(part) > 0 {
			mean = float64(part.Own()) / float64(part.Calls())
		}
		t.parts[k] += mean * n
	}
	for k := range early {
		addMean(&t.early[k], early[k], n)
	}
	if lowest := early.Lowest(); lowest.Octaves > 0 {
		t.typical += n * (whole.Octaves - lowest.Octaves)
		t.known += n
	}
}

func addMean(sum *history.Mean, m history.Mean, calls float64) {
	sum.Nanos += m.Nanos * calls
	sum.Variance += m.Variance * calls * calls
}

// least returns the lowest time of a part of the window, and the lowest early time, so that a service that is slow only
// when it starts, or for a few minutes, doesn't count.
func (t *grownTimes) least() (now float64, early history.Mean) {
	return slices.Min(t.parts[:]), t.early.Lowest()
}

// grownErrors is the number of standard deviations that growth must exceed, because thousands of operations are
// compared every few minutes for a day.
const grownErrors = 5

// leastTypicalGrowth is the minimum growth of the typical time, as a fraction of the growth of the mean, both in
// octaves. A few calls of a half hour may take a hundred times as long as the others. Whether such calls are among the
// first ones is a matter of chance, and cells don't show it.
const leastTypicalGrowth = 0.5

// operation returns the calls as an operation with Op 0. It returns the zero value if the growth beyond the shared
// growth may be due to chance.
func (t *grownTimes) operation(shared float64, l *ledger) (o SuspectOperation) {
	if t.calls == 0 {
		return o
	}
	now, early := t.least()
	usual := early.Nanos * shared
	if now <= usual || t.whole.Nanos-usual <= grownErrors*math.Sqrt(t.whole.Variance+shared*shared*early.Variance) {
		return o
	}
	if least := leastTypicalGrowth * math.Log2(now/usual); t.known > 0 && t.typical/t.known-math.Log2(shared) < least {
		return o
	}
	o.Calls, o.Usual, o.Excess = t.calls, usual/t.calls, (now-usual)/t.calls
	o.Score = (now - usual) / l.requests / l.duration
	return o
}
