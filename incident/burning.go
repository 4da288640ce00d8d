package incident

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// unexplained reports whether x is open only because of objectives and no service stands out so far.
func (x *tracked) unexplained() bool {
	return len(x.Objectives) > 0 && x.score == 0 && x.current.score == 0
}

// staysUnexplained reports whether x is still unexplained although its cause would have shown by now. If the objective
// is too strict, such an incident stays open indefinitely, so we continue to learn while it is open.
func (x *tracked) staysUnexplained(now trace.Nanos) bool {
	return x.unexplained() && now.Sub(x.Opened()) >= spreading
}

// miss adds to x the objectives in missed, which requests miss because of x. If x already has an objective, miss
// updates its figures.
func (x *tracked) miss(missed ...Missed) {
	x.Objectives = slices.Clone(x.Objectives) // callers may keep the incident's slice
	for _, m := range missed {
		if i := slices.IndexFunc(x.Objectives, func(o Missed) bool { return o.counted() == m.counted() }); i >= 0 {
			x.Objectives[i] = m
		} else {
			x.Objectives = append(x.Objectives, m)
		}
	}
}

// misses reports whether requests miss o because of x.
func (x *tracked) misses(o *Objective) bool {
	return slices.ContainsFunc(x.Objectives, func(m Missed) bool { return m.counted() == o.counted() })
}

// maxCompared is the maximum number of comparisons with the history per epoch, each of which takes milliseconds.
const maxCompared = 4

// burn keeps an incident open for each burning objective: the incident that the objective has joined, an incident of a
// service on the path of its requests, or an incident that has just closed. If there is no such incident, it opens one.
func (t *Tracker) burn(now trace.Nanos, burns []Burn, comparer *compare.Comparer) {
	compared := 0
	for i := range burns {
		b := &burns[i]
		x := t.burning(b)
		switch {
		case x == nil:
			x = t.openBy(now, b, comparer)
		case !x.IsOpen():
			x.reopen(now, now.Add(-Window))
		case x.unexplained():
			t.absorb(now, x, b)
		}
		x.miss(b.Missed)
		x.Seen = now
		if x.unexplained() && now.Sub(x.searched) >= time.Minute && now.Sub(x.Opened()) < spreading {
			t.explain(now, x, b, comparer, compared < maxCompared)
			compared++
		}
	}
}

// burning returns the incident of b if it is open or may reopen, and nil otherwise.
func (t *Tracker) burning(b *Burn) *tracked {
	all := []func(x *tracked) bool{
		func(x *tracked) bool { return x.IsOpen() && x.misses(&b.Objective) },
		func(x *tracked) bool { return x.IsOpen() && b.passes(x.service) },
		func(x *tracked) bool {
			return x.mayReturn() && b.At.Sub(x.Closed()) <= t.baseline.returning() && x.misses(&b.Objective)
		},
	}
	for _, is := range all {
		if i := slices.IndexFunc(t.incidents, is); i >= 0 {
			return t.incidents[i]
		}
	}
	return nil
}

// passes reports whether requests of the objective run through service, or wait for it.
func (b *Burn) passes(service trace.Symbol) bool {
	_, found := slices.BinarySearch(b.Services, service)
	return found
}

// openBy opens an incident for b at b.Service, and returns it.
func (t *Tracker) openBy(now trace.Nanos, b *Burn, comparer *compare.Comparer) *tracked {
	x := &tracked{evidence: evidence{service: b.Service}, grown: now}
	x.Onset = min(b.Since, now)
	x.Suspects, x.Alerted = []compare.Suspect{{Service: b.Service}}, b.Service
	t.open(now, uint64(trace.SymbolOf([]byte(b.Entry+b.Below.String()))), x, comparer)
	return x
}

// explain looks for the cause of an unexplained incident: services where the requests that miss the objective differ
// from the others. If there are no such services, it takes the services on the path of these requests that have become
// slower since the onset, ordered by the excess of their scores over their records: a service isn't unusual merely
// because its score is the highest.
//
// explain compares with the history only if may is true.
func (t *Tracker) explain(now trace.Nanos, x *tracked, b *Burn, comparer *compare.Comparer, may bool) {
	x.searched = now
	window := history.Interval{From: x.Onset, To: now}
	c, ready := compare.Comparison{}, may && Ready(now, comparer.Sites)
	if ready {
		c = comparer.Compare(window, compare.Plain)
	}
	found := slices.Clone(b.Suspects)
	requests, duration, mean := b.Requests.Requests, b.Duration, b.Duration
	if len(found) == 0 {
		found = slices.DeleteFunc(slices.Clone(c.Suspects),
			func(s compare.Suspect) bool { return s.Score < leastShown || !b.passes(s.Service) })
		sorting.SliceStable(found,
			func(a, b compare.Suspect) int {
				return cmp.Compare(t.baseline.aboveRecord(&b), t.baseline.aboveRecord(&a))
			})
		requests, duration, mean = c.Requests, c.Duration, c.Mean
	}
	if len(found) == 0 || found[0].Score < x.Suspects[0].Score {
		return
	}
	for i := range found[:min(located, len(found))] {
		if ready {
			found[i].Instances = comparer.InstanceParts(window, &c, &found[i])
		}
	}
	x.Requests, x.Duration, x.Mean = int(requests), duration, mean
	x.Suspects, x.service = found, found[0].Service
	if x.Opened() == now {
		x.Alerted = x.service
	}
	t.affect(x, comparer)
}

// absorb looks for an incident that has just opened at a service on the path of the requests, and makes it the
// explanation of x.
func (t *Tracker) absorb(now trace.Nanos, x *tracked, b *Burn) {
	i := slices.IndexFunc(t.incidents,
		func(y *tracked) bool { return y != x && y.Opened() == now && b.passes(y.service) })
	if i < 0 {
		return
	}
	y := t.incidents[i]
	x.evidence, x.current, x.every, x.symptoms = evidence{service: y.service}, y.current, y.every, y.symptoms
	x.miss(y.Objectives...)
	t.incidents = slices.Delete(t.incidents, i, i+1)
}
