package sim

import (
	"math"
	"math/rand/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// never is a time after all requests.
const never = math.MaxInt64

// Salts distinguish the random choices of an execution of a point. The calls in a body are numbered from 0.
const (
	saltChance = 1 << 20 * (iota + 1)
	saltRepeat
	saltGo
	saltCache
	saltFault
	saltAffected
	saltWire
	saltBack
	saltHost
	saltServer
	saltStorm
	saltRetry
	saltFail
	saltType
	saltTenant
	saltRegion
	saltSize
	saltTrace
	saltArm
	saltRate
	saltGap
)

// source is a random source (SplitMix64) whose state can be replaced at no cost.
type source struct{ state uint64 }

// Uint64 returns the next number of the stream.
func (s *source) Uint64() uint64 {
	s.state += 0x9e3779b97f4a7c15
	x := s.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// executor executes requests of a program, one after the other in the order of arrival.
//
// Each execution of a point has its own random stream, which depends on the request and on the position of the
// execution in it. So neither enabled tracepoints nor the fault affect other random choices.
type executor struct {
	*program
	src    source
	rng    *rand.Rand // over src
	inject int64      // time at which the fault becomes active
	silent bool       // emit no spans

	executed         []bool // by point
	executedVariable []bool
	nodes            int64        // number of executed points
	lock             calendar     // reservations of the contended lock
	cores            [][]calendar // by host, from the first affected one
	loads            []load       // by host, from the first affected one

	// State of the current request.
	on         []bool // enabled, by point
	captured   []bool // enabled, by variable
	none       []bool // false for all
	version    int64
	arm        trace.Symbol
	number     int64   // number of the request
	seen       []int64 // number of the last request that executed each service
	seed       uint64
	size       float64 // size of the payload, relative to the mean
	tenant     trace.Symbol
	region     trace.Symbol
	trace      trace.Trace
	spanHosts  []int32
	hits       int // number of executions of the target that the response waited for
	failures   int // number of remote calls whose last attempt failed
	failServer bool
	roots      []rootTime
}

// rootTime is the duration of a root: a request or the handling of a message.
type rootTime struct {
	entry int32
	ns    int64
	hits  int
}

// load generates bursts of other work on a host.
type load struct {
	rng  *rand.Rand
	next int64 // time of the next burst
}

func newExecutor(p *program) *executor {
	r := &executor{
		program: p, inject: never,
		executed:         make([]bool, len(p.points)),
		executedVariable: make([]bool, len(p.variables)),
		none:             make([]bool, max(len(p.points), len(p.variables))),
		seen:             make([]int64, len(p.services)),
	}
	r.rng = rand.New(&r.src)
	r.on, r.captured = r.none, r.none
	return r
}

// logNormal returns a log-normal number from the stream that starts at seed.
func (r *executor) logNormal(mu, sigma float64, seed uint64) float64 {
	r.src.state = seed
	return math.Exp(mu + sigma*r.rng.NormFloat64())
}

// request executes one request that arrives at t. It leaves the spans of the request in r.trace, and the durations of
// its roots in r.roots.
func (r *executor) request(seed uint64, t int64, entry int32) {
	r.number++
	r.seed = seed
	r.hits, r.failures, r.failServer = 0, 0, false
	r.roots = r.roots[:0]
	r.trace.Reset()
	r.spanHosts = r.spanHosts[:0]
	r.trace.ID = traceID(seed)
	r.tenant = draw(r.symbols.tenants, unit(mix(seed, saltTenant)))
	r.region = draw(r.symbols.regions, unit(mix(seed, saltRegion)))
	r.size = r.logNormal(-math.Ln2/2, math.Sqrt(math.Ln2), mix(seed, saltSize)) // mean 1, CoV 1
	r.lock.forget(t)
	for _, cores := range r.cores {
		for i := range cores {
			cores[i].forget(t)
		}
	}
	end := r.exec(entry, mix(seed, saltServer), t, -1, r.selectHost(entry, seed))
	r.roots = append(r.roots, rootTime{entry, end - t, r.hits})
	if r.config.Skew > 0 {
		for i := range r.trace.Spans {
			s := &r.trace.Spans[i]
			skew := trace.Nanos(r.hosts[r.spanHosts[i]].skew)
			s.Start, s.End = s.Start+skew, s.End+skew
		}
	}
}

// selectHost returns the host that executes entry. The choice depends only on seed.
func (r *executor) selectHost(entry int32, seed uint64) int32 {
	h := r.services[r.points[entry].service].hosts
	return h.first + int32(mix(seed, saltHost)%uint64(h.end-h.first))
}

// exec executes point i from t on and returns the time at which it ends. parent is the index of the nearest emitted
// span.
func (r *executor) exec(i int32, seed uint64, t int64, parent, host int32) int64 {
	p := &r.points[i]
	r.executed[i] = true
	r.nodes++
	if p.action == call {
		return r.call(p, seed, t, parent, host)
	}
	if p.action == send {
		return r.send(p, seed, t, parent, host)
	}
	span := parent
	failed, failures, status := false, r.failures, -1
	if p.baseline || r.on[i] {
		span = r.open(p, seed, t, parent, host)
		r.describeCall(p, span, -1)
		if !p.baseline {
			t += r.cost(p.cost)
		}
	}
	if p.action == enter {
		failed, r.failServer = r.failServer, false
		if !r.silent {
			status = r.describe(p, span, host)
		}
	}
	hit := p.cache > 0 && unit(mix(seed, saltCache)) < float64(p.cache)
	if p.variables.first < p.variables.end {
		t = r.capture(p.variables, t, span, hit)
	}
	own := r.logNormal(p.mu, p.sigma, seed) * r.hosts[host].speed
	if p.action == transfer {
		own *= 0.5 + 0.5*r.size
	}
	var delay int64
	if p.target {
		r.hits++
		if t >= r.inject {
			t, delay = r.applyFault(p, seed, t, host)
		}
	}
	t = r.body(p, seed, t, int64(own), delay, hit, span, host)
	if span != parent {
		r.trace.Spans[span].End = trace.Nanos(t)
	}
	if p.action == enter && (failed || r.failures > failures) && status >= 0 {
		r.trace.Spans[span].Flags |= trace.Error
		r.trace.Attrs[status].Number = 500
	}
	return t
}

// body executes the calls of p. It spreads the own time of p evenly around the calls, and spends delay, the extra time
// of the fault, in one piece.
func (r *executor) body(p *point, seed uint64, t, own, delay int64, hit bool, span, host int32) int64 {
	sites := r.sites[p.sites.first:p.sites.end]
	gap := own / int64(len(sites)+1)
	for i := 0; i < len(sites); {
		t += gap
		if delay > 0 && i == int(r.fault.before) {
			t += delay
		}
		s := &sites[i]
		switch {
		case s.async:
			hits, failures := r.hits, r.failures
			r.visit(s, mix(seed, uint64(i)), t, span, host)
			r.hits, r.failures = hits, failures
			i++
		case i+1 < len(sites) && sites[i+1].parallel:
			t, i = r.fork(sites, i, seed, t, span, host)
		default:
			t = r.visit(s, mix(seed, uint64(i)), t, span, host)
			i++
		}
		if hit { // the first call is the cache lookup
			return t + gap
		}
	}
	t += gap
	if delay > 0 && len(sites) == int(r.fault.before) {
		t += delay
	}
	return t
}

// fork executes the parallel calls that start with sites[i]. It returns the time at which the last one ends, and the
// index of the next call.
func (r *executor) fork(sites []site, i int, seed uint64, t int64, span, host int32) (int64, int) {
	end, before, hits := t, r.hits, r.hits
	for first := true; i < len(sites) && (first || sites[i].parallel); i++ {
		first = false
		r.hits = before
		if e := r.visit(&sites[i], mix(seed, uint64(i)), t, span, host); e > end {
			end, hits = e, r.hits
		}
	}
	r.hits = hits
	return end, i
}

// visit executes the call s a random number of times and returns the time at which the last one ends.
func (r *executor) visit(s *site, seed uint64, t int64, span, host int32) int64 {
	if s.chance < 1 {
		chance := float64(s.chance)
		if p := &r.points[s.callee]; p.target && p.action == resolve && t >= r.inject {
			chance = max(chance, r.fault.chance) // name caches fail
		}
		if unit(mix(seed, saltChance)) >= chance {
			return t
		}
	}
	t = r.exec(s.callee, seed, t, span, host)
	if s.repeat > 0 {
		again := float64(s.repeat) / (1 + float64(s.repeat))
		for k := uint64(1); k < 20 && unit(mix(seed, saltRepeat+k)) < again; k++ {
			t = r.exec(s.callee, mix(seed, saltGo+k), t, span, host)
		}
	}
	return t
}

// call executes a remote call with its retries, and returns the time at which the caller continues. Each attempt is a
// separate span.
func (r *executor) call(p *point, seed uint64, t int64, parent, host int32) int64 {
	c := &r.rpcs[p.rpc]
	if p.target {
		r.hits++
		for k := uint64(0); k < 3 && t >= r.inject && unit(mix(seed, saltAffected+k)) < r.fault.chance; k++ {
			t = r.failedAttempt(p, c, mix(seed, saltStorm+k), t, parent, host)
			t += int64(2*millisecond) << k
		}
	}
	for k := int32(0); ; k++ {
		attempt := seed
		if k > 0 {
			attempt = mix(seed, saltRetry+uint64(k))
		}
		end, ok := r.attempt(p, c, attempt, t, parent, host)
		if ok {
			return end
		}
		if k == c.retries {
			r.failures++
			return end
		}
		t = end + int64(5*millisecond)<<k
	}
}

// failedAttempt executes an attempt to call an overloaded service, which responds late with an error, or not at all. It
// returns the time at which the attempt ends.
func (r *executor) failedAttempt(p *point, c *rpc, seed uint64, t int64, parent, host int32) int64 {
	span := r.open(p, seed, t, parent, host)
	replica := r.selectHost(c.callee, seed)
	r.describeCall(p, span, replica)
	end := t + int64(r.logNormal(r.fault.mu, r.fault.sigma, mix(seed, saltFault)))
	if seed&1 == 0 && !r.silent {
		wire := (end - t) / 10
		server := &r.points[c.callee]
		r.executed[c.callee] = true
		k := r.open(server, mix(seed, saltServer), t+wire, span, replica)
		status := r.describe(server, k, replica)
		r.trace.Attrs[status].Number = 503
		r.trace.Spans[k].End = trace.Nanos(end - wire)
		r.trace.Spans[k].Flags |= trace.Error
	}
	if !r.silent {
		r.trace.Spans[span].End = trace.Nanos(end)
		r.trace.Spans[span].Flags |= trace.Error
	}
	return end
}

// attempt executes a remote call once. It returns the time at which the caller continues, and whether the call
// succeeded.
func (r *executor) attempt(p *point, c *rpc, seed uint64, begin int64, parent, host int32) (end int64, ok bool) {
	span := r.open(p, seed, begin, parent, host)
	replica := r.selectHost(c.callee, seed)
	r.describeCall(p, span, replica)
	own := int64(r.logNormal(p.mu, p.sigma, seed))
	t := begin + own/2
	for i := p.sites.first; i < p.sites.end; i++ {
		t = r.visit(&r.sites[i], mix(seed, uint64(i-p.sites.first)), t, span, host)
	}
	t += int64(r.logNormal(c.mu, c.sigma, mix(seed, saltWire)))
	failing := unit(mix(seed, saltFail)) < float64(c.failureRatio)
	r.failServer = failing
	failures := r.failures
	t = r.exec(c.callee, mix(seed, saltServer), t, span, replica)
	failing = failing || r.failures > failures
	r.failures = failures
	end = t + int64(r.logNormal(c.mu, c.sigma, mix(seed, saltBack))) + own/2
	if end > begin+c.timeout { // the caller gives up, but the callee continues
		end, failing = begin+c.timeout, true
	}
	if !r.silent {
		s := &r.trace.Spans[span]
		s.End = trace.Nanos(end)
		if failing {
			s.Flags |= trace.Error
		}
	}
	return end, !failing
}

// send sends a message and executes its consumer. It returns the time at which the sender continues.
func (r *executor) send(p *point, seed uint64, t int64, parent, host int32) int64 {
	c := &r.rpcs[p.rpc]
	span := r.open(p, seed, t, parent, host)
	r.describeCall(p, span, -1)
	end := t + int64(r.logNormal(p.mu, p.sigma, seed))
	if !r.silent {
		r.trace.Spans[span].End = trace.Nanos(end)
	}
	hits, failures := r.hits, r.failures
	r.hits = 0
	begin := end + int64(r.logNormal(c.mu, c.sigma, mix(seed, saltWire)))
	done := r.exec(c.callee, mix(seed, saltServer), begin, span, r.selectHost(c.callee, seed))
	r.roots = append(r.roots, rootTime{c.callee, done - begin, r.hits})
	r.hits, r.failures = hits, failures
	return end
}

// applyFault applies the fault to an execution of p. It returns the time at which p can start, and the extra time that
// p takes.
func (r *executor) applyFault(p *point, seed uint64, t int64, host int32) (begin, delay int64) {
	f := &r.fault
	if f.hosts.first < f.hosts.end && (host < f.hosts.first || host >= f.hosts.end) {
		return t, 0
	}
	if f.tenant != 0 && r.tenant != f.tenant {
		return t, 0
	}
	if f.chance < 1 && p.action != resolve && unit(mix(seed, saltAffected)) >= f.chance {
		return t, 0
	}
	extra := r.logNormal(f.mu, f.sigma, mix(seed, saltFault))
	switch r.config.Fault {
	case Lock:
		start, before := r.lock.first(t, int64(extra))
		r.lock.take(start, int64(extra), before)
		return start, 0
	case CPU:
		return r.schedule(t, int64(extra), host), 0
	case Payload:
		return t, int64(extra * r.size)
	case SlowPath, ThirdParty, Attribute, Host, DNS, Disk, RetryStorm, Steady, None:
	}
	return t, int64(extra)
}

// schedule returns the time at which a burst that is ready at t starts on a host with other work.
func (r *executor) schedule(t, burst int64, host int32) int64 {
	f := &r.fault
	if r.cores == nil {
		n := f.hosts.end - f.hosts.first
		r.cores, r.loads = make([][]calendar, n), make([]load, n)
		for i := range n {
			r.cores[i] = make([]calendar, coresPerHost)
			r.loads[i] = load{stream(r.config.Seed, streamLoad+uint64(i)<<8), r.inject}
		}
	}
	h := host - f.hosts.first
	cores, others := r.cores[h], &r.loads[h]
	for others.next <= t {
		length := math.Exp(f.mu + f.sigma*others.rng.NormFloat64())
		reserveAny(cores, others.next, int64(length))
		others.next += int64(others.rng.ExpFloat64() / f.arrivals * 1e9)
	}
	return reserveAny(cores, t, burst/burstRatio)
}
