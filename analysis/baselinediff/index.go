package baselinediff

import (
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// siteIndex relates the sites of a history to each other. It changes only with the sites.
type siteIndex struct {
	steps int     // number of steps
	step  []int32 // by number of the site: the number of its step
	below lists   // by number of a step: the sites that it calls, ascending

	pools   lists // by number of the site: its pools, see [site.wider]
	members lists // by number of a pool: its sites, ascending

	calling calling
}

// numbers numbers different values, from 0.
type numbers[K comparable] map[K]int32

func (n numbers[K]) of(k K) int32 {
	i, ok := n[k]
	if !ok {
		i = int32(len(n))
		n[k] = i
	}
	return i
}

// lists holds lists one after the other: list i is values[ends[i−1]:ends[i]].
type lists struct{ ends, values []int32 }

// listsOf returns n lists. pairs yields a list and a value for it, in the order of the values of each list.
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

// index returns the index of the sites.
func (h *Sites) index() *siteIndex {
	if h.indexed == nil || len(h.indexed.step) != len(h.sites) {
		h.indexed = indexOf(h.sites, h.names, h.table)
	}
	return h.indexed
}

func indexOf(sites []site, names []trace.Symbol, table *trace.Table) *siteIndex {
	x := &siteIndex{step: make([]int32, len(sites))}
	steps, pools := make(numbers[trace.Op]), make(numbers[siteKey])
	for i := range sites {
		x.step[i] = steps.of(sites[i].op)
		steps.of(sites[i].parent)
		for _, key := range sites[i].wider() {
			pools.of(key)
		}
	}
	x.steps = len(steps)
	x.below = listsOf(len(steps), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			yield(steps[sites[i].parent], int32(i))
		}
	})
	pooled := func(yield func(site, pool int32)) {
		for i := 1; i < len(sites); i++ {
			for _, key := range sites[i].wider() {
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

// calling lists the sites that operations of a service call, by themselves or through others of the service.
type calling struct {
	nodes  numbers[callee]
	nested lists // by node: the nodes that it calls within its service
	sites  lists // by node: its sites, also of borders
}

func callingOf(sites []site, names []trace.Symbol, table *trace.Table) calling {
	x := calling{nodes: make(numbers[callee])}
	for i := 1; i < len(sites); i++ {
		s := &sites[i]
		x.nodes.of(callee{s.service, s.op})
		x.nodes.of(callee{s.service, s.parent})
	}
	x.sites = listsOf(len(x.nodes), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			yield(x.nodes[callee{sites[i].service, sites[i].parent}], int32(i))
		}
	})
	x.nested = listsOf(len(x.nodes), func(yield func(list, value int32)) {
		for i := 1; i < len(sites); i++ {
			s := &sites[i]
			if !s.border && s.parent != 0 && table.Operation(s.parent).Service == names[s.service] {
				yield(x.nodes[callee{s.service, s.parent}], x.nodes[callee{s.service, s.op}])
			}
		}
	})
	return x
}

// callingParts returns the own evidence against the operations of a service that call another service, by themselves or
// through others of their service, for each such pair of services.
func (l *ledger) callingParts() map[servicePair]float64 {
	x := l.calling
	if x == nil {
		x = new(callingOf(l.sites, l.names, l.table))
	}
	parts := make(map[servicePair]float64)
	seen, called := make(map[int32]bool), make(map[int32]bool)
	keys := make([]callee, 0, len(l.own))
	for at := range l.own {
		keys = append(keys, at)
	}
	slices.SortFunc(keys, callee.compare) // the order of the sums
	for _, at := range keys {
		node, known := x.nodes[at]
		if !known || at.op == 0 {
			continue
		}
		clear(seen)
		clear(called)
		for left := []int32{node}; len(left) > 0; {
			node := left[len(left)-1]
			left = left[:len(left)-1]
			if seen[node] {
				continue
			}
			seen[node] = true
			for _, i := range x.sites.of(node) {
				if to := l.callee[i].service; to != 0 && to != at.service {
					called[to] = true
				}
			}
			left = append(left, x.nested.of(node)...)
		}
		for to := range called {
			parts[servicePair{at.service, to}] += l.own[at]
		}
	}
	return parts
}
