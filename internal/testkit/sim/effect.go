package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Effect is the effect of the fault on the durations of requests. It is measured by executing the same requests twice
// with only the baseline, with and without the fault.
type Effect struct {
	Types []TypeEffect // request types that can reach the target, in decreasing order of the effect in σ
	// OnPath is the fraction of all requests, including handled messages, whose response waited for an execution of the
	// target.
	OnPath float64
	// Locatable is true if the responses of a request type wait for the target and its mean duration increases by more
	// than 3 σ. σ is the standard error of the difference between the means of two independent samples, since an
	// observer does not see the same requests without the fault.
	Locatable bool
}

// TypeEffect is the effect on the requests with one entry operation, of a gateway or of a consumer of messages.
type TypeEffect struct {
	Entry    trace.Op
	Requests int
	OnPath   int           // number of requests whose response waited for an execution of the target
	Healthy  time.Duration // mean duration without the fault
	Mean     time.Duration // increase of the mean duration with the fault
	Sigma    time.Duration // standard error of Mean for independent samples
}

// Effect returns the effect on the requests that arrive in [from, to), with the fault present from the start. It does
// not change the state of a.
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

// moments sums the durations of the requests of a type.
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

// measure executes the requests of [from, to) that can reach the fault, without emitting spans, and with a state of its
// own. It returns the durations of these requests by entry point.
func (a *App) measure(from, to trace.Nanos, inject int64) map[int32]moments {
	r := newExecutor(a.program)
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
