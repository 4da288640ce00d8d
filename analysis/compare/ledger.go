package compare

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// graph describes the sites and the services of a comparison.
type graph struct {
	table  *trace.Table
	sites  []history.Site   // by number
	names  []trace.Symbol   // by number of the service
	opaque []bool           // by number of the service: whether it emits no spans
	callee []history.Callee // by number of the site: the usual callee of a CLIENT span; service 0 if unknown
	behind []history.Callee // by number of the site, including borders; service 0 without a callee, see setBehind

	index *siteIndex // of sites
}

// setBehind sets the callees of spans that call only one other service but have no CLIENT spans for it, like the spans
// of proxies and gateways. The callee is the most frequently called operation of that service. calls returns the number
// of calls at a site.
func (g *graph) setBehind(calls func(site int32) uint64) {
	type usual struct {
		history.Callee
		calls  uint64
		others bool // its callees belong to several services
	}
	of := make(map[trace.Op]usual) // by operation of the caller
	for i := range g.sites {
		s, called := &g.sites[i], g.callee[i]
		if !s.Border || called.Service == 0 {
			continue
		}
		n := calls(int32(i))
		u, known := of[s.Parent]
		u.others = u.others || known && u.Service != called.Service
		if !known || cmp.Or(cmp.Compare(n, u.calls), cmp.Compare(u.Op, called.Op)) > 0 {
			u.Callee, u.calls = called, n
		}
		of[s.Parent] = u
	}
	g.behind = scratch.Filled(g.behind, len(g.sites), history.Callee{})
	for i := range g.sites {
		caller := g.sites[i].Base
		if s := &g.sites[i]; s.Border {
			caller = s.Parent
		} else if s.Client {
			continue
		}
		if u := of[caller]; !u.others {
			g.behind[i] = u.Callee
		}
	}
}

// ledger collects the evidence of a window, site by site, and ranks the services.
type ledger struct {
	graph
	Judge
	requests float64 // in the window
	duration float64 // mean duration of a request of the history in ns, at least 1
	// long returns the typical duration in ns of the requests with calls at a site, if they take much longer than most
	// requests. The times at that site are then measured against it, because a few streams would otherwise outweigh all
	// other requests. long is nil if unknown.
	long func(site int32) (nanos float64, long bool)
	// running means that the history belongs to a running service. A deploy may change the calls of a service for
	// hours. That isn't a loss, and as part of the score it would hide real losses.
	running bool

	source    source
	evidence  []evidence                 // by number of the service
	ops       map[history.Callee]float64 // evidence against each operation
	own       map[history.Callee]float64 // the part of ops that is not on the wire: own time and changed shapes
	slow      map[history.Callee]float64 // the part of own that is own time
	outExcess map[history.Callee]float64 // wire excess of the calls that each operation makes
	wire      Wires
	failures  Wires // failed calls whose callee answered without a failure
	called    calledOperations
	missing   []missingAnswers // at sites with excess
	alive     map[int32]bool   // by number of the service: see [ledger.isAlive]
	// failing is, by number of the site, the number of calls beyond the usual that failed or got no answer.
	failing map[int32]float64
	wholes  []wholeTimes                // by number of the service; nil if not known
	adding  map[history.Callee]Addition // of the operations that make calls more often than before
}

// operationCalls sums up the calls of an operation in the window: see [SuspectOperation].
type operationCalls struct {
	operation history.Callee
	queue     bool // see [SuspectOperation]

	calls, failed float64
	stopped       float64   // per second, see [SuspectOperation]
	unit          float64   // unit of times in ns: the longest of the sites
	known, young  callTimes // at sites with a long enough history, and at others
	answered      float64   // see [SuspectOperation.Answered]
}

// callTimes sums up the own times of calls.
type callTimes struct {
	calls         float64
	excess, usual float64 // ns
	typical       typicalTimes
}

// times returns the times of calls at sites with a short history if young is true, and otherwise at the other sites.
func (c *operationCalls) times(young bool) *callTimes {
	if young {
		return &c.young
	}
	return &c.known
}

// evidence collects the parts of the score of a service, per request: see [Suspect].
type evidence struct {
	own, added, errors, unanswered, silent, shape, soft float64

	calls    []AddedCall
	unfailed float64 // the part of unanswered whose calls did not fail
	// lost is, by number of the caller, the part of unanswered that failed on the way: the service answers its other
	// callers.
	lost map[int32]float64
}

func newLedger(g graph, requests, duration float64, judge Judge) *ledger {
	return &ledger{
		graph:     g,
		requests:  requests,
		duration:  duration,
		Judge:     judge,
		evidence:  make([]evidence, len(g.names)),
		ops:       make(map[history.Callee]float64),
		own:       make(map[history.Callee]float64),
		slow:      make(map[history.Callee]float64),
		outExcess: make(map[history.Callee]float64),
		wire:      make(Wires),
		failures:  make(Wires),
		called:    newCalledOperations(g.index),
		failing:   make(map[int32]float64),
		adding:    make(map[history.Callee]Addition),
		alive:     make(map[int32]bool),
	}
}

// siteTime is the own time or the local time of the calls at a site, on and off the critical path.
type siteTime struct {
	number int32
	calls  float64       // in the window
	onPath float64       // part (0–1) of the time in the window that is on the critical path and so delays requests
	mean   float64       // in the window, in ns
	usual  float64       // means up to this are not an excess, in ns
	means  []float64     // in the pieces of the history, in ns; empty if the mean is within their fence
	leaves bool          // too many calls of the window made no calls
	inside bool          // it is part of the local time of another site, and is charged there
	young  bool          // the site has not been known for long enough to judge its calls separately
	window history.Cells // the excess of an operation must not come from few of these calls
	// before is the mean of the history, in ns, above which the excess of an operation is measured; 0 means above the
	// limit.
	before float64
}

// unit returns the unit of the times at site, in ns: the mean duration of a request or, at sites of long requests, the
// typical duration of those requests if that is longer.
func (l *ledger) unit(site int32) float64 {
	if l.long != nil {
		if nanos, long := l.long(site); long {
			return max(nanos, l.duration)
		}
	}
	return l.duration
}

// leastLag is the factor by which the time of messages in a queue must exceed its usual limit to count as a loss.
// Batches and polls make up most of that time, so it hardly varies, and a few more milliseconds delay no request.
const leastLag = 2

// chargeTime charges the excess of own time at a site. If the calls got no answer, it leaves that to
// [added.chargeMissing]. It reorders x.means.
func (l *ledger) chargeTime(x *siteTime) {
	if p := &l.sites[x.number]; x.inside {
		l.called.at(x.number, p).add(x, x.mean, l.unit(x.number))
		return
	}
	soft, limit := 0.0, x.mean
	if len(x.means) > 0 && !atMost(x.mean, x.means, middle) {
		median := 0.0
		median, limit = l.fence(x.means)
		limit = max(limit, x.usual) // the slow calls of the history may be in few pieces
		if l.sites[x.number].Queue {
			limit *= leastLag
		}
		if x.mean > median {
			soft = (x.mean - median) / max(limit-median, 1)
		}
	}
	if x.mean > limit && l.missesAnswers(x.number) {
		l.missing = append(l.missing, missingAnswers{*x, limit, soft})
		last := &l.missing[len(l.missing)-1]
		last.means, last.window = nil, slices.Clone(x.window)
		return
	}
	l.charge(x, limit, soft)
}

// charge charges the part of the mean time of the calls of x that exceeds limit, in ns. soft is as in [Suspect].
func (l *ledger) charge(x *siteTime, limit, soft float64) {
	excess := max(0, x.mean-limit) * x.onPath * x.calls / l.requests / l.unit(x.number)
	p := &l.sites[x.number]
	suspect := history.Callee{Service: p.Service, Op: p.Op}
	called, border := l.callee[x.number], p.Border
	if x.leaves && !p.Client {
		called, border = l.behind[x.number], true // it waited for a callee whose span is missing
	}
	if called.Service != 0 {
		suspect = called
	}
	e := &l.evidence[suspect.Service]
	e.soft = max(e.soft, soft*x.onPath)
	wired := suspect.Service != p.Service
	l.count(x, suspect, min(limit, x.mean))
	if wired {
		w := Wire{p.Service, suspect.Service, border}
		l.wire.Add(w, x.calls/l.requests, excess)
		if !border || l.behind[x.number].Service != 0 { // otherwise its failures don't show which of its calls failed
			l.failures.Add(w, x.calls/l.requests, 0)
		}
	}
	if excess == 0 {
		return
	}
	l.ops[suspect] += excess
	if wired {
		l.outExcess[history.Callee{Service: p.Service, Op: cmp.Or(p.Parent, p.Op)}] += excess
	} else {
		e.own += excess
		l.own[suspect] += excess
		l.slow[suspect] += excess
	}
}

// chargeShape charges part of a request to a site, for a changed shape. A call without an answer is charged to the
// callee if it failed, or if nothing else shows that the callee is alive. Such a call is a CLIENT span, or a span that
// failed before the only service that it calls had answered.
func (l *ledger) chargeShape(number int32, failed, answered bool, part float64) {
	p := &l.sites[number]
	suspect := history.Callee{Service: p.Service, Op: p.Op}
	called := l.callee[number]
	if !p.Client {
		called = l.behind[number]
	}
	known := called.Service != 0 && !l.opaque[called.Service]
	unanswered := !answered && known
	if unanswered && !failed && l.isAlive(called.Service) {
		return // the answer was lost on the way to us, not on the way to the caller
	}
	if unanswered {
		suspect = called
	}
	if failed && answered && known && called.Service != p.Service {
		l.failures.Add(Wire{p.Service, called.Service, !p.Client}, 0, part)
		l.ops[called] += part
		l.ops[suspect] += part
		return
	}
	switch e := &l.evidence[suspect.Service]; {
	case unanswered:
		e.unanswered += part
		if !failed {
			e.unfailed += part
		}
		if l.isAlive(called.Service) {
			if e.lost == nil {
				e.lost = make(map[int32]float64)
			}
			e.lost[p.Service] += part
		}
	case failed:
		e.errors += part
	default:
		e.shape += part
	}
	l.ops[suspect] += part
	l.own[suspect] += part
	if failed || unanswered {
		l.called.of(suspect).failed += part * l.requests
	}
}

// count adds the calls at a site to the operation that their own time or failures belong to, and also to the suspect if
// the suspect emits no spans. The time per call above limit, in ns, counts as excess.
func (l *ledger) count(x *siteTime, suspect history.Callee, limit float64) {
	p := &l.sites[x.number]
	own := history.Callee{Service: p.Service, Op: p.Op}
	if suspect != own && !p.Border {
		l.called.at(x.number, p).add(x, x.mean, l.unit(x.number))
	}
	if suspect.Service == p.Service || l.opaque[suspect.Service] {
		calls := l.called.at(x.number, p)
		if suspect != own {
			calls = l.called.of(suspect)
		}
		calls.add(x, limit, l.unit(x.number))
	}
}

func (c *operationCalls) add(x *siteTime, limit, unit float64) {
	c.calls, c.unit = c.calls+x.calls, max(c.unit, unit)
	c.times(x.young).add(x, limit)
}

func (c *callTimes) add(x *siteTime, limit float64) {
	usual := limit
	if x.before > 0 {
		usual = min(x.before, x.mean)
	}
	c.calls += x.calls
	c.usual += usual * x.onPath * x.calls
	if x.mean > usual && (x.before > 0 || exceeds(x.window, limit)) {
		c.excess += (x.mean - usual) * x.onPath * x.calls
	}
}

// outlying is the number of slices that may be filled by single slow calls: one in each part of a window.
const outlying = history.SteadyParts

// exceeds reports whether the mean time of the calls in c exceeds limit even without the few slices with the most time.
func exceeds(c history.Cells, limit float64) bool {
	byTime := sorting.Sorted(slices.Values(c), func(a, b history.Cell) int { return cmp.Compare(b.Own(), a.Own()) })
	rest := history.Cells(byTime[min(outlying, len(byTime)):])
	calls := rest.Calls()
	return calls > 0 && float64(rest.Own())/float64(calls) > limit
}

// chargeFailures charges the calls that failed although their callees did not: a connection broke, a caller stopped
// waiting, or one end considers the answer a failure. Like wire times, they are attributed to a callee whose callers
// all see such failures, or to a caller that sees them with all of its callees. Other failures are charged to the
// caller, whose span failed. The failed span of a proxy without CLIENT spans counts as its call. numbers and index are
// as in [ledger.rank]. chargeFailures returns the services, by index, with the parts that they share with their
// neighbours.
func (l *ledger) chargeFailures(numbers []int32, index map[int32]int) []Service {
	services := make([]Service, len(numbers))
	if !l.failures.late() {
		return services
	}
	l.failures.Attribute(services, index)
	for i, number := range numbers {
		l.evidence[number].errors += services[i].In + services[i].Out
	}
	for _, x := range l.failures.sorted(index) {
		l.evidence[numbers[x.from]].errors += x.Excess
		services[x.from].share(x.to, x.Excess)
	}
	return services
}

// rank attributes the wire times and returns the suspects in order. It returns all services that emit spans, and the
// other services that have evidence.
func (l *ledger) rank() []Suspect {
	numbers := l.byName()
	index := make(map[int32]int, len(numbers))
	for i, number := range numbers {
		index[number] = i
	}
	failures := l.chargeFailures(numbers, index)
	services := make([]Service, len(numbers))
	for i, number := range numbers {
		e := &l.evidence[number]
		services[i].Suspect = Suspect{
			Service: l.names[number], Soft: e.soft, Opaque: l.opaque[number],
			Own: e.own, Added: e.added, Errors: e.errors, Unanswered: e.unanswered, Silent: e.silent, Shape: e.shape,
			AddedCalls: byTime(e.calls), Unfailed: 2*e.unfailed > e.unanswered,
		}
		services[i].running = l.running
	}
	for i := range l.wholes {
		if i > 0 {
			s := &services[index[int32(i)]]
			s.Whole, s.Young = l.wholes[i].operation(l)
		}
	}
	l.countCalls(services, index)
	l.wire.Attribute(services, index)
	for i, number := range numbers {
		for caller, part := range l.evidence[number].lost {
			services[i].lateFrom(index[caller], part)
		}
		// a service that answers no caller is down, whichever caller waits longest
		if caller := services[i].from(); caller >= 0 && !services[i].Opaque && l.isAlive(number) {
			services[i].From = services[caller].Service
		}
	}
	l.operations(services, index)
	l.share(services, failures, index)
	sorting.SliceStable(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(b.order(), a.order()),
			trace.CompareBools(a.Opaque, b.Opaque), cmp.Compare(b.Soft, a.Soft))
	})
	suspects := make([]Suspect, 0, len(services))
	for i := range services {
		if s := &services[i]; !s.Opaque || s.order() > 0 || len(s.Operations) > 0 || s.Whole.Rise > 0 {
			suspects = append(suspects, s.Suspect)
		}
	}
	return suspects
}

// countCalls sets Calls and Failures of services.
func (l *ledger) countCalls(services []Service, index map[int32]int) {
	for _, w := range l.wire.sorted(index) {
		services[w.to].Calls += w.calls
	}
	for i := range services {
		s := &services[i]
		if s.Calls == 0 || s.Calls > 1 {
			s.Calls = 1
		}
		s.Failures = (s.Errors + s.Unanswered) * l.requests
	}
}

// byName returns the numbers of all services, ordered by name.
func (l *ledger) byName() []int32 {
	numbers := make([]int32, 0, len(l.names))
	for i := 1; i < len(l.names); i++ {
		numbers = append(numbers, int32(i))
	}
	sorting.Slice(numbers, func(a, b int32) int { return ByName(l.table, l.names[a], l.names[b]) })
	return numbers
}

// ByName compares a and b, which are names of services, by their text.
func ByName(t *trace.Table, a, b trace.Symbol) int {
	return cmp.Or(cmp.Compare(t.Text(a), t.Text(b)), cmp.Compare(a, b))
}

// operations sets the operations with evidence of each service. It divides the Out of a service over its operations in
// proportion to the excess of their calls.
func (l *ledger) operations(services []Service, index map[int32]int) {
	total := make(map[int32]float64)
	for _, k := range sorting.Sorted(maps.Keys(l.outExcess), history.Callee.Compare) {
		total[k.Service] += l.outExcess[k]
	}
	for k, excess := range l.outExcess {
		if out := services[index[k.Service]].Out; out > 0 && excess > 0 {
			l.ops[k] += out * excess / total[k.Service]
		}
	}
	for k, score := range l.ops {
		if s := &services[index[k.Service]]; score > 0 {
			s.Operations = append(s.Operations, l.operation(k, score))
		}
	}
	for _, c := range l.called.all {
		k := c.operation
		if c.calls < leastTypical || l.ops[k] > 0 {
			continue
		}
		o := c.describe(0)
		if o.Score = l.risen(&o, c.unit); o.Score > 0 {
			s := &services[index[k.Service]]
			s.Operations = append(s.Operations, o)
		}
	}
	for i := range services {
		sorting.Slice(services[i].Operations, compareOperations)
	}
}

// compareOperations orders the operations of a suspect.
func compareOperations(a, b SuspectOperation) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Op, b.Op))
}

// operation returns k, an operation with evidence, as a suspect operation with score.
func (l *ledger) operation(k history.Callee, score float64) SuspectOperation {
	o := SuspectOperation{Op: k.Op, Score: score}
	if c := l.called.known(k); c != nil {
		o = c.describe(score)
	}
	o.Added = l.adding[k]
	return o
}

// describe returns c as a suspect operation with the given score. It sets no number of calls if most calls are at young
// sites.
func (c *operationCalls) describe(score float64) SuspectOperation {
	o := SuspectOperation{Op: c.operation.Op, Queue: c.queue, Score: score, Stopped: c.stopped}
	if c.known.calls >= c.calls/2 {
		o.set(c, &c.known)
	} else if c.queue { // reports state the times of messages, because their score means little to people
		o.setMeans(&c.young)
	}
	return o
}

// set sets the figures of o about its calls, given their times. It sets the rise only if there are enough calls.
func (o *SuspectOperation) set(c *operationCalls, times *callTimes) {
	o.Calls, o.Failed, o.Answered = max(c.calls, c.failed), c.failed, c.answered
	o.setMeans(times)
	if o.Calls >= leastTypical {
		times.typical.rise().set(o)
	}
}

func (o *SuspectOperation) setMeans(times *callTimes) {
	if n := times.calls; n > 0 {
		o.Excess, o.Usual = times.excess/n, times.usual/n
	}
}

// young returns the operations that have evidence, or typical times that grew, and whose calls are mostly at sites
// without a long enough history. They are ordered by service and operation.
func (l *ledger) young() (all []YoungOperation) {
	for _, c := range l.called.all {
		k := c.operation
		if c.known.calls >= c.calls/2 {
			continue
		}
		o := YoungOperation{
			Service:          l.names[k.Service],
			Before:           c.young.typical.before,
			SuspectOperation: SuspectOperation{Op: k.Op, Score: l.ops[k]},
		}
		o.set(c, &c.young)
		if o.Score == 0 {
			o.Score = l.risen(&o.SuspectOperation, c.unit)
		}
		if o.Score > 0 {
			all = append(all, o)
		}
	}
	sorting.Slice(all, func(a, b YoungOperation) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Op, b.Op))
	})
	return all
}

// share sets the parts of the scores that services share with their neighbours. These parts come from calls between the
// two services, and from own time and changed shapes of operations that call the neighbour, because such operations may
// wait for it without a span.
func (l *ledger) share(services, failures []Service, index map[int32]int) {
	for i := range services {
		for k, part := range failures[i].shared {
			services[i].share(k, part)
		}
	}
	for pair, part := range l.callingParts() {
		services[index[pair.caller]].share(index[pair.called], part)
	}
	for i := range services {
		s := &services[i]
		for k, part := range s.shared {
			s.Shared = append(s.Shared, SharedPart{services[k].Service, part})
		}
		sorting.Slice(s.Shared, func(a, b SharedPart) int { return ByName(l.table, a.Service, b.Service) })
	}
}

// callingParts returns, for each pair of services, the own evidence against the operations of the caller that call the
// other service, directly or through other operations of the caller.
func (l *ledger) callingParts() map[neighbours]float64 {
	x := &l.index.calling
	parts := make(map[neighbours]float64)
	seen, called := make(map[int32]bool), make(map[int32]bool)
	// the order of the sums is fixed
	for _, at := range sorting.Sorted(maps.Keys(l.own), history.Callee.Compare) {
		node, known := x.nodes[at]
		if !known || at.Op == 0 {
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
				if to := l.callee[i].Service; to != 0 && to != at.Service {
					called[to] = true
				}
			}
			left = append(left, x.nested.of(node)...)
		}
		for to := range called {
			parts[neighbours{at.Service, to}] += l.own[at]
		}
	}
	return parts
}

// neighbours holds the numbers of a service and of another one that it calls.
type neighbours struct{ caller, called int32 }
