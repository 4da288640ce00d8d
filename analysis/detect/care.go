package detect

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// A change may be certain and yet too small for anyone to act on. These are the smallest changes that open a problem.
const (
	// leastTime is the minimum added time of a change, as a share of the total time of the request type.
	leastTime = 0.01
	// leastFailed is the minimum number of added failures of a change, as a share of the failures of all requests.
	leastFailed = 0.01
	// leastRatio is the minimum ratio of the present value to the expectation.
	leastRatio = 1.1
)

// matters reports whether a change of g is large enough to act on: the mean clearly exceeds the expectation, and the
// added time is a relevant share of the time of the request type. A shift also matters if more requests fail (see
// failsMore). Variable requests matter only if their CoV is precise.
func (e *epoch) matters(g *group.Group, kind ProblemKind) bool {
	if kind == KindShifted && e.failsMore(g) {
		return true
	}
	now, before, whole := &g.Current, &g.Reference, g.Parent().Judged()
	lost, spent := impact(g), whole.Rate()*whole.Total.Mean()
	if !(now.Total.Mean() > leastRatio*before.Total.Mean()) || lost < leastTime*spent {
		return false
	}
	return kind != KindVariable || precise(e.detector.judgementOf(g).interval(g))
}

// failsMore reports whether the requests of g fail clearly more often than expected, and the added failures are a
// relevant share of the failures of all requests.
func (e *epoch) failsMore(g *group.Group) bool {
	now, before := failed(&g.Current), failed(&g.Reference)
	return now > leastRatio*before && g.Current.Rate()*(now-before) >= leastFailed*e.failures()
}

// failed returns the fraction of the requests of w that failed, or 0 if w is empty.
func failed(w *group.Window) float64 { return float64(w.Failed) / float64(max(1, w.Total.N)) }

// failures returns the number of failures per second, over all requests.
func (e *epoch) failures() float64 {
	if e.allFailures != nil {
		return *e.allFailures
	}
	all := 0.0
	for requestType := range e.detector.Groups.ByType() {
		w := requestType.Judged() // its current window is empty if it is healthy
		all += w.Rate() * failed(w)
	}
	e.allFailures = &all
	return all
}

// precise reports whether i is narrower than its value. A wider interval says little about the value.
func precise(i stats.Interval) bool { return i.High-i.Low < i.Value }
