package sim

import (
	"slices"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// operation builds one operation of the service and returns its entry.
func (sb *serviceBuilder) operation(o *operation) int32 {
	shape := sb.shape(o.functions)
	calls := make([][]int32, o.functions) // of remote entries, by function
	for _, callee := range o.callees {
		k := sb.rng.IntN(o.functions)
		calls[k] = append(calls[k], callee)
	}
	built := make([]int32, o.functions)
	var top []int32
	for j := o.functions - 1; j >= 0; j-- { // children follow their parents in shape
		var sites []site
		for k := o.functions - 1; k > j; k-- {
			if shape[k] == j {
				sites = append(sites, sb.site(built[k]))
			}
		}
		for _, callee := range calls[j] {
			sites = append(sites, sb.site(sb.remote(callee)))
		}
		for _, leaf := range sb.attached[sb.next+j] {
			sites = append(sites, sb.site(leaf))
		}
		built[j] = sb.function(sites)
		if shape[j] < 0 {
			top = append(top, built[j])
		}
	}
	sb.next += o.functions
	slices.Reverse(top)
	return sb.entry(top)
}

// shape returns a tree of n functions: the index of each function's parent, or −1 directly below the entry. Parents
// precede their children. The depth is 4–8 if n is large enough; the fan-out is skewed.
func (sb *serviceBuilder) shape(n int) []int {
	depth := min(n, 4+sb.rng.IntN(5))
	parent, level, fan := make([]int, n), make([]int, n), make([]int, n)
	for j := range n {
		parent[j] = j - 1
		if j >= depth {
			parent[j] = sb.parentOf(j, depth, level, fan)
		}
		if p := parent[j]; p >= 0 {
			level[j] = level[p] + 1
			fan[p]++
		}
	}
	return parent
}

// parentOf picks a parent for function j among the functions before it, preferring functions with many children.
// Rarely, it returns −1, which stands for the entry.
func (sb *serviceBuilder) parentOf(j, depth int, level, fan []int) int {
	if sb.rng.IntN(4*j) == 0 {
		return -1
	}
	for {
		p, q := sb.rng.IntN(j), sb.rng.IntN(j)
		if fan[q] > fan[p] {
			p = q
		}
		if level[p] < depth-1 {
			return p
		}
	}
}

// site returns a random call of callee.
func (sb *serviceBuilder) site(callee int32) site {
	s := site{callee: callee, chance: 1}
	p := &sb.points[callee]
	switch {
	case p.action == acquire:
	case sb.chance(sb.config.Optional):
		s.chance = float32(0.1 + 0.85*sb.rng.Float64())
	case sb.chance(sb.config.Loops) && p.nodes < 25 && p.time < 5*millisecond:
		s.repeat = float32(sb.logUniform(1, 4))
	}
	if p.layer == cct.App && sb.chance(sb.config.Async) {
		s.async = true
	}
	return s
}

// function builds a function with the given calls in random order.
func (sb *serviceBuilder) function(sites []site) int32 {
	f := sb.newPoint(sb.service, sb.names.function(), trace.Internal, cct.App, work,
		sb.logUniform(20, 1500)*microsecond, sb.cov())
	sb.rng.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	if len(sites) > 1 && sb.chance(sb.config.Caches) {
		sb.points[f].cache = float32(0.5 + 0.45*sb.rng.Float64())
		if sb.variables > 0 {
			sb.capture(f, hitVariable, "cache.hit")
			sb.variables--
		}
	} else if len(sites) > 1 && sb.chance(sb.config.Parallel) {
		first := sb.rng.IntN(len(sites) - 1)
		for i := first + 1; i < min(len(sites), first+2+sb.rng.IntN(3)); i++ {
			if s := &sites[i]; !s.async && !sites[i-1].async && sb.points[s.callee].action != acquire {
				s.parallel = true
			}
		}
	}
	sb.setSites(f, sites)
	return f
}

// remote returns the point that calls, or sends to, an entry of another service. A service has one such point for each
// entry.
func (sb *serviceBuilder) remote(callee int32) int32 {
	p, ok := sb.remotes[callee]
	if !ok {
		p = sb.newRemote(callee)
		sb.remotes[callee] = p
	}
	return p
}

func (sb *serviceBuilder) newRemote(callee int32) int32 {
	c := sb.points[callee]
	info := sb.table.Operation(c.op)
	r := rpc{callee: callee}
	kind, act := trace.Client, call
	mean := sb.logUniform(0.1, 0.8) * millisecond
	if c.kind == trace.Consumer {
		kind, act = trace.Producer, send
		mean = sb.logUniform(3, 60) * millisecond
	}
	r.mu, r.sigma = logNormal(mean, sb.logUniform(0.2, 0.6))
	r.timeout = int64(8*c.time + 250*millisecond)
	r.retries = int32(sb.rng.IntN(3))
	r.failureRatio = float32(sb.config.Failures)
	name, attrs := sb.nameCall(callee, sb.table.Text(info.Name))
	p := sb.newPoint(sb.service, name, kind, cct.App, act, 30*microsecond, 0.4)
	sb.points[p].baseline = true
	sb.setCallee(p, callee, attrs)
	if act == call && len(sb.resolver) > 0 {
		sb.setSites(p, []site{{
			callee: sb.resolver[sb.rng.IntN(len(sb.resolver))], chance: float32(0.005 + 0.03*sb.rng.Float64()),
		}})
	}
	sb.points[p].rpc = int32(len(sb.rpcs))
	sb.rpcs = append(sb.rpcs, r)
	sb.adopt(p, callee, mean)
	return p
}

// adopt makes the remote entry callee a callee of p.
func (sb *serviceBuilder) adopt(p, callee int32, mean float64) {
	c := &sb.points[callee]
	if c.parent < 0 {
		c.parent = p
	}
	c.callers++
	sb.points[p].nodes += c.nodes
	if c.kind == trace.Server {
		sb.points[p].time += c.time + 2*mean
	}
}

// entry builds the entry of an operation with the given functions.
func (sb *serviceBuilder) entry(functions []int32) int32 {
	kind := trace.Server
	if sb.services[sb.service].tier > 0 && sb.chance(sb.config.Messages) {
		kind = trace.Consumer
	}
	var sites []site
	add := func(points []int32, chance float64) {
		if len(points) > 0 {
			sites = append(sites, site{callee: points[sb.rng.IntN(len(points))], chance: float32(chance)})
		}
	}
	add(sb.scheduler, 1)
	add(sb.codecs, 1)
	for _, f := range functions {
		sites = append(sites, site{callee: f, chance: 1})
	}
	add(sb.collector, sb.logUniform(0.003, 0.02))
	add(sb.codecs, 0.9)
	e := sb.newPoint(sb.service, sb.names.operation(), kind, cct.App, enter, sb.logUniform(50, 500)*microsecond,
		sb.cov())
	sb.points[e].baseline = true
	sb.setSites(e, sites)
	keys := []struct {
		kind variableKind
		key  string
	}{{tenantVariable, "tenant"}, {sizeVariable, "payload.size"}, {regionVariable, "region"}}
	for _, k := range keys {
		gateway := sb.services[sb.service].tier == 0
		if sb.variables > 0 && (gateway || sb.chance(0.4)) {
			sb.capture(e, k.kind, k.key)
			sb.variables--
		}
	}
	return e
}

// capture adds a variable to a point.
func (sb *serviceBuilder) capture(p int32, kind variableKind, key string) {
	sb.program.variables = append(sb.program.variables, variable{
		id:    sb.table.Symbol(sb.table.Text(sb.points[p].id) + "#" + key),
		key:   sb.table.Symbol(key),
		point: p,
		cost:  int64(sb.logUniform(100, 500)),
		kind:  kind,
		noise: sb.rng.Uint64(),
	})
}
