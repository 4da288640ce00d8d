package sim

import (
	"math"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// fault is what goes wrong once it is injected.
type fault struct {
	points    []int32 // where it acts; empty: nowhere
	before    int32   // the call in the body of the point before which the extra work is done
	chance    float64 // fraction of executions that are affected
	mu, sigma float64 // extra time, log-normal, ln ns; for a lock how long it is held, for a core a burst
	tenant    trace.Symbol
	hosts     span32  // the affected ones; empty: all
	arrivals  float64 // bursts of others per second and host
	reach     []bool  // points from which the fault can be reached
}

// coresPerHost is how many bursts run at once on a host whose cores are short.
const coresPerHost = 2

// burstRatio is how much shorter the bursts of requests are than those of others that keep a host busy.
const burstRatio = 8

// candidates returns the points at which the fault can act: those that are executed at least once in ten minutes in the
// mean, or, failing that, at all.
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

// fits returns which points a fault of the given sort can act at.
func (b *builder) fits(f Fault) func(*point) bool {
	function := func(p *point) bool { return p.layer == cct.App && p.action == work && !p.baseline }
	does := func(a action) func(*point) bool { return func(p *point) bool { return p.action == a } }
	switch f {
	case SlowPath, Steady, Attribute, Host:
		return function
	case Payload:
		return func(p *point) bool { return function(p) || p.action == transfer }
	case Lock:
		return func(p *point) bool { return p.action == acquire && p.owners }
	case ThirdParty:
		return does(remote)
	case DNS:
		return does(resolve)
	case Disk:
		return does(storage)
	case CPU:
		return does(schedule)
	case RetryStorm:
		return does(call)
	case None:
	}
	return func(*point) bool { return false }
}

// placeFault decides where the fault acts and how strongly.
func (b *builder) placeFault() {
	f, rng := &b.fault, stream(b.config.Seed, streamFault^uint64(trace.SymbolOf([]byte(b.config.Fault))))
	b.rng = rng
	found := b.candidates(b.fits(b.config.Fault))
	if len(found) == 0 && b.config.Fault == Lock { // none is shared by operations
		found = b.candidates(func(p *point) bool { return p.action == acquire })
	}
	if len(found) == 0 {
		return
	}
	at := found[rng.IntN(len(found))]
	p := &b.points[at]
	f.points = []int32{at}
	f.before = b.bodyPlace(p)
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

// bodyPlace returns a random place between the calls in the body of p.
func (b *builder) bodyPlace(p *point) int32 {
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

// markReach finds the points from which the fault can be reached, callees before callers.
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

// drawStrength draws how many executions of p are affected and by how much. The extra time is measured by the requests
// that execute p: what such a request loses is log-normal with median 0.4 of its healthy mean duration and σ 0.7, if it is
// affected, and twice that where only few are. It is drawn once for all requests.
func (b *builder) drawStrength(p *point) {
	f, rng := &b.fault, b.rng
	var requests float64
	for _, t := range b.types {
		if f.reach[t.entry] {
			requests += t.weight * b.config.Rate
		}
	}
	visits := max(1, p.rate/requests) // in a request that gets there
	loss := b.config.Strength * 0.4 * math.Exp(0.7*rng.NormFloat64()) * p.blocked / p.rate / visits
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	f.chance = 1
	cov := 0.3
	switch b.config.Fault {
	case SlowPath:
		f.chance, loss = between(0.05, 0.5), 2*loss
	case Attribute, Host:
		loss *= 2
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
		loss, cov = min(held, p.blocked/p.rate), 0.5
	case CPU:
		loss, cov = b.logUniform(2, 20)*millisecond, 1
		busy := min(0.97, between(0.7, 0.95)*b.config.Strength) * coresPerHost
		own := b.ownLoad(loss / burstRatio)
		if own > busy/4 { // busy hosts have shorter bursts, or they would never keep up
			loss *= busy / 4 / own
			own = busy / 4
		}
		f.arrivals = (busy - own) / loss * 1e9
	case None:
	}
	f.mu, f.sigma = logNormal(max(loss, 1), cov)
}

// ownLoad returns how many cores of a host the requests that the fault can hit keep busy at the daily peak, if each of their
// bursts takes the given time.
func (b *builder) ownLoad(burst float64) float64 {
	var rate float64
	for _, i := range b.fault.points {
		rate += b.points[i].rate
	}
	hosts := b.services[b.points[b.fault.points[0]].service].hosts
	return rate * (1 + b.config.Diurnal) / float64(hosts.end-hosts.first) * burst / 1e9
}
