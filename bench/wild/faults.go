package wild

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Minimum sizes of faults. A person who looks at the traces of the window would call anything smaller noise.
const (
	leastShare    = 0.03 // of the requests that a fault touches
	leastRequests = 30   // recorded ones that it touches in its window
	leastRatio    = 1.5  // mean duration of the requests that it slows, relative to the same requests without it
)

// faultKinds are the kinds of faults.
var faultKinds = []string{
	"slow-code", "slow-pod", "slow-node", "slow-database", "slow-third-party", "slow-wire", "errors", "http-503",
	"outage", "timeouts", "retries", "n-plus-1", "lock", "leak", "queue-lag", "slow-release", "rare-type",
}

// fault is a fault that happened.
type fault struct {
	kind    string
	window  history.Interval
	after   string // the harmless event before it; "none"
	detail  string // for people
	place   place
	effect  *effect
	share   float64 // share of the touched requests; like ratio, simulated beforehand
	ratio   float64 // growth, at its end, of the mean duration of the requests that it slows, or 0
	touched int     // requests in its window that it touched
	all     int     // requests in its window
}

// place is the true location of a fault. A suspect is right if a person would accept its name.
type place struct {
	services []string // a suspect with one of these names is right
	backend  *backend // a suspect that names it is right
	queue    *queue   // a suspect that names it is right
	node     *node    // a suspect is right if it is the node, or if the node is the first of its instances
}

// injection is a fault that could be injected.
type injection struct {
	place     place
	detail    string
	effect    *effect
	low, high float64 // bounds of ratio; 0 if the fault slows no requests, or if its strength is given
	on, off   func()
	begin     func() // called at the start of the fault; may be nil
}

// inject injects a fault of the given kind now, for length, at a random place where it is strong enough, preferably in
// the service near. It returns false if there is no such place.
func (g *generator) inject(kind string, length time.Duration, near *service) bool {
	seen := g.survey()
	choices := g.choices(kind, seen, length)
	g.app.rng.Shuffle(len(choices), func(i, k int) { choices[i], choices[k] = choices[k], choices[i] })
	if near != nil { // first
		there := func(x injection) bool { return slices.Contains(x.place.services, near.name) }
		choices = append(slices.DeleteFunc(slices.Clone(choices), func(x injection) bool { return !there(x) }),
			slices.DeleteFunc(choices, there)...)
	}
	const tries = 12
	for i := range choices[:min(tries, len(choices))] {
		x := &choices[i]
		f := &fault{kind: kind, place: x.place, detail: x.detail, effect: x.effect, after: g.lastEvent()}
		f.window = history.Interval{From: g.now, To: g.now.Add(length)}
		if !g.calibrate(x, f) {
			continue
		}
		x.on()
		if x.begin != nil {
			x.begin()
		}
		g.at(f.window.To, x.off)
		g.faults, g.current = append(g.faults, f), f
		return true
	}
	return false
}

// survey returns, by place, the share of the requests that pass it.
func (g *generator) survey() map[any]float64 {
	const n = 800
	seen := make(map[any]float64)
	g.aside(func() {
		for range n {
			x := &execution{app: g.app, seen: make(map[any]bool)}
			x.run(g.app.pickRequest(), g.now)
			for k := range x.seen {
				seen[k] += 1.0 / n
			}
		}
	})
	return seen
}

// aside calls f with separate random numbers, which are always the same at an instant.
func (g *generator) aside(f func()) {
	rng := g.app.rng
	g.app.rng = rand.New(rand.NewPCG(g.seed, uint64(g.now)))
	f()
	g.app.rng = rng
}

// pickRequest returns a random request type, leaving out streams, polls, probes and batches.
func (a *app) pickRequest() *requestType {
	for {
		if t := a.pick(); t.nature == request {
			return t
		}
	}
}

// measurement is the effect of a fault in simulated requests.
type measurement struct {
	share float64 // of the requests that it touches
	mean  float64 // duration of these requests in ns
}

// measure simulates n requests that start at time at.
func (g *generator) measure(n int, at trace.Nanos) (m measurement) {
	touched, sum := 0, 0.0
	g.aside(func() {
		for range n {
			x := g.app.execute(g.app.pickRequest(), at)
			if x.touched {
				touched++
				sum += float64(x.duration)
			}
		}
	})
	return measurement{float64(touched) / float64(n), sum / float64(max(1, touched))}
}

// calibrate sets the strength of a fault so that the requests it touches are slower by a random ratio. It reports
// whether the fault is strong enough.
func (g *generator) calibrate(x *injection, f *fault) bool {
	const n = 1500
	e := x.effect
	x.on()
	defer x.off()
	since := e.since
	e.since = 0
	defer func() { e.since = since }()
	if x.high == 0 {
		f.share = g.measure(n, f.window.To).share
		return g.enough(f)
	}
	want := g.app.logUniform(x.low, x.high)
	usual := g.measure(n, f.window.To)
	f.share = usual.share
	if !g.enough(f) {
		return false
	}
	many := min(6000, int(200/usual.share))
	usual = g.measure(many, f.window.To)
	e.strength = (want - 1) * usual.mean
	if !e.added {
		e.strength = 4
	}
	for range 8 {
		f.ratio = g.measure(many, f.window.To).mean / usual.mean
		if math.Abs(f.ratio/want-1) < 0.1 {
			break
		}
		e.strength *= min(4, max(0.25, (want-1)/max(0.01, f.ratio-1)))
	}
	const most = 60 // larger factors and repetitions are not realistic
	return f.ratio >= leastRatio && (e.added || e.strength < most)
}

// enough reports whether a fault touches enough requests.
func (g *generator) enough(f *fault) bool {
	return f.share >= leastShare && f.share*g.app.requests()*f.window.To.Sub(f.window.From).Seconds() >= leastRequests
}

// choices returns the places where a fault of a kind may happen. seen is the share of the requests that pass each
// place.
func (g *generator) choices(kind string, seen map[any]float64, length time.Duration) []injection {
	switch kind {
	case "slow-pod", "outage", "leak":
		return g.atServices(kind, seen, length)
	case "slow-node":
		return g.atNodes(seen)
	case "slow-database", "slow-third-party":
		return g.atBackends(kind, seen)
	case "slow-wire":
		return g.atWires(seen)
	case "queue-lag":
		return g.atQueues(seen)
	}
	return g.atOperations(kind, seen)
}

// atOperations returns the choices of the kinds that affect one operation.
func (g *generator) atOperations(kind string, seen map[any]float64) (all []injection) {
	for _, s := range g.app.services {
		for _, o := range s.ops {
			share := seen[o]
			switch {
			case s.unseen || share < leastShare,
				kind == "rare-type" && share > 0.1,
				kind == "http-503" && s.grpc,
				(kind == "timeouts" || kind == "retries") && s == g.app.services[0],
				kind == "n-plus-1" && !repeatable(o):
				continue
			}
			x := injection{place: place{services: []string{s.name}}, detail: s.name + " " + o.name(), low: 1.6, high: 4}
			x.effect = &effect{share: 1, added: true}
			x.on, x.off = func() { o.effect = x.effect }, func() { o.effect = nil }
			g.adapt(kind, &x, o)
			all = append(all, x)
		}
	}
	return all
}

// adapt changes an injection of slow code into another kind.
func (g *generator) adapt(kind string, x *injection, o *operation) {
	rng := g.app.rng
	switch e := x.effect; kind {
	case "errors", "http-503":
		x.high = 0
		*e = effect{share: g.app.between(0.15, 0.6), fails: true, quiet: kind == "http-503", strength: 1}
	case "timeouts":
		x.high = 0
		*e = effect{share: g.app.between(0.1, 0.4), added: true, strength: 12e9}
	case "retries":
		x.high = 0
		*e = effect{share: g.app.between(0.4, 0.7), fails: true, strength: 1}
		x.begin = func() { g.app.retry(o) }
	case "n-plus-1":
		*e = effect{share: 1, repeated: true}
	case "lock":
		e.share = g.app.between(0.25, 0.5)
		x.low, x.high = 2.5, 6
		if rng.IntN(2) == 0 {
			e.span = "acquire lock"
		}
	case "slow-release":
		e.span, e.since = "recalculate", g.now
		s := o.service
		x.begin = func() {
			s.versioned = true
			s.version++
			g.roll(s, g.now)
		}
	}
}

// repeatable reports whether an operation has a step that it may repeat.
func repeatable(o *operation) bool {
	return slices.ContainsFunc(o.steps, func(s step) bool { return s.query != nil || s.to != nil })
}

// retry makes all callers of an operation retry.
func (a *app) retry(o *operation) {
	var follow func(steps []step)
	follow = func(steps []step) {
		for i := range steps {
			if steps[i].to == o {
				steps[i].retries = max(3, steps[i].retries)
			}
			follow(steps[i].steps)
		}
	}
	for _, s := range a.services {
		for _, o := range s.ops {
			follow(o.steps)
		}
	}
}

// atServices returns the choices of the kinds that affect a service or a pod.
func (g *generator) atServices(kind string, seen map[any]float64, length time.Duration) (all []injection) {
	for i, s := range g.app.services {
		if s.unseen || i == 0 && kind == "outage" || seen[s] < leastShare && i > 0 {
			continue
		}
		x := injection{place: place{services: []string{s.name}}, detail: s.name, low: 1.6, high: 4}
		x.effect = &effect{share: 1, added: true}
		switch kind {
		case "slow-pod":
			if len(s.pods) < 2 {
				continue
			}
			p := s.pods[g.app.rng.IntN(len(s.pods))]
			x.low, x.high, x.detail = 2, 5, p.name
			x.on, x.off = func() { p.effect = x.effect }, func() { p.effect = nil }
		case "outage":
			x.high, s.refuses = 0, g.app.chance(0.5)
			x.on, x.off = func() { s.down, s.mark = true, true }, func() { s.down, s.mark = false, false }
		case "leak":
			x.low, x.high = 2.5, 5
			x.effect.from, x.effect.to = g.now, g.now.Add(length)
			set := func(e *effect) {
				for _, o := range s.ops {
					o.effect = e
				}
			}
			x.on, x.off = func() { set(x.effect) }, func() { set(nil) }
		}
		all = append(all, x)
	}
	return all
}

func (g *generator) atNodes(seen map[any]float64) (all []injection) {
	for _, n := range g.app.nodes {
		services := 0
		for _, s := range g.app.services {
			if !s.unseen && seen[s] > 0 && slices.ContainsFunc(s.pods, func(p *pod) bool { return p.node == n }) {
				services++
			}
		}
		if services < 2 {
			continue
		}
		x := injection{
			place:  place{node: n},
			detail: n.name,
			low:    1.6,
			high:   3,
			effect: &effect{share: 1, factor: true},
		}
		x.on, x.off = func() { n.effect = x.effect }, func() { n.effect = nil }
		all = append(all, x)
	}
	return all
}

func (g *generator) atBackends(kind string, seen map[any]float64) (all []injection) {
	list := g.app.databases
	if kind == "slow-third-party" {
		list = g.app.parties
	}
	for _, b := range list {
		if seen[b] < leastShare {
			continue
		}
		x := injection{
			place:  place{backend: b},
			detail: b.host,
			low:    1.6,
			high:   4,
			effect: &effect{share: 1, added: true},
		}
		x.on, x.off = func() { b.effect = x.effect }, func() { b.effect = nil }
		// If a backend has only one caller, its traces are the CLIENT spans of that service, so both names are right.
		var callers []string
		hidden := false
		for _, s := range g.app.services {
			if seen[calledBy{b, s}] > 0 {
				callers = append(callers, s.name)
				hidden = hidden || s.unseen
			}
		}
		if hidden {
			continue
		}
		if len(callers) == 1 {
			x.place.services = callers
		}
		all = append(all, x)
	}
	return all
}

// atWires returns the pairs of services. The wire belongs to both, because traces only show that one waits for the
// other.
func (g *generator) atWires(seen map[any]float64) (all []injection) {
	for _, from := range g.app.services {
		for _, to := range g.app.services {
			pair := [2]*service{from, to}
			if seen[pair] < leastShare || from.unseen || to.unseen {
				continue
			}
			x := injection{
				place:  place{services: []string{from.name, to.name}},
				detail: from.name + " to " + to.name,
				low:    1.6,
				high:   4,
				effect: &effect{share: 1, added: true},
			}
			x.on, x.off = func() { g.app.wires[pair] = x.effect }, func() { delete(g.app.wires, pair) }
			all = append(all, x)
		}
	}
	return all
}

// atQueues returns the queues. Messages wait in the queue because its consumer takes them late, so both are right.
func (g *generator) atQueues(seen map[any]float64) (all []injection) {
	for _, q := range g.app.queues {
		if seen[q] < leastShare || q.consumer.service.unseen {
			continue
		}
		x := injection{place: place{queue: q, services: []string{q.consumer.service.name}}, detail: q.name}
		x.effect = &effect{share: 1, added: true, strength: g.app.logUniform(3e9, 40e9)}
		x.on, x.off = func() { q.effect = x.effect }, func() { q.effect = nil }
		all = append(all, x)
	}
	return all
}
