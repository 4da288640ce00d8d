package baselinediff

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// instanceKey identifies the calls to a service that have a value of one of instanceKeys. Value 0 stands for all values
// without room.
type instanceKey struct{ service, key, value trace.Symbol }

func (k instanceKey) compare(l instanceKey) int {
	return cmp.Or(cmp.Compare(k.service, l.service), cmp.Compare(k.key, l.key), cmp.Compare(k.value, l.value))
}

// rest returns the key of the values without room.
func (k instanceKey) rest() instanceKey { return instanceKey{service: k.service, key: k.key} }

// instanceSeries is the history of the calls with one value.
type instanceSeries struct {
	counts // with the times of placeCell
	errors counts
}

const (
	// maxInstances bounds the values of all services and attributes. They take about 12 MB.
	maxInstances = 4096
	// maxValues bounds the values of an attribute for one service.
	maxValues = 64
)

// instances is the history of the values of instanceKeys, by service.
type instances struct {
	series map[instanceKey]*instanceSeries
	values map[instanceKey]int // number of values by service and key; value 0
}

func newInstances() instances {
	return instances{series: make(map[instanceKey]*instanceSeries), values: make(map[instanceKey]int)}
}

// of returns the series of a value, or of those without room; nil if there is no room for that either.
func (h *instances) of(k instanceKey) *instanceSeries {
	if s := h.series[k]; s != nil {
		return s
	}
	rest := k.rest()
	if full := len(h.series) >= maxInstances; full || h.values[rest] >= maxValues && k != rest {
		if k == rest {
			return nil
		}
		return h.of(rest)
	}
	s := &instanceSeries{}
	h.put(k, s)
	return s
}

func (h *instances) put(k instanceKey, s *instanceSeries) {
	h.series[k] = s
	if k.value != 0 {
		h.values[k.rest()]++
	}
}

// merge adds the places of a tally. Values are added in the order of their keys. Slices before folded cover minutes.
func (h *instances) merge(t *Tally, folded slice) {
	of := make(map[instanceKey]*instanceSeries)
	for _, x := range t.places.list {
		for i, value := range x.values {
			if value != 0 {
				of[instanceKey{x.service, instanceKeys[i], value}] = nil
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(of), instanceKey.compare) {
		of[k] = h.of(k)
	}
	for at, s := range t.slices {
		if at < folded {
			at = at.minute()
		}
		for number, c := range s.places {
			x := &t.places.list[number]
			for i, value := range x.values {
				if into := of[instanceKey{x.service, instanceKeys[i], value}]; into != nil && c != (placeCell{}) {
					into.merge(at, &c)
				}
			}
		}
	}
}

func (s *instanceSeries) merge(at slice, c *placeCell) {
	s.add(cell{slice: at, calls: uint32(c.calls), nanos: c.nanos})
	if c.errors > 0 {
		s.errors.add(cell{slice: at, calls: uint32(c.errors)})
	}
}

// age applies to each value what of returns for its service. A value without calls makes room for another. Where there
// is no room, one without calls since a slice does, too.
func (h *instances) age(of func(service trace.Symbol) *aging, since slice) {
	for k, s := range h.series {
		a := of(k.service)
		s.age(a)
		s.errors.age(a)
		h.deleteEmpty(k)
	}
	full, values := len(h.series) >= maxInstances, maps.Clone(h.values)
	for k, s := range h.series {
		if (full || values[k.rest()] >= maxValues) && s.last() < since {
			h.replace(k, func(cells) cells { return nil })
		}
	}
}

// forget deletes the calls of a service before a slice.
func (h *instances) forget(service trace.Symbol, before slice) {
	for k := range h.series {
		if k.service == service {
			h.replace(k, func(all cells) cells { return all.within(sliceRange{before, maxSlice}) })
		}
	}
}

// replace replaces the cells of a value, and deletes the value if none are left.
func (h *instances) replace(k instanceKey, kept func(cells) cells) {
	s := h.series[k]
	s.counts.pack(kept(s.counts.unpack(nil)))
	s.errors.pack(kept(s.errors.unpack(nil)))
	h.deleteEmpty(k)
}

// deleteEmpty deletes a value without calls.
func (h *instances) deleteEmpty(k instanceKey) {
	if !h.series[k].empty() {
		return
	}
	delete(h.series, k)
	if rest := k.rest(); k != rest {
		if h.values[rest]--; h.values[rest] == 0 {
			delete(h.values, rest)
		}
	}
}

// Started reports whether an instance of a service, or one of another version or in another place, has its first calls
// since an instant.
func (h *Sites) Started(service trace.Symbol, since trace.Nanos) bool {
	return h.began(service, since, func(trace.Symbol) bool { return true })
}

// Deployed reports whether another version of a service has its first calls since an instant.
func (h *Sites) Deployed(service trace.Symbol, since trace.Nanos) bool {
	return h.began(service, since, func(key trace.Symbol) bool { return key == versionKey })
}

// began reports whether one of the values of some attributes of a service has its first calls since an instant.
func (h *Sites) began(service trace.Symbol, since trace.Nanos, of func(key trace.Symbol) bool) bool {
	for k, s := range h.instances.series {
		if k.service == service && k.value != 0 && of(k.key) && s.first() >= sliceOf(since) {
			return true
		}
	}
	return false
}

// hostSlices is the time in which calls tell the host of a service.
const hostSlices = 30

// OnlyHost returns the host on which all instances of a service ran in the last minutes; 0 if there are several, or
// its spans do not name any.
func (h *Sites) OnlyHost(service trace.Symbol, now trace.Nanos) (only trace.Symbol) {
	recent := sliceRange{sliceOf(now) - hostSlices, sliceOf(now) + 1}
	for _, v := range h.instances.ofService(instanceKey{service: service, key: hostKey}) {
		switch calls := usageOf(v.instanceSeries, recent).calls; {
		case calls == 0:
		case only != 0 || v.value == 0:
			return 0
		default:
			only = v.value
		}
	}
	return only
}

// Constants of [Sites.Instances]. They are ratios of costs within one service and window: none depends on the
// application.
const (
	// clearlyMore is the least ratio of the cost of a call with a value to that of a call with another value.
	clearlyMore = 2
	// leastVisible is the part of the score of a service that its calls must show. Where they show less, their cost is
	// noise: calls were not answered, or were made in another way.
	leastVisible = 0.5
	// carried is the part of the cost of a value that one with a more specific key must carry to account for it.
	carried = 0.8
	// maxListed bounds the values that are listed.
	maxListed = 10
)

// Instances returns the values of attributes that tell instances, hosts, zones and versions apart and that carry most
// of the cost of a service in a window: those whose calls cost clearly more than the other calls of the service. c is
// the comparison of the window, and s one of its suspects.
//
// The cost of a value is the time and the errors of its calls above those of its own history or, if that has fewer
// calls than the window, above the median of the other values in the window; if there are none, above the history of
// the service. A value is listed if its calls cost at least twice as much as those of all other values, not only in the
// whole window, but also in each third of it, with enough calls on both sides. If all values are equally slow, the
// ratio is near 1, and chance exceeds 2 in three thirds of at least four calls in less than one of 10,000 cases for
// exponential times. If one of several values is slow, the ratio is large, whatever the service does.
//
// A slow instance makes its host, its zone and its version slow. They are not listed beside it, unless no other
// instance has the version.
func (h *Sites) Instances(window Interval, c *Comparison, s *Suspect) []InstancePart {
	w := sliceRange{sliceOf(window.From), sliceOf(window.To)}
	x := instanceComparison{
		liveComparison: liveComparison{liveMemory: &liveMemory{}, h: h, window: w, skipped: h.skipped.of(s.Service).before(w.from)}, duration: c.Duration,
		least: leastVisible * s.Score * float64(c.Requests),
	}
	var all []InstancePart
	for _, key := range instanceKeys {
		listed := x.compare(h.instances.ofService(instanceKey{service: s.Service, key: key}))
		all = append(all, slices.DeleteFunc(listed, func(a InstancePart) bool {
			return slices.ContainsFunc(all, func(b InstancePart) bool { return b.accountsFor(&a) })
		})...)
	}
	slices.SortStableFunc(all, func(a, b InstancePart) int { return cmp.Compare(b.Part, a.Part) })
	return all[:min(len(all), maxListed)]
}

// accountsFor reports whether p, of a more specific key, carries nearly all that q carries. A version that no other
// instance has tells more than the instance.
func (p *InstancePart) accountsFor(q *InstancePart) bool {
	return p.Part >= carried*q.Part && (q.Key != versionKey || p.Calls != q.Calls)
}

// namedSeries is the history of a value.
type namedSeries struct {
	instanceKey
	*instanceSeries
}

// ofService returns the histories of the values of a service and key, in the order of values.
func (h *instances) ofService(of instanceKey) (all []namedSeries) {
	for k, s := range h.series {
		if k.service == of.service && k.key == of.key {
			all = append(all, namedSeries{k, s})
		}
	}
	slices.SortFunc(all, func(a, b namedSeries) int { return a.compare(b.instanceKey) })
	return all
}

// instanceComparison is the state of one call of Instances.
type instanceComparison struct {
	liveComparison
	duration, least float64 // the unit of times; the least cost of all values
}

// usage is the calls with a value in a time.
type usage struct{ calls, nanos, errors float64 }

func (u *usage) add(v usage) {
	u.calls += v.calls
	u.nanos += v.nanos
	u.errors += v.errors
}

// instanceCost holds the usage of a value in the window, in its thirds and before, and its usual usage.
type instanceCost struct {
	instanceKey
	whole  usage
	thirds [steadyParts]usage
	before usage
	usual  usage // for one call
	cost   float64
}

// compare returns the values, all of one service and key, whose calls cost clearly more than the others.
func (x *instanceComparison) compare(values []namedSeries) (listed []InstancePart) {
	costs, total := x.costs(values)
	if total <= 0 || total < x.least {
		return nil
	}
	for i := range costs {
		if v := &costs[i]; v.value != 0 && x.standsOut(costs, i) {
			listed = append(listed, InstancePart{v.key, v.value, uint64(v.whole.calls), v.cost / total, len(costs)})
		}
	}
	return listed
}

// costs returns the values with calls in the window, and the cost of all.
func (x *instanceComparison) costs(values []namedSeries) (costs []instanceCost, total float64) {
	var service usage // history of all values
	for i := range values {
		v := instanceCost{instanceKey: values[i].instanceKey, whole: usageOf(values[i].instanceSeries, x.window)}
		v.before = x.before(values[i].instanceSeries)
		service.add(v.before)
		if v.whole.calls == 0 {
			continue
		}
		for k := range v.thirds {
			v.thirds[k] = usageOf(values[i].instanceSeries, x.window.third(slice(k)))
		}
		costs = append(costs, v)
	}
	for i := range costs {
		v := &costs[i]
		switch {
		case v.before.calls >= max(minHistory, v.whole.calls):
			v.usual = v.before.perCall()
		case len(costs) > 1:
			v.usual = siblings(costs, i, inWhole)
		case service.calls > 0:
			v.usual = service.perCall()
		default:
			v.usual = v.whole.perCall()
		}
	}
	for i := range costs {
		v := &costs[i]
		v.cost = x.excess(v, &v.whole) * v.whole.calls
		total += v.cost
	}
	return costs, total
}

// usageOf returns the usage of a value in r.
func usageOf(s *instanceSeries, r sliceRange) usage {
	calls, errors := s.within(r), s.errors.within(r)
	return usage{float64(calls.calls()), float64(calls.time()), float64(errors.calls())}
}

// before returns the usage of a value in the history.
func (x *instanceComparison) before(s *instanceSeries) usage {
	calls, errors := x.past(s.unpack(nil), &x.kept), x.past(s.errors.unpack(nil), &x.keptShape)
	return usage{float64(calls.calls()), float64(calls.time()), float64(errors.calls())}
}

// third returns third i of r.
func (r sliceRange) third(i slice) sliceRange {
	length := r.to - r.from
	return sliceRange{r.from + i*length/steadyParts, r.from + (i+1)*length/steadyParts}
}

// inWhole returns the usage in the window, and inThird that in one of its thirds.
func inWhole(v *instanceCost) *usage { return &v.whole }

func inThird(k int) func(*instanceCost) *usage {
	return func(v *instanceCost) *usage { return &v.thirds[k] }
}

// perCall returns the usage of one call. There are calls.
func (u *usage) perCall() usage { return usage{1, u.nanos / u.calls, u.errors / u.calls} }

// siblings returns the medians of time and errors of a call, in a part of the time, over all values except i.
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

// excess returns the mean cost of the calls in u above the usual, in the unit of scores; 0 if there are none.
func (x *instanceComparison) excess(v *instanceCost, u *usage) float64 {
	if u.calls == 0 {
		return 0
	}
	now := u.perCall()
	return max(0, now.nanos-v.usual.nanos)/x.duration + max(0, now.errors-v.usual.errors)
}

// standsOut reports whether the calls of value i cost clearly more than those of the others, in the window and in each
// of its thirds.
func (x *instanceComparison) standsOut(costs []instanceCost, i int) bool {
	clear := func(of func(v *instanceCost) *usage) bool {
		cost, calls := 0.0, 0.0 // of the others
		for k := range costs {
			if u := of(&costs[k]); k != i {
				cost += x.excess(&costs[k], u) * u.calls
				calls += u.calls
			}
		}
		v := &costs[i]
		mean := x.excess(v, of(v))
		return min(calls, of(v).calls) >= minHistory && mean > 0 && mean*calls >= clearlyMore*cost
	}
	for k := range steadyParts {
		if !clear(inThird(k)) {
			return false
		}
	}
	return clear(inWhole)
}
