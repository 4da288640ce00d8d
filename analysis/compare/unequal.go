package compare

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// UnequalInstance is an instance of a service, or a host, whose calls have taken much longer, or have failed much more
// often, than the calls of its siblings over the whole history. A comparison with the history can't show that.
type UnequalInstance struct {
	Service, Key, Value trace.Symbol
	Siblings            int     // number of siblings
	Calls               uint64  // in the history
	Nanos, Usual        float64 // mean own time of a call in ns, and the median over the siblings
	Failed, UsualFailed float64 // the same for the share of the calls that fail
}

const (
	// muchLonger is the minimum ratio of the times of unequal instances, which must also differ by at least
	// leastUnequal ns. muchMoreFailed is the minimum difference of their shares of failed calls. Instances that share
	// the same work differ less. Larger differences may also mean that an instance has another role, such as the leader
	// of a group.
	muchLonger     = 3
	leastUnequal   = 1e6
	muchMoreFailed = 0.1
	// leastUnequalCalls is the minimum number of calls of an instance in each third of the history. Differences in
	// fewer calls may be due to chance.
	leastUnequalCalls = 20
	// leastSiblings is the minimum number of siblings whose median counts as the usual value.
	leastSiblings = 2
)

// Unequal returns the instances that differ from their siblings in each third of the history before now, ordered by
// service and value. Instances are identified by service.instance.id, by the pod, or by the host: by the first of these
// attributes that has enough values.
func Unequal(h *history.Sites, now trace.Nanos) (all []UnequalInstance) {
	if len(h.Requests.Total()) == 0 {
		return nil
	}
	values := make(map[[2]trace.Symbol][]history.Instance) // by service and key
	for _, v := range h.Instances.All() {
		if v.Value != 0 && slices.Contains(history.MachineKeys, v.Key) {
			of := [2]trace.Symbol{v.Service, v.Key}
			values[of] = append(values[of], v)
		}
	}
	whole := history.Range{From: h.Requests.Total()[0].Slice, To: history.SliceOf(now)}
	for _, service := range slices.Sorted(slices.Values(h.Services.Names()[1:])) {
		for _, key := range history.MachineKeys {
			if of := values[[2]trace.Symbol{service, key}]; len(of) > leastSiblings {
				all = append(all, unequal(of, whole)...)
				break
			}
		}
	}
	return all
}

// unequal returns the unequal instances among values. All values have the same service and key.
func unequal(values []history.Instance, whole history.Range) (all []UnequalInstance) {
	costs := make([]instanceCost, 0, len(values))
	for _, v := range values {
		cost := instanceCost{InstanceKey: v.InstanceKey, whole: usageOf(v.InstanceSeries, whole)}
		steady := true
		for k := range cost.thirds {
			cost.thirds[k] = usageOf(v.InstanceSeries, whole.Part(k, history.SteadyParts))
			steady = steady && cost.thirds[k].calls >= leastUnequalCalls
		}
		if steady {
			costs = append(costs, cost)
		}
	}
	if len(costs) <= leastSiblings {
		return nil
	}
	for i := range costs {
		v := &costs[i]
		longer, failing := true, true
		for k := range v.thirds {
			now, usual := v.thirds[k].perCall(), siblings(costs, i, inThird(k))
			longer = longer && now.nanos >= max(muchLonger*usual.nanos, usual.nanos+leastUnequal)
			failing = failing && now.errors >= usual.errors+muchMoreFailed
		}
		if longer || failing {
			now, usual := v.whole.perCall(), siblings(costs, i, inWhole)
			all = append(all, UnequalInstance{
				v.Service, v.Key, v.Value, len(costs) - 1,
				uint64(v.whole.calls), now.nanos, usual.nanos, now.errors, usual.errors,
			})
		}
	}
	return all
}
