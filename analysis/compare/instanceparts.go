package compare

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Constants of [Comparer.InstanceParts]. They are ratios of costs within one service and window, so they don't depend
// on the application.
const (
	// clearlyMore is the minimum ratio of the cost of a call with a value to the cost of a call with another value.
	clearlyMore = 2
	// leastVisible is the minimum part of the score of a service that its calls must show. If they show less, their
	// cost is noise: the score comes from unanswered calls or a changed call flow.
	leastVisible = 0.5
	// carried is the minimum fraction of the cost of a value that another value, of a more specific key, must carry to
	// account for it.
	carried = 0.8
	// maxListed is the maximum number of values that InstanceParts returns.
	maxListed = 10
)

// InstanceParts returns the attribute values that account for most of the cost of a service in a window, if calls with
// such a value cost clearly more than the other calls of the service. It considers attributes that distinguish
// instances, hosts, zones and versions. c is the comparison of the window, and s one of its suspects.
//
// The cost of a value is the time and the errors of its calls above its own history. If that history has fewer calls
// than the window, it is the cost above the median of the other values in the window, or above the history of the
// service if there are no other values. A value is listed if its calls cost at least twice as much as the calls of all
// others, both in the whole window and in each third of it, with enough calls on both sides. If all values are equally
// slow, the ratio is near 1: with exponential times and at least four calls per third, it exceeds 2 in all thirds in
// fewer than one of 10,000 cases. If one of several values is slow, the ratio is large, whatever the service does.
//
// A slow instance makes its host, its zone and its version slow. We then list only the instance, and the version if no
// other instance has it.
func (m *Comparer) InstanceParts(window history.Interval, c *Comparison, s *Suspect) []InstancePart {
	x := m.instancesOf(window, c, s)
	var all []InstancePart
	for _, key := range history.InstanceKeys {
		listed := x.compare(m.Instances.Of(s.Service, key))
		all = append(all, slices.DeleteFunc(listed, func(a InstancePart) bool {
			return slices.ContainsFunc(all, func(b InstancePart) bool { return b.accountsFor(&a) })
		})...)
	}
	sorting.SliceStable(all, func(a, b InstancePart) int { return cmp.Compare(b.Part, a.Part) })
	return all[:min(len(all), maxListed)]
}

// instancesOf returns a comparison of the instances of s, a suspect of c.
func (m *Comparer) instancesOf(window history.Interval, c *Comparison, s *Suspect) instanceComparison {
	w := window.Slices()
	return instanceComparison{
		liveWindow: m.comparison(w, m.Skipped.Of(s.Service)),
		duration:   c.Duration,
		least:      leastVisible * s.Score * float64(c.Requests),
	}
}

// accountsFor reports whether q need not be listed because p, whose key must be more specific, carries most of its
// cost. It returns false for a version that runs only on the instance p, because the version says more than the
// instance.
func (p *InstancePart) accountsFor(q *InstancePart) bool {
	return p.Part >= carried*q.Part && (q.Key != history.VersionKey || p.Calls != q.Calls)
}

// instanceComparison is the state of one call of InstanceParts.
type instanceComparison struct {
	*liveWindow
	duration, least float64 // unit of times in ns; minimum total cost of all values
}

// usage counts the calls with one value during some time.
type usage struct{ calls, nanos, errors float64 }

func (u *usage) add(v usage) {
	u.calls += v.calls
	u.nanos += v.nanos
	u.errors += v.errors
}

// instanceCost holds the usage of one value: in the whole window, in each third of the window, and before the window.
type instanceCost struct {
	history.InstanceKey
	whole  usage
	thirds [history.SteadyParts]usage
	before usage
	usual  usage // expected usage per call, from the history or from the other values
	cost   float64
}

// compare returns the values whose calls cost clearly more than the others. All values have the same service and key.
func (x *instanceComparison) compare(values []history.Instance) (listed []InstancePart) {
	costs, total := x.costs(values)
	if total <= 0 || total < x.least {
		return nil
	}
	for i := range costs {
		if v := &costs[i]; v.Value != 0 && x.standsOut(costs, i) {
			listed = append(listed, InstancePart{v.Key, v.Value, uint64(v.whole.calls), v.cost / total, len(costs)})
		}
	}
	return listed
}

// costs returns the values with calls in the window, and their total cost.
func (x *instanceComparison) costs(values []history.Instance) (costs []instanceCost, total float64) {
	var service usage // history of all values
	for i := range values {
		v := instanceCost{InstanceKey: values[i].InstanceKey, whole: usageOf(values[i].InstanceSeries, x.window)}
		v.before = x.before(values[i].InstanceSeries)
		service.add(v.before)
		if v.whole.calls == 0 {
			continue
		}
		for k := range v.thirds {
			v.thirds[k] = usageOf(values[i].InstanceSeries, x.window.Part(k, history.SteadyParts))
		}
		costs = append(costs, v)
	}
	for i := range costs {
		v := &costs[i]
		switch {
		case v.before.calls >= max(history.MinHistory, v.whole.calls):
			v.usual = v.before.perCall()
		case len(costs) > 1:
			v.usual = siblings(costs, i, inWhole)
		case service.calls > 0:
			v.usual = service.perCall()
		default:
			v.usual = v.whole.perCall()
		}
	}
	cheaper(costs)
	for i := range costs {
		v := &costs[i]
		v.cost = x.excess(v, &v.whole) * v.whole.calls
		total += v.cost
	}
	return costs, total
}

// mostlyCheaper is a ratio of the present to the usual time of a call. If the ratio is lower for most values, that
// isn't due to chance.
const mostlyCheaper = 0.9

// cheaper lowers the usual times of costs if calls became faster for most of the values, as after a change of the most
// frequent calls. Otherwise that change would hide the slow values.
func cheaper(costs []instanceCost) {
	ratios := make([]float64, 0, len(costs))
	for i := range costs {
		if v := &costs[i]; v.usual.nanos > 0 {
			ratios = append(ratios, v.whole.perCall().nanos/v.usual.nanos)
		}
	}
	slices.Sort(ratios)
	if len(ratios) < 2 || ratios[(len(ratios)-1)/2] > mostlyCheaper {
		return
	}
	for i := range costs {
		costs[i].usual.nanos *= ratios[(len(ratios)-1)/2]
	}
}

// usageOf returns the usage of s in r.
func usageOf(s *history.InstanceSeries, r history.Range) usage {
	calls, errors := s.Within(r), s.Errors.Within(r)
	return usage{float64(calls.Calls()), float64(calls.Time()), float64(errors.Calls())}
}

// before returns the usage of s before the window, without skipped times.
func (x *instanceComparison) before(s *history.InstanceSeries) usage {
	calls, errors := x.past(s.Unpack(nil), &x.kept), x.past(s.Errors.Unpack(nil), &x.keptShape)
	return usage{float64(calls.Calls()), float64(calls.Time()), float64(errors.Calls())}
}

// inWhole returns the usage of v in the window, and inThird selects the usage in third k.
func inWhole(v *instanceCost) *usage { return &v.whole }

func inThird(k int) func(*instanceCost) *usage {
	return func(v *instanceCost) *usage { return &v.thirds[k] }
}

// perCall returns the usage per call. u must have calls.
func (u *usage) perCall() usage { return usage{1, u.nanos / u.calls, u.errors / u.calls} }

// siblings returns the medians of time and errors per call over all values except i. part selects the whole window or a
// third of it.
func siblings(costs []instanceCost, i int, part func(*instanceCost) *usage) usage {
	var nanos, errors []float64
	for k := range costs {
		if k != i {
			u := part(&costs[k]).perCall()
			nanos, errors = append(nanos, u.nanos), append(errors, u.errors)
		}
	}
	return usage{1, stats.Median(nanos), stats.Median(errors)}
}

// excess returns the mean cost per call in u above the usual cost, in the unit of scores, or 0 without calls.
func (x *instanceComparison) excess(v *instanceCost, u *usage) float64 {
	if u.calls == 0 {
		return 0
	}
	now := u.perCall()
	return max(0, now.nanos-v.usual.nanos)/x.duration + max(0, now.errors-v.usual.errors)
}

// standsOut reports whether the calls of value i cost clearly more than all others, in the window and in each third.
func (x *instanceComparison) standsOut(costs []instanceCost, i int) bool {
	clear := func(of func(v *instanceCost) *usage) bool {
		cost, calls := 0.0, 0.0 // of the other values
		for k := range costs {
			if u := of(&costs[k]); k != i {
				cost += x.excess(&costs[k], u) * u.calls
				calls += u.calls
			}
		}
		v := &costs[i]
		mean := x.excess(v, of(v))
		return min(calls, of(v).calls) >= history.MinHistory && mean > 0 && mean*calls >= clearlyMore*cost
	}
	for k := range history.SteadyParts {
		if !clear(inThird(k)) {
			return false
		}
	}
	return clear(inWhole)
}
