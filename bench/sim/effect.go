package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Effect is what the fault does to the durations of requests in a run, found by executing the same requests twice, with and
// without it and with only the baseline on.
type Effect struct {
	Types []TypeEffect // request types that can reach the target, the strongest effect in σ first
	// OnPath is the share of all requests (handled messages included) whose response waited for an execution of the target.
	OnPath float64
	// Locatable is whether some request type's response waits for the target and its mean duration is more than 3 σ above
	// the healthy one. σ is that of the difference of the means of two independent samples of the run's length: what an
	// observer without the counterfactual has to work with.
	Locatable bool
}

// TypeEffect is the effect on the requests that enter at one operation: a gateway's, or a consumer's of messages.
type TypeEffect struct {
	Entry    trace.Op
	Requests int
	OnPath   int           // requests whose response waited for an execution of the target
	Healthy  time.Duration // mean duration without the fault
	Mean     time.Duration // how much longer the mean duration is with it
	Sigma    time.Duration // standard error of that difference, had the samples been independent
}

// Effect returns the effect of a fault that is present from the beginning on requests that arrive in [from, to). It does not
// touch the state of a.
func (a *App) Effect(from, to trace.Nanos) Effect {
	if len(a.fault.points) == 0 {
		return Effect{}
	}
	healthy, faulty := a.measure(from, to, never), a.measure(from, to, int64(from))
	var e Effect
	var requests, onPath int
	for entry, f := range faulty {
		h := healthy[entry]
		t := TypeEffect{
			Entry: a.points[entry].op, Requests: f.n, OnPath: f.onPath,
			Healthy: time.Duration(h.mean()), Mean: time.Duration(f.mean() - h.mean()),
			Sigma: time.Duration(math.Sqrt(f.variance()/float64(f.n) + h.variance()/float64(max(h.n, 1)))),
		}
		if t.OnPath > 0 && f.n > 1 && h.n > 1 && t.Mean > 3*t.Sigma {
			e.Locatable = true
		}
		onPath += t.OnPath
		e.Types = append(e.Types, t)
	}
	slices.SortFunc(e.Types, func(s, t TypeEffect) int {
		return cmp.Or(cmp.Compare(t.z(), s.z()), cmp.Compare(s.Entry, t.Entry))
	})
	a.arrivals(int64(from), int64(to), func(int64, uint64) bool { requests++; return true })
	e.OnPath = float64(onPath) / float64(max(requests, 1))
	return e
}

// z returns the effect in σ.
func (t *TypeEffect) z() float64 {
	if t.Sigma <= 0 {
		return 0
	}
	return float64(t.Mean) / float64(t.Sigma)
}

// moments are the durations of the requests of one type.
type moments struct {
	n, onPath   int
	sum, square float64 // ns, ns²
}

func (m moments) mean() float64 { return m.sum / float64(max(m.n, 1)) }

func (m moments) variance() float64 {
	if m.n < 2 {
		return 0
	}
	return max(0, (m.square-m.sum*m.mean())/float64(m.n-1))
}

// measure executes, silently and in a state of their own, the requests of [from, to) that can reach the fault, and returns
// their durations by entry point.
func (a *App) measure(from, to trace.Nanos, inject int64) map[int32]moments {
	r := newPlayer(a.program)
	r.silent, r.inject = true, inject
	found := make(map[int32]moments)
	a.arrivals(int64(from), int64(to), func(t int64, seed uint64) bool {
		entry := a.types[a.typeOf(seed)].entry
		if !a.fault.reach[entry] {
			return true
		}
		r.request(seed, t, entry)
		for _, root := range r.roots {
			if !a.fault.reach[root.entry] {
				continue
			}
			m := found[root.entry]
			m.n++
			m.sum += float64(root.ns)
			m.square += float64(root.ns) * float64(root.ns)
			if root.hits > 0 {
				m.onPath++
			}
			found[root.entry] = m
		}
		return true
	})
	return found
}
