package week

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Kinds of faults.
const (
	stepFault         = "step"
	backgroundFault   = "background" // lasts while a step starts
	podFault          = "pod"
	errorsFault       = "errors"
	outageFault       = "outage"
	leakFault         = "leak"
	intermittentFault = "intermittent"
)

// Numbers and strengths of the events of a week.
const (
	deploys        = 20
	steps          = 20
	stepsInFault   = 5
	stepsAtDeploy  = 5
	pods           = 2
	failing        = 3
	stepLength     = 20 * time.Minute
	faultLength    = 90 * time.Minute // of the faults during which steps start
	outageLength   = 30 * time.Minute
	leakLength     = 24 * time.Hour
	onOff, onTime  = 7 * time.Minute, 2 * time.Minute
	stepSize       = 0.3 // growth of the mean duration of the requests
	podSize        = 3 * stepSize
	leakPerHour    = 1.05
	intermittent   = 3
	failureRate    = 0.15
	apart          = 45 * time.Minute // minimum distance between faults that are not a pair
	rollEvery      = 45 * time.Second // between instances that are replaced
	leastCalls     = 1.0 / 6          // per second, of operations with a step
	deployDuration = mostInstances * rollEvery
)

// fault is a fault of the schedule with its window.
type fault struct {
	kind    string
	window  history.Interval
	service int
	op      int // operation, or the request type of an outage
	factor  float64
	paired  bool // starts during a background fault
}

// deploy is a deploy of the schedule.
type deploy struct {
	at      trace.Nanos
	service int
	op      int
	change  structure
}

// change is something that happens to the application.
type change struct {
	at trace.Nanos
	do func(*app)
}

// schedule contains all events of the weeks after the first.
type schedule struct {
	faults  []fault
	deploys []deploy
	changes []change // ascending
}

// plan returns the schedule of the weeks [1, weeks).
func plan(seed uint64, a *app, weeks int) *schedule {
	s := &schedule{}
	r := rand.New(rand.NewPCG(seed, 1))
	for w := 1; w < weeks; w++ {
		p := planner{schedule: s, app: a, rng: r, begin: monday.Add(time.Duration(w) * week)}
		p.week()
	}
	slices.SortStableFunc(s.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(s.faults, func(a, b fault) int { return cmp.Compare(a.window.From, b.window.From) })
	return s
}

// planner plans a week.
type planner struct {
	*schedule
	app   *app
	rng   *rand.Rand
	begin trace.Nanos
	taken []history.Interval // windows of faults
}

func (p *planner) week() {
	p.leak(p.begin.Add(5 * day))
	p.intermittent(p.begin.Add(6*day + 10*time.Hour))
	p.outage(p.begin.Add(3*day + 11*time.Hour))
	for range stepsInFault {
		from := p.free(faultLength)
		background := p.slowed(backgroundFault, from, faultLength, 2*stepSize)
		p.pair(background, from.Add(20*time.Minute))
	}
	for i := range deploys {
		service := p.rng.IntN(len(p.app.services))
		at := p.workingHour()
		if i < stepsAtDeploy {
			at = p.free(time.Hour)
			f := p.slowed(stepFault, at.Add(deployDuration+5*time.Minute), stepLength, stepSize)
			service = f.service
		}
		p.deploy(at, service, i%2 == 0)
	}
	for range steps - stepsInFault - stepsAtDeploy {
		p.slowed(stepFault, p.free(stepLength), stepLength, stepSize)
	}
	for range pods {
		p.pod(p.free(stepLength))
	}
	for range failing {
		p.errors(p.free(stepLength))
	}
}

// free takes a random interval of the given length, from Monday to Friday and far from other faults, and returns its
// start.
func (p *planner) free(length time.Duration) trace.Nanos {
	for {
		from := p.begin.Add(time.Duration(p.rng.Int64N(int64(5*day - length))))
		w := history.Interval{From: from.Add(-apart), To: from.Add(length + apart)}
		if !slices.ContainsFunc(p.taken, func(x history.Interval) bool { return x.From < w.To && w.From < x.To }) {
			p.taken = append(p.taken, history.Interval{From: from, To: from.Add(length)})
			return from
		}
	}
}

// workingHour returns a random instant in working hours that is far from faults.
func (p *planner) workingHour() trace.Nanos {
	for {
		at := p.begin.Add(time.Duration(p.rng.IntN(5))*day + 9*time.Hour +
			time.Duration(p.rng.Int64N(int64(9*time.Hour))))
		if !slices.ContainsFunc(p.taken, func(x history.Interval) bool {
			return at > x.From.Add(-apart) && at < x.To.Add(apart)
		}) {
			return at
		}
	}
}

// at adds a change at time at.
func (p *planner) at(at trace.Nanos, do func(*app)) { p.changes = append(p.changes, change{at, do}) }

func (p *planner) add(f fault) *fault {
	p.faults = append(p.faults, f)
	return &p.faults[len(p.faults)-1]
}

func between(from trace.Nanos, length time.Duration) history.Interval {
	return history.Interval{From: from, To: from.Add(length)}
}

// busy returns a random operation below the gateways that is called often enough at time at, except operations of the
// service `not`. If no such operation is called often enough, it returns the busiest.
func (p *planner) busy(at trace.Nanos, not int) int {
	var eligible []int
	for i := range p.app.ops {
		o := &p.app.ops[i]
		if o.service < gateways || o.service == not {
			continue
		}
		if o.rate*load(at) >= leastCalls {
			eligible = append(eligible, i)
		}
	}
	if len(eligible) == 0 {
		return p.busiest(not)
	}
	return eligible[p.rng.IntN(len(eligible))]
}

// busiest returns the operation below the gateways that is called most often, except operations of the service `not`.
func (p *planner) busiest(not int) int {
	most := -1
	for i := range p.app.ops {
		o := &p.app.ops[i]
		if o.service < gateways || o.service == not {
			continue
		}
		if most < 0 || o.rate > p.app.ops[most].rate {
			most = i
		}
	}
	return most
}

// factorFor returns the factor on the own times of an operation that makes requests through it take longer by growth in
// the mean.
func (p *planner) factorFor(op int, growth float64) float64 {
	o := &p.app.ops[op]
	return 1 + growth*o.duration*o.requests/(o.mean*o.rate)
}

// slowed plans an operation whose requests take longer.
func (p *planner) slowed(kind string, from trace.Nanos, length time.Duration, growth float64) *fault {
	return p.slowedOp(kind, from, length, growth, p.busy(from, -1))
}

func (p *planner) slowedOp(kind string, from trace.Nanos, length time.Duration, growth float64, op int) *fault {
	f := p.factorFor(op, growth)
	p.at(from, func(a *app) { a.ops[op].slow = f })
	p.at(from.Add(length), func(a *app) { a.ops[op].slow = 0 })
	return p.add(fault{kind: kind, window: between(from, length), service: p.app.ops[op].service, op: op, factor: f})
}

// pair plans a step during another fault.
func (p *planner) pair(background *fault, from trace.Nanos) {
	op := p.busy(from, background.service)
	p.slowedOp(stepFault, from, stepLength, stepSize, op).paired = true
}

// pod plans an instance that is slow.
func (p *planner) pod(from trace.Nanos) {
	op := p.busy(from, -1)
	service, f := p.app.ops[op].service, p.factorFor(op, podSize)
	p.at(from, func(a *app) { a.services[service].instances[1].slow = f })
	p.at(from.Add(stepLength), func(a *app) { a.services[service].instances[1].slow = 0 })
	p.add(fault{kind: podFault, window: between(from, stepLength), service: service, op: op, factor: f})
}

func (p *planner) errors(from trace.Nanos) {
	op := p.busy(from, -1)
	p.at(from, func(a *app) { a.ops[op].fails = failureRate })
	p.at(from.Add(stepLength), func(a *app) { a.ops[op].fails = 0 })
	p.add(fault{kind: errorsFault, window: between(from, stepLength), service: p.app.ops[op].service, op: op})
}

func (p *planner) outage(from trace.Nanos) {
	t := p.rng.IntN(5)
	p.at(from, func(a *app) { a.types[t].silent = true })
	p.at(from.Add(outageLength), func(a *app) { a.types[t].silent = false })
	p.taken = append(p.taken, between(from, outageLength))
	p.add(fault{
		kind: outageFault, window: between(from, outageLength), service: p.app.ops[p.app.types[t].op].service, op: t,
	})
}

// leakedAt returns the factor on own times when a leak has lasted for since.
func leakedAt(since time.Duration) float64 {
	f := 1.0
	for range int(since / time.Hour) {
		f *= leakPerHour
	}
	return f
}

func (p *planner) leak(from trace.Nanos) {
	op := p.busy(from.Add(12*time.Hour), -1)
	service := p.app.ops[op].service
	for t := time.Duration(0); t < leakLength; t += time.Hour {
		p.at(from.Add(t), func(a *app) { a.services[service].slow = leakedAt(t) })
	}
	p.at(from.Add(leakLength), func(a *app) { a.services[service].slow = 0 })
	p.add(fault{kind: leakFault, window: between(from, leakLength), service: service, op: op})
}

func (p *planner) intermittent(from trace.Nanos) {
	op := p.busy(from, -1)
	for t := time.Duration(0); t < time.Hour; t += onOff {
		p.at(from.Add(t), func(a *app) { a.ops[op].slow = intermittent })
		p.at(from.Add(t+onTime), func(a *app) { a.ops[op].slow = 0 })
	}
	p.add(fault{
		kind:    intermittentFault,
		window:  between(from, time.Hour),
		service: p.app.ops[op].service,
		op:      op,
		factor:  intermittent,
	})
}

// deploy plans a deploy of a service, which may change the structure of an operation.
func (p *planner) deploy(at trace.Nanos, service int, structural bool) {
	var ops []int
	for i := range p.app.ops {
		if p.app.ops[i].service == service && i != p.app.batch {
			ops = append(ops, i)
		}
	}
	d := deploy{at: at, service: service, op: ops[p.rng.IntN(len(ops))]}
	if structural {
		d.change = anotherSpan + structure(p.rng.IntN(2))
	}
	p.deploys = append(p.deploys, d)
	p.at(at, func(a *app) {
		s := &a.services[service]
		s.version++
		if d.change != unchanged {
			a.ops[d.op].added, a.ops[d.op].since = d.change, s.version
		}
	})
	for k := range mostInstances {
		then := at.Add(time.Duration(k) * rollEvery)
		p.at(then, func(a *app) {
			s := &a.services[service]
			s.instances[k] = instance{
				pod:     a.table.Symbol(fmt.Sprintf("%s-%d-%d", a.table.Text(s.name), s.version, k)),
				version: a.versionOf(service),
				number:  s.version,
				started: then,
				slow:    s.instances[k].slow,
			}
		})
	}
}
