package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Where the streams of random numbers of an application part.
const (
	streamStructure = iota + 1
	streamFault
	streamArrivals
	streamHints
	streamLoad
)

// stream returns one of the streams of random numbers that belong to seed.
func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(mix(seed, number), number)) }

// mostNodes is how many points a request may execute in the mean before the builder stops adding calls.
const mostNodes = 700

// builder makes a program, services of the deepest tier first, so that callees exist before their callers.
type builder struct {
	*program
	rng     *rand.Rand
	tiers   [][]int32 // services by tier, the gateways first
	entries [][]int32 // entry points by tier, as far as built
}

// build returns the application that c, with its defaults, stands for.
func build(c Config) *program {
	p := &program{given: c, config: c.effective(), table: &trace.Table{}}
	b := builder{program: p, rng: stream(c.Seed, streamStructure)}
	b.phase = b.rng.Float64() * 2 * math.Pi
	b.nameSymbols()
	quotas := b.layOutServices()
	b.entries = make([][]int32, len(b.tiers))
	for tier := range slices.Backward(b.tiers) {
		b.tier(tier, quotas)
	}
	b.sortVariables()
	b.requestTypes()
	b.propagate()
	b.own()
	b.placeFault()
	return p
}

func (b *builder) nameSymbols() {
	t, s := b.table, &b.symbols
	s.plan, s.arm = t.Symbol(trace.KeyPlan), t.Symbol(trace.KeyArm)
	s.hostName, s.version, s.status = t.Symbol("host.name"), t.Symbol("service.version"), t.Symbol("http.response.status_code")
	s.yes, s.no = t.Symbol("true"), t.Symbol("false")
	s.tenants = b.values("tenant-", 12, 1)
	s.regions = b.values("region-", 4, 0.6)
	for i := range 5 {
		s.noise = append(s.noise, t.Symbol("v"+strconv.Itoa(i)))
	}
}

// values returns n values whose shares fall off as 1/rank^exponent.
func (b *builder) values(prefix string, n int, exponent float64) []weighted {
	values, sum := make([]weighted, n), 0.0
	for i := range values {
		sum += math.Pow(float64(i+1), -exponent)
		values[i] = weighted{b.table.Symbol(prefix + string(rune('a'+i))), sum}
	}
	for i := range values {
		values[i].cumulative /= sum
	}
	return values
}

// layOutServices makes the services with their hosts and tiers, and returns how many tracepoints each is to have.
func (b *builder) layOutServices() []int {
	c, n := b.config, b.config.Services
	names := namer{b.rng, make(map[string]int)}
	b.services = make([]service, n)
	for i := range b.services {
		name := names.unique(serviceWords[(i+int(mix(c.Seed, 0)%97))%len(serviceWords)])
		b.services[i] = service{name: name, sym: b.table.Symbol(name)}
		b.addHosts(&b.services[i])
	}
	deepest := 1
	switch {
	case n >= 40:
		deepest = 4
	case n >= 10:
		deepest = 3
	case n >= 4:
		deepest = 2
	case n == 1:
		deepest = 0
	}
	b.tiers = make([][]int32, deepest+1)
	gateways := max(min(2, n/4+1), (n+3)/7)
	for i := range n {
		tier := 0
		if i >= gateways {
			tier = 1 + (i-gateways)%deepest
		}
		b.services[i].tier = tier
		b.tiers[tier] = append(b.tiers[tier], int32(i))
	}
	return b.quotas()
}

// quotas splits the tracepoints over the services, skewed, at least ten each.
func (b *builder) quotas() []int {
	n := len(b.services)
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = math.Exp(0.8 * b.rng.NormFloat64())
		sum += weights[i]
	}
	quotas, left := make([]int, n), b.config.Tracepoints
	spread := float64(b.config.Tracepoints - 10*n)
	for i := range quotas {
		quotas[i] = 10 + int(spread*weights[i]/sum)
		left -= quotas[i]
	}
	for i := 0; left > 0; i = (i + 1) % n {
		quotas[i]++
		left--
	}
	return quotas
}

// addHosts gives s two to five replicas; one of six services runs a newer version on one of them.
func (b *builder) addHosts(s *service) {
	first := int32(len(b.hosts))
	version := b.table.Symbol("1." + strconv.Itoa(b.rng.IntN(20)) + ".0")
	for i := range 2 + b.rng.IntN(4) {
		b.hosts = append(b.hosts, host{
			sym:     b.table.Symbol(s.name + "-" + string(rune('a'+i))),
			version: version,
			speed:   math.Exp(0.04 * b.rng.NormFloat64()),
			skew:    int64((2*b.rng.Float64() - 1) * float64(b.config.Skew)),
		})
	}
	s.hosts = span32{first, int32(len(b.hosts))}
	if b.rng.IntN(6) == 0 {
		b.hosts[s.hosts.end-1].version = b.table.Symbol("1.20.0")
	}
}

// tier builds the services of one tier, whose operations share the operations of the next tier as callees.
func (b *builder) tier(tier int, quotas []int) {
	var builders []*serviceBuilder
	var operations []*operation
	for _, s := range b.tiers[tier] {
		sb := b.newService(s, quotas[s])
		builders = append(builders, sb)
		for i := range sb.operations {
			operations = append(operations, &sb.operations[i])
		}
	}
	b.dealCallees(tier, operations)
	for _, sb := range builders {
		sb.build()
		b.entries[tier] = append(b.entries[tier], sb.entries...)
	}
}

// dealCallees gives every entry of the next tier a caller in this one, and popular ones several.
func (b *builder) dealCallees(tier int, operations []*operation) {
	if tier+1 == len(b.tiers) {
		return
	}
	next := slices.Clone(b.entries[tier+1])
	b.rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	start := b.rng.IntN(len(operations))
	for i, callee := range next {
		// The least loaded of a few, so that no request grows without bound.
		o := operations[(start+i)%len(operations)]
		for range 3 {
			if other := operations[b.rng.IntN(len(operations))]; other.nodes+b.points[callee].nodes < o.nodes {
				o = other
			}
		}
		o.add(callee, b.points[callee].nodes)
	}
	for _, o := range operations {
		for b.rng.Float64() < 0.45 {
			from := tier + 1
			if from+1 < len(b.tiers) && b.rng.IntN(4) == 0 {
				from++
			}
			r := b.rng.Float64()
			callee := b.entries[from][int(r*r*float64(len(b.entries[from])))] // skewed: some are popular
			if n := b.points[callee].nodes; o.nodes+n < mostNodes/3 {
				o.add(callee, n)
			}
		}
	}
}

// requestTypes makes every gateway operation an entry of requests, with rates that fall off as 1/rank^0.7.
func (b *builder) requestTypes() {
	entries := slices.Clone(b.entries[0])
	b.rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	sum := 0.0
	for i, e := range entries {
		w := math.Pow(float64(i+1), -0.7)
		sum += w
		b.types = append(b.types, requestType{entry: e, weight: w, cumulative: sum})
	}
	for i := range b.types {
		b.types[i].weight /= sum
		b.types[i].cumulative /= sum
	}
}

// propagate computes how often every point is executed, and in how long requests, callers before callees.
func (b *builder) propagate() {
	for _, t := range b.types {
		p := &b.points[t.entry]
		p.rate += b.config.Rate * t.weight
		p.blocked += b.config.Rate * t.weight * p.time
	}
	for i := len(b.points) - 1; i >= 0; i-- {
		p := &b.points[i]
		if p.rpc >= 0 {
			callee := &b.points[b.rpcs[p.rpc].callee]
			callee.rate += p.rate
			if callee.kind == trace.Consumer {
				callee.blocked += p.rate * callee.time // a root of its own
			} else {
				callee.blocked += p.blocked
			}
		}
		for k, s := range b.sites[p.sites.first:p.sites.end] {
			times := s.times()
			if p.cache > 0 && k > 0 {
				times *= 1 - float64(p.cache)
			}
			b.points[s.callee].rate += p.rate * times
			b.points[s.callee].blocked += p.blocked * times
		}
	}
}

// times returns how often s is called per execution of its caller, in the mean.
func (s *site) times() float64 { return float64(s.chance) * (1 + float64(s.repeat)) }

// overheads are what a hit of a tracepoint costs: time in ns and bytes, by layer.
var overheads = [...]struct {
	cost  float64
	bytes int32
}{cct.App: {1800, 260}, cct.Runtime: {1200, 200}, cct.Kernel: {900, 160}}

// newPoint adds a point without callees and returns its index. The name is within the service.
func (b *builder) newPoint(s int32, name string, kind trace.Kind, layer cct.Layer, act action, mean, cov float64) int32 {
	svc := &b.services[s]
	mu, sigma := logNormal(mean, cov)
	o := overheads[layer]
	b.points = append(b.points, point{
		mu: mu, sigma: sigma,
		op:      b.table.Op(svc.sym, b.table.Symbol(name), kind),
		id:      b.table.Symbol(svc.name + "/" + layer.String() + "/" + kind.String() + "/" + name),
		cost:    int64(o.cost * math.Exp(0.3*b.rng.NormFloat64())),
		bytes:   o.bytes + int32(b.rng.IntN(120)),
		service: s,
		rpc:     -1,
		action:  act,
		layer:   layer,
		kind:    kind,
		parent:  -1, owner: -1,
		nodes: 1, time: mean,
	})
	return int32(len(b.points) - 1)
}

// logUniform returns a number between low and high whose logarithm is uniform.
func (b *builder) logUniform(low, high float64) float64 {
	return low * math.Pow(high/low, b.rng.Float64())
}

// cov returns a healthy coefficient of variation.
func (b *builder) cov() float64 { return b.logUniform(0.1, 1) }

// chance reports true with probability p.
func (b *builder) chance(p float64) bool { return b.rng.Float64() < p }

// setSites makes sites what point i calls, and adds up what the point costs with them. The points are callers of their
// callees from now on.
func (b *builder) setSites(i int32, sites []site) {
	first := int32(len(b.sites))
	b.sites = append(b.sites, sites...)
	p := &b.points[i]
	p.sites = span32{first, int32(len(b.sites))}
	longest, weight := 0.0, 1.0
	var below float64
	for k, s := range sites {
		c := &b.points[s.callee]
		if c.parent < 0 {
			c.parent = i
		}
		c.callers++
		if p.cache > 0 && k == 1 {
			weight = 1 - float64(p.cache)
		}
		p.nodes += weight * s.times() * c.nodes
		if s.async || c.kind == trace.Producer {
			continue
		}
		t := weight * s.times() * c.time
		if !s.parallel {
			below += longest
			longest = 0
		}
		longest = max(longest, t)
	}
	p.time += below + longest
}

// own finds the baseline point in which every point runs, callers before callees.
func (b *builder) own() {
	for i := len(b.points) - 1; i >= 0; i-- {
		caller := &b.points[i]
		owner, several := caller.owner, caller.owners
		if caller.baseline {
			owner, several = int32(i), false
		}
		for _, s := range b.sites[caller.sites.first:caller.sites.end] {
			p := &b.points[s.callee]
			p.owners = p.owners || several || p.owner >= 0 && p.owner != owner
			p.owner = owner
		}
	}
}

// sortVariables brings the variables of each point together and tells the points where they are.
func (b *builder) sortVariables() {
	v := b.variables
	slices.SortStableFunc(v, func(a, b variable) int { return cmp.Compare(a.point, b.point) })
	for i := range v {
		p := &b.points[v[i].point]
		if i == 0 || v[i-1].point != v[i].point {
			p.variables.first = int32(i)
		}
		p.variables.end = int32(i + 1)
	}
}
