package sim

import (
	"math"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// placedFault is a fault with its location and strength.
type placedFault struct {
	points    []int32 // faulty points; empty without a fault
	before    int32   // index of the call in the body of the point before which the extra time is spent
	chance    float64 // affected fraction of the eligible executions
	mu, sigma float64 // log-normal in ln ns: extra time, time that a lock is held, or length of a burst of other work
	tenant    trace.Symbol
	hosts     span32  // affected hosts; empty means all
	arrivals  float64 // number of bursts of other work per second and host
	reach     []bool  // points that can reach a faulty point
}

// coresPerHost is the number of concurrent bursts on a busy host.
const coresPerHost = 2

// burstRatio is the ratio of the mean lengths of bursts on a busy host: other work to requests.
const burstRatio = 8

// candidates returns the fitting points that are executed more than once in ten minutes on average. If there are no
// such points, it returns all fitting points that are executed at all.
func (b *builder) candidates(fits func(*point) bool) []int32 {
	for _, least := range []float64{1.0 / 600, 0} {
		var found []int32
		for i := range b.points {
			if p := &b.points[i]; p.rate > least && fits(p) {
				found = append(found, int32(i))
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// fits returns a function that reports whether a point can be the location of fault f.
func (b *builder) fits(f Fault) func(*point) bool {
	function := func(p *point) bool { return p.layer == cct.App && p.action == work && !p.baseline }
	hasAction := func(a action) func(*point) bool { return func(p *point) bool { return p.action == a } }
	switch f {
	case SlowPath, Steady, Attribute, Host:
		return function
	case Payload:
		return func(p *point) bool { return function(p) || p.action == transfer }
	case Lock:
		return func(p *point) bool { return p.action == acquire && p.severalOwners }
	case ThirdParty:
		return hasAction(remote)
	case DNS:
		return hasAction(resolve)
	case Disk:
		return hasAction(storage)
	case CPU:
		return hasAction(schedule)
	case RetryStorm:
		return hasAction(call)
	case None:
	}
	return func(*point) bool { return false }
}

// placeFault draws the location and the strength of the fault.
func (b *builder) placeFault() {
	f, rng := &b.fault, stream(b.config.Seed, streamFault^uint64(trace.SymbolOf([]byte(b.config.Fault))))
	b.rng = rng
	found := b.candidates(b.fits(b.config.Fault))
	if len(found) == 0 && b.config.Fault == Lock { // operations share no lock
		found = b.candidates(func(p *point) bool { return p.action == acquire })
	}
	if len(found) == 0 {
		return
	}
	at := found[rng.IntN(len(found))]
	p := &b.points[at]
	f.points = []int32{at}
	f.before = b.bodyIndex(p)
	hosts := b.services[p.service].hosts
	one := hosts.first + int32(rng.IntN(int(hosts.end-hosts.first)))
	switch b.config.Fault {
	case CPU:
		f.points = b.sameService(found, p.service)
		if rng.IntN(2) == 0 {
			f.hosts = span32{one, one + 1}
		} else {
			f.hosts = hosts
		}
	case Host:
		f.hosts = span32{one, one + 1}
	case Attribute:
		f.tenant = draw(b.symbols.tenants, rng.Float64())
	case SlowPath, Lock, ThirdParty, Payload, DNS, Disk, RetryStorm, Steady, None:
	}
	for _, i := range f.points {
		b.points[i].target = true
	}
	b.markReach()
	b.drawStrength(p)
}

// bodyIndex returns the index of a random call in the body of p, or, for the end of the body, the number of calls.
func (b *builder) bodyIndex(p *point) int32 {
	n := p.sites.end - p.sites.first
	k := int32(b.rng.IntN(int(n + 1)))
	if k < n && b.sites[p.sites.first+k].parallel {
		return n
	}
	return k
}

func (b *builder) sameService(points []int32, s int32) []int32 {
	var same []int32
	for _, i := range points {
		if b.points[i].service == s {
			same = append(same, i)
		}
	}
	return same
}

// markReach sets the points that can reach the fault, callees before callers.
func (b *builder) markReach() {
	reach := make([]bool, len(b.points))
	for i := range b.points {
		p := &b.points[i]
		r := p.target || p.rpc >= 0 && reach[b.rpcs[p.rpc].callee]
		for _, s := range b.sites[p.sites.first:p.sites.end] {
			r = r || reach[s.callee]
		}
		reach[i] = r
	}
	b.fault.reach = reach
}

// drawStrength draws the affected fraction of the executions of p, and the extra time. The mean extra time of an
// affected request is drawn once: it is log-normal with σ 0.7, and its median is 0.4 of the healthy mean duration of
// the requests that execute p. It is twice as long for faults that affect few requests.
func (b *builder) drawStrength(p *point) {
	f, rng := &b.fault, b.rng
	var requests float64
	for _, t := range b.types {
		if f.reach[t.entry] {
			requests += t.weight * b.config.Rate
		}
	}
	visits := max(1, p.rate/requests) // executions per request that reaches p
	delay := b.config.Strength * 0.4 * math.Exp(0.7*rng.NormFloat64()) * p.blocked / p.rate / visits
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	f.chance = 1
	cov := 0.3
	switch b.config.Fault {
	case SlowPath:
		f.chance, delay = between(0.05, 0.5), 2*delay
	case Attribute, Host:
		delay *= 2
	case ThirdParty:
		f.chance, cov = between(0.3, 1), 0.5
	case Payload, Steady:
		cov = 0.1
	case Disk:
		f.chance, cov = between(0.2, 1), 0.7
	case DNS:
		f.chance, cov = between(0.3, 1), 0.6
	case RetryStorm:
		f.chance = between(0.2, 0.6)
	case Lock:
		peak := p.rate * (1 + b.config.Diurnal)
		held := between(0.4, 0.8) * min(1, b.config.Strength) / peak * 1e9
		delay, cov = min(held, p.blocked/p.rate), 0.5
	case CPU:
		delay, cov = b.logUniform(2, 20)*millisecond, 1
		busy := min(0.97, between(0.7, 0.95)*b.config.Strength) * coresPerHost
		own := b.ownLoad(delay / burstRatio)
		if own > busy/4 { // shorten bursts so that the host can keep up
			delay *= busy / 4 / own
			own = busy / 4
		}
		f.arrivals = (busy - own) / delay * 1e9
	case None:
	}
	f.mu, f.sigma = logNormal(max(delay, 1), cov)
}

// ownLoad returns the number of a host's cores that requests with the fault keep busy at the daily peak, if each of
// their bursts takes the given time in ns.
func (b *builder) ownLoad(burst float64) float64 {
	var rate float64
	for _, i := range b.fault.points {
		rate += b.points[i].rate
	}
	hosts := b.services[b.points[b.fault.points[0]].service].hosts
	return rate * (1 + b.config.Diurnal) / float64(hosts.end-hosts.first) * burst / 1e9
}
