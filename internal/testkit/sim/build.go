package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Random streams of an application.
const (
	streamStructure = iota + 1
	streamFault
	streamArrivals
	streamHints
	streamLoad
	streamCallees
	streamPods
)

// stream returns the random stream of seed with the given number.
func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(mix(seed, number), number)) }

// maxNodes is the maximum mean number of points that a request executes. The builder stops adding calls before a
// request exceeds it.
const maxNodes = 700

// builder builds a program, services of the deepest tier first, so that callees exist before their callers.
type builder struct {
	*program
	rng     *rand.Rand
	tiers   [][]int32 // services by tier, the gateways first
	entries [][]int32 // entry points of the services built so far, by tier
	decoder decoder
}

// decoder reads the peers of calls from their attributes.
type decoder struct {
	keys    *ingest.Keys
	builder *ingest.Builder
}

// build returns the program for c, whose defaults must be filled in.
func build(c Config) *program {
	p := &program{given: c, config: c.effective(), table: &trace.Table{}}
	b := builder{program: p, rng: stream(c.Seed, streamStructure)}
	b.phase = b.rng.Float64() * 2 * math.Pi
	b.nameSymbols()
	quotas := b.layOutServices()
	b.entries = make([][]int32, len(b.tiers))
	for tier := range slices.Backward(b.tiers) {
		b.buildTier(tier, quotas)
	}
	b.sortVariables()
	b.addRequestTypes()
	b.propagate()
	b.setOwners()
	b.placeFault()
	return p
}

func (b *builder) nameSymbols() {
	t, s := b.table, &b.symbols
	s.plan, s.arm = t.Symbol(trace.KeyPlan), t.Symbol(trace.KeyArm)
	s.hostName, s.version = t.Symbol("host.name"), t.Symbol("service.version")
	s.status = t.Symbol("http.response.status_code")
	s.pod, s.instance = t.Symbol("k8s.pod.name"), t.Symbol("service.instance.id")
	s.yes, s.no = t.Symbol("true"), t.Symbol("false")
	s.tenants = b.values("tenant-", 12, 1)
	s.regions = b.values("region-", 4, 0.6)
	for i := range 5 {
		s.noise = append(s.noise, t.Symbol("v"+strconv.Itoa(i)))
	}
}

// values returns n values with frequencies proportional to 1/rank^exponent.
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

// layOutServices creates the services with their hosts and tiers. It returns the number of tracepoints of each service.
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

// quotas divides the tracepoints unevenly among the services, with at least ten for each.
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

// addHosts adds two to five hosts of s. One service in six runs a newer version on one of its hosts.
func (b *builder) addHosts(s *service) {
	first := int32(len(b.hosts))
	version := b.table.Symbol("1." + strconv.Itoa(b.rng.IntN(20)) + ".0")
	for i := range 2 + b.rng.IntN(4) {
		random := mix(mix(b.config.Seed, streamPods), uint64(len(b.hosts)))
		b.hosts = append(b.hosts, host{
			pod: b.table.Symbol(podName(s.name, random)),
			id:  b.table.Symbol(instanceID(random)),
			address: "10." + strconv.Itoa(16+len(b.hosts)>>16) + "." + strconv.Itoa(len(b.hosts)>>8&255) + "." +
				strconv.Itoa(len(b.hosts)&255),
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

// buildTier builds the services of a tier. Their operations call operations of the next tier.
func (b *builder) buildTier(tier int, quotas []int) {
	var builders []*serviceBuilder
	var operations []*operation
	for _, s := range b.tiers[tier] {
		sb := b.newService(s, quotas[s])
		builders = append(builders, sb)
		for i := range sb.operations {
			operations = append(operations, &sb.operations[i])
		}
	}
	b.assignCallees(tier, operations)
	for _, sb := range builders {
		sb.build()
		b.entries[tier] = append(b.entries[tier], sb.entries...)
	}
}

// assignCallees assigns each entry of the next tier to a caller in this tier, and popular entries to several callers.
func (b *builder) assignCallees(tier int, operations []*operation) {
	if tier+1 == len(b.tiers) {
		return
	}
	next := slices.Clone(b.entries[tier+1])
	b.rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	start := b.rng.IntN(len(operations))
	for i, callee := range next {
		// The smallest of a few operations, so that the size of requests is bounded.
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
			callee := b.entries[from][int(r*r*float64(len(b.entries[from])))] // squared, so that some are popular
			if n := b.points[callee].nodes; o.nodes+n < maxNodes/3 {
				o.add(callee, n)
			}
		}
	}
}

// addRequestTypes adds a request type for each gateway operation, with rates proportional to rank^−0.7.
func (b *builder) addRequestTypes() {
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

// propagate sets rate and blocked of all points, callers before callees.
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
				callee.blocked += p.rate * callee.time // a separate root
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

// times returns the mean number of calls of s per execution of its caller.
func (s *site) times() float64 { return float64(s.chance) * (1 + float64(s.repeat)) }

// overheads lists the mean cost of a hit of a tracepoint by layer, in ns and bytes.
var overheads = [...]struct {
	cost  float64
	bytes int32
}{cct.App: {1800, 260}, cct.Runtime: {1200, 200}, cct.Kernel: {900, 160}}

// newPoint adds a point without calls and returns its index. Names are unique within the service, layer and kind,
// except for the names of calls and messages.
func (b *builder) newPoint(
	s int32, name string, kind trace.Kind, layer cct.Layer, act action, mean, cov float64,
) int32 {
	svc := &b.services[s]
	mu, sigma := logNormal(mean, cov)
	o := overheads[layer]
	b.points = append(b.points, point{
		mu: mu, sigma: sigma,
		op:      b.table.Op(svc.sym, b.table.Symbol(name), kind),
		id:      b.table.Symbol(svc.name + "/" + layer.String() + "/" + kind.String() + "/" + name),
		callee:  -1,
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

// logUniform returns a log-uniform number between low and high.
func (b *builder) logUniform(low, high float64) float64 {
	return low * math.Pow(high/low, b.rng.Float64())
}

// cov returns a random coefficient of variation of a normal point.
func (b *builder) cov() float64 { return b.logUniform(0.1, 1) }

// chance returns true with probability p.
func (b *builder) chance(p float64) bool { return b.rng.Float64() < p }

// setSites sets the calls of point i, adds their nodes and times to those of the point, and updates the callers of the
// callees.
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

// setOwners sets the enclosing baseline point of each point, callers before callees.
func (b *builder) setOwners() {
	for i := len(b.points) - 1; i >= 0; i-- {
		caller := &b.points[i]
		owner, several := caller.owner, caller.severalOwners
		if caller.baseline {
			owner, several = int32(i), false
		}
		for _, s := range b.sites[caller.sites.first:caller.sites.end] {
			p := &b.points[s.callee]
			p.severalOwners = p.severalOwners || several || p.owner >= 0 && p.owner != owner
			p.owner = owner
		}
	}
}

// sortVariables sorts the variables by point and sets the range of each point.
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
