package compare

import (
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// siteIndex relates the sites of a history to each other.
type siteIndex struct {
	steps  int     // number of steps
	step   []int32 // by number of the site: the number of its step
	caller []int32 // by number of the site: the number of its caller's step
	at     lists   // by number of a step: its sites without borders, ascending
	below  lists   // by number of a step: the sites that it calls, ascending

	pools   lists // by number of the site: its pools, see [history.Site.Wider]
	members lists // by number of a pool: its sites, ascending

	calling calling
}

// numbers assigns consecutive numbers, from 0, to distinct values.
type numbers[K comparable] map[K]int32

func (n numbers[K]) of(k K) int32 {
	i, ok := n[k]
	if !ok {
		i = int32(len(n))
		n[k] = i
	}
	return i
}

// lists holds several lists in one slice: list i is values[ends[i−1]:ends[i]].
type lists struct{ ends, values []int32 }

// listsOf returns n lists. pairs yields the number of a list and a value for it; the values of each list are yielded in
// their order. listsOf calls pairs twice, so pairs must yield the same values each time.
func listsOf(n int, pairs func(yield func(list, value int32))) lists {
	l := lists{ends: make([]int32, n+1)}
	pairs(func(list, _ int32) { l.ends[list+1]++ })
	for i := range n {
		l.ends[i+1] += l.ends[i]
	}
	l.values = make([]int32, l.ends[n])
	pairs(func(list, value int32) {
		l.values[l.ends[list]] = value
		l.ends[list]++
	})
	l.ends = l.ends[:n]
	return l
}

// of returns list i.
func (l *lists) of(i int32) []int32 {
	if i == 0 {
		return l.values[:l.ends[0]]
	}
	return l.values[l.ends[i-1]:l.ends[i]]
}

func indexOf(sites []history.Site, names []trace.Symbol, table *trace.Table) *siteIndex {
	x := &siteIndex{step: make([]int32, len(sites)), caller: make([]int32, len(sites))}
	steps, pools := make(numbers[trace.Op]), make(numbers[history.SiteKey])
	for i := range sites {
		x.step[i] = steps.of(sites[i].Op)
		x.caller[i] = steps.of(sites[i].Parent)
		for _, key := range sites[i].Wider() {
			pools.of(key)
		}
	}
	x.steps = len(steps)
	x.below = listsOf(len(steps), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			yield(x.caller[i], int32(i))
		}
	})
	x.at = listsOf(len(steps), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			if !sites[i].Border {
				yield(x.step[i], int32(i))
			}
		}
	})
	pooled := func(yield func(site, pool int32)) {
		for i := 1; i < len(sites); i++ {
			for _, key := range sites[i].Wider() {
				yield(int32(i), pools[key])
			}
		}
	}
	x.pools = listsOf(len(sites), pooled)
	x.members = listsOf(len(pools), func(yield func(list, value int32)) {
		pooled(func(site, pool int32) { yield(pool, site) })
	})
	x.calling = callingOf(sites, names, table)
	return x
}

// calling lists the sites called by the operations of a service, directly or through other operations of the service.
type calling struct {
	nodes  numbers[history.Callee]
	node   []int32 // by number of the site: the node of its operation
	nested lists   // by node: the nodes that it calls within its service
	sites  lists   // by node: its sites, including borders
}

func callingOf(sites []history.Site, names []trace.Symbol, table *trace.Table) calling {
	x := calling{nodes: make(numbers[history.Callee]), node: make([]int32, len(sites))}
	for i := 1; i < len(sites); i++ {
		s := &sites[i]
		x.node[i] = x.nodes.of(history.Callee{Service: s.Service, Op: s.Op})
		x.nodes.of(history.Callee{Service: s.Service, Op: s.Parent})
	}
	x.sites = listsOf(len(x.nodes), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			yield(x.nodes[history.Callee{Service: sites[i].Service, Op: sites[i].Parent}], int32(i))
		}
	})
	x.nested = listsOf(len(x.nodes), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			s := &sites[i]
			if !s.Border && s.Parent != 0 && table.Operation(s.Parent).Service == names[s.Service] {
				yield(x.nodes[history.Callee{
					Service: s.Service,
					Op:      s.Parent,
				}], x.nodes[history.Callee{Service: s.Service, Op: s.Op}])
			}
		}
	})
	return x
}
