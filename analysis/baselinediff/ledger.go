package baselinediff

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// graph describes the sites and the services of a comparison.
type graph struct {
	table  *trace.Table
	sites  []site         // by number
	names  []trace.Symbol // by number of the service
	opaque []bool         // by number of the service: whether it emits no spans
	callee []callee       // by number of the site: the usual callee of a CLIENT span; service 0: unknown
	behind []callee       // by number of the site, also of borders: see [graph.setBehind]; service 0: none

	calling *calling // of sites; nil: not known yet
}

// setBehind sets the callees of spans that call one other service only, and have no CLIENT spans to show it: those of
// proxies and gateways. Of that service it is the operation that is called most often.
func (g *graph) setBehind(calls func(site int32) uint64) {
	type usual struct {
		callee
		calls  uint64
		others bool // there are callees of several services
	}
	of := make(map[trace.Op]usual) // by operation of the caller
	for i := range g.sites {
		s, called := &g.sites[i], g.callee[i]
		if !s.border || called.service == 0 {
			continue
		}
		n := calls(int32(i))
		u, known := of[s.parent]
		u.others = u.others || known && u.service != called.service
		if !known || cmp.Or(cmp.Compare(n, u.calls), cmp.Compare(u.op, called.op)) > 0 {
			u.callee, u.calls = called, n
		}
		of[s.parent] = u
	}
	g.behind = scratch.Filled(g.behind, len(g.sites), callee{})
	for i := range g.sites {
		caller := g.sites[i].base
		if s := &g.sites[i]; s.border {
			caller = s.parent
		} else if s.client {
			continue
		}
		if u := of[caller]; !u.others {
			g.behind[i] = u.callee
		}
	}
}

// ledger collects the evidence of a window, site by site, and ranks the services.
type ledger struct {
	graph
	requests  float64 // in the window
	duration  float64 // mean duration of a request of the history in ns, at least 1
	fence     func(values []float64) (median, limit float64)
	evidence  []evidence         // by number of the service
	ops       map[callee]float64 // evidence against each operation
	own       map[callee]float64 // the part of it that is not on the wire: own time and changed shapes
	outExcess map[callee]float64 // wire excess of the calls that each operation makes
	wire      wires
	failures  wires // failed calls whose callee answered without a failure
	called    map[callee]*operationCalls
	wholes    []wholeTimes // by number of the service; nil: not known
}

// operationCalls sums up the calls of an operation in the window: see [SuspectOperation].
type operationCalls struct {
	calls, failed float64
	known, young  callTimes // at sites with a long enough history, and at others
}

// callTimes sums up the own times of calls.
type callTimes struct {
	calls         float64
	excess, usual float64 // ns
	typical       typicalTimes
}

// times returns the times of calls, at sites with a short history or at others.
func (c *operationCalls) times(young bool) *callTimes {
	if young {
		return &c.young
	}
	return &c.known
}

// evidence is the evidence against a service.
type evidence struct{ own, errors, unanswered, silent, shape, soft float64 }

func newLedger(g graph, requests, duration float64, fence func([]float64) (median, limit float64)) *ledger {
	return &ledger{
		graph: g, requests: requests, duration: duration, fence: fence, evidence: make([]evidence, len(g.names)),
		ops: make(map[callee]float64), own: make(map[callee]float64), outExcess: make(map[callee]float64), wire: make(wires), failures: make(wires),
		called: make(map[callee]*operationCalls),
	}
}

// siteTime is the own time of the calls at a site.
type siteTime struct {
	number int32
	calls  float64   // in the window
	mean   float64   // in the window, in ns
	usual  float64   // the least mean that is no excess, in ns
	means  []float64 // in the pieces of the history, in ns; none: the mean is within their fence
	leaves bool      // too many calls of the window made no calls
	young  bool      // the site has not been known for long enough to judge its calls by themselves
	window cells     // of the window: the excess of an operation must not come from few of them
	before float64   // mean of the history in ns, from which the excess of an operation is measured; 0: from the limit
}

// chargeTime charges the excess of own time at a site. It reorders x.means.
func (l *ledger) chargeTime(x *siteTime) {
	excess, soft, limit := 0.0, 0.0, x.mean
	if len(x.means) > 0 && !atMost(x.mean, x.means, middle) {
		median := 0.0
		median, limit = l.fence(x.means)
		limit = max(limit, x.usual) // the slow calls of the history may be in few pieces
		excess = max(0, x.mean-limit) * x.calls / l.requests / l.duration
		if x.mean > median {
			soft = (x.mean - median) / max(limit-median, 1)
		}
	}
	p := &l.sites[x.number]
	suspect := callee{p.service, p.op}
	called, border := l.callee[x.number], p.border
	if x.leaves && !p.client {
		called, border = l.behind[x.number], true // it waited for a callee whose span is missing
	}
	if called.service != 0 {
		suspect = called
	}
	e := &l.evidence[suspect.service]
	e.soft = max(e.soft, soft)
	wired := suspect.service != p.service
	l.count(x, suspect, min(limit, x.mean))
	if wired {
		w := wire{p.service, suspect.service, border}
		l.wire.add(w, x.calls/l.requests, excess)
		if !border || l.behind[x.number].service != 0 { // else its failures do not show which of its calls failed
			l.failures.add(w, x.calls/l.requests, 0)
		}
	}
	if excess == 0 {
		return
	}
	l.ops[suspect] += excess
	if wired {
		l.outExcess[callee{p.service, cmp.Or(p.parent, p.op)}] += excess
	} else {
		e.own += excess
		l.own[suspect] += excess
	}
}

// chargeShape charges part of a request to a site, for a changed shape. A call without an answer is charged to the
// callee: a CLIENT span, or a span that failed before anything answered the only service that it calls.
func (l *ledger) chargeShape(number int32, failed, answered bool, part float64) {
	p := &l.sites[number]
	suspect := callee{p.service, p.op}
	called := l.callee[number]
	if !p.client {
		called = l.behind[number]
	}
	known := called.service != 0 && !l.opaque[called.service]
	unanswered := !answered && known
	if unanswered {
		suspect = called
	}
	if failed && answered && known && called.service != p.service {
		l.failures.add(wire{p.service, called.service, !p.client}, 0, part)
		l.ops[called] += part
		l.ops[suspect] += part
		return
	}
	switch e := &l.evidence[suspect.service]; {
	case unanswered:
		e.unanswered += part
	case failed:
		e.errors += part
	default:
		e.shape += part
	}
	l.ops[suspect] += part
	l.own[suspect] += part
	if failed || unanswered {
		l.callsOf(suspect).failed += part * l.requests
	}
}

// callsOf returns the calls of an operation.
func (l *ledger) callsOf(of callee) *operationCalls {
	c := l.called[of]
	if c == nil {
		c = &operationCalls{}
		l.called[of] = c
	}
	return c
}

// count counts the calls at a site for its operation, whose own time they are or whose failures, and for the suspect if
// that emits no spans. limit is the time of a call in ns above which it is excess.
func (l *ledger) count(x *siteTime, suspect callee, limit float64) {
	p := &l.sites[x.number]
	own := callee{p.service, p.op}
	if suspect != own && !p.border {
		l.callsOf(own).add(x, x.mean)
	}
	if suspect.service == p.service || l.opaque[suspect.service] {
		l.callsOf(suspect).add(x, limit)
	}
}

func (c *operationCalls) add(x *siteTime, limit float64) {
	c.calls += x.calls
	c.times(x.young).add(x, limit)
}

func (c *callTimes) add(x *siteTime, limit float64) {
	usual := limit
	if x.before > 0 {
		usual = min(x.before, x.mean)
	}
	c.calls += x.calls
	c.usual += usual * x.calls
	if x.mean > usual && (x.before > 0 || x.window.exceeds(limit)) {
		c.excess += (x.mean - usual) * x.calls
	}
}

// outlying is the number of slices whose time may be that of single slow calls: one in each part of a window.
const outlying = steadyParts

// exceeds reports whether the mean time of calls exceeds a limit in most slices, not only with the few that take
// longest.
func (c cells) exceeds(limit float64) bool {
	byTime := slices.SortedFunc(slices.Values(c), func(a, b cell) int { return cmp.Compare(b.nanos, a.nanos) })
	rest := cells(byTime[min(outlying, len(byTime)):])
	calls := rest.calls()
	return calls > 0 && float64(rest.time())/float64(calls) > limit
}

// chargeFailures charges the calls that failed although their callees did not: a connection broke, a caller did not
// wait any longer, or one end takes the answer for a failure. Like wire times they are attributed to a callee whose
// callers all see such failures, or to a caller that sees them with all of its callees. Others count against the
// caller, whose span failed. The failed span of a proxy without CLIENT spans counts as its call. numbers and index are
// those of [ledger.rank]. It returns the services with the parts that they share with their neighbours.
func (l *ledger) chargeFailures(numbers []int32, index map[int32]int) []service {
	services := make([]service, len(numbers))
	if !l.failures.late() {
		return services
	}
	l.failures.attribute(services, index)
	for i, number := range numbers {
		l.evidence[number].errors += services[i].In + services[i].Out
	}
	for _, x := range l.failures.sorted(index) {
		l.evidence[numbers[x.from]].errors += x.excess
		services[x.from].share(x.to, x.excess)
	}
	return services
}

// rank attributes the wire times and orders the services.
func (l *ledger) rank() []Suspect {
	numbers := l.byName()
	index := make(map[int32]int, len(numbers))
	for i, number := range numbers {
		index[number] = i
	}
	failures := l.chargeFailures(numbers, index)
	services := make([]service, len(numbers))
	for i, number := range numbers {
		e := &l.evidence[number]
		services[i].Suspect = Suspect{
			Service: l.names[number], Soft: e.soft, Opaque: l.opaque[number],
			Own: e.own, Errors: e.errors, Unanswered: e.unanswered, Silent: e.silent, Shape: e.shape,
		}
	}
	for i := range l.wholes {
		if i > 0 {
			s := &services[index[int32(i)]]
			s.Whole, s.Young = l.wholes[i].operation(l)
		}
	}
	l.countCalls(services, index)
	l.wire.attribute(services, index)
	l.operations(services, index)
	l.share(services, failures, index)
	slices.SortStableFunc(services, func(a, b service) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), trace.CompareBools(a.Opaque, b.Opaque), cmp.Compare(b.Soft, a.Soft))
	})
	suspects := make([]Suspect, 0, len(services))
	for i := range services {
		if s := &services[i]; !s.Opaque || s.Score > 0 || len(s.Operations) > 0 || s.Whole.Rise > 0 {
			suspects = append(suspects, s.Suspect)
		}
	}
	return suspects
}

// countCalls sets the numbers of calls to the services, and of their failures.
func (l *ledger) countCalls(services []service, index map[int32]int) {
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

// byName returns the numbers of all services in the order of their names.
func (l *ledger) byName() []int32 {
	numbers := make([]int32, 0, len(l.names))
	for i := 1; i < len(l.names); i++ {
		numbers = append(numbers, int32(i))
	}
	slices.SortFunc(numbers, func(a, b int32) int { return compareNames(l.table, l.names[a], l.names[b]) })
	return numbers
}

// compareNames orders names of services by their text.
func compareNames(t *trace.Table, a, b trace.Symbol) int {
	return cmp.Or(cmp.Compare(t.Text(a), t.Text(b)), cmp.Compare(a, b))
}

// operations fills in the operations of services with evidence. The Out of a service is divided over its operations in
// proportion to the excess of their calls.
func (l *ledger) operations(services []service, index map[int32]int) {
	total := make(map[int32]float64)
	for _, k := range slices.SortedFunc(maps.Keys(l.outExcess), callee.compare) {
		total[k.service] += l.outExcess[k]
	}
	for k, excess := range l.outExcess {
		if out := services[index[k.service]].Out; out > 0 && excess > 0 {
			l.ops[k] += out * excess / total[k.service]
		}
	}
	for k, score := range l.ops {
		if s := &services[index[k.service]]; score > 0 {
			s.Operations = append(s.Operations, l.operation(k, score))
		}
	}
	for k, c := range l.called {
		if l.ops[k] > 0 || c.calls < leastTypical {
			continue
		}
		o := l.operation(k, 0)
		if o.Score = l.risen(&o); o.Score > 0 {
			s := &services[index[k.service]]
			s.Operations = append(s.Operations, o)
		}
	}
	for i := range services {
		slices.SortFunc(services[i].Operations, func(a, b SuspectOperation) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Op, b.Op))
		})
	}
}

// operation describes an operation with evidence.
func (l *ledger) operation(k callee, score float64) SuspectOperation {
	o := SuspectOperation{Op: k.op, Score: score}
	if c := l.called[k]; c != nil && c.known.calls >= c.calls/2 {
		o.set(c, &c.known)
	}
	return o
}

// set sets the numbers of the calls of o, and the means of their times.
func (o *SuspectOperation) set(c *operationCalls, times *callTimes) {
	o.Calls, o.Failed = max(c.calls, c.failed), c.failed
	if n := times.calls; n > 0 {
		o.Excess, o.Usual = times.excess/n, times.usual/n
	}
	if o.Calls >= leastTypical {
		times.typical.rise().set(o)
	}
}

// young returns the operations with evidence, or typical times that grew, whose calls are mostly at sites without a
// long enough history, ordered by service and operation.
func (l *ledger) young() (all []YoungOperation) {
	for k, c := range l.called {
		if c.known.calls >= c.calls/2 {
			continue
		}
		o := YoungOperation{Service: l.names[k.service], SuspectOperation: SuspectOperation{Op: k.op, Score: l.ops[k]}}
		if o.set(c, &c.young); o.Score > 0 || o.Rise > 0 {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b YoungOperation) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Op, b.Op))
	})
	return all
}

// share sets the parts of the scores that services share with their neighbours: those of calls between both, and the
// own time and changed shapes of operations that call the neighbour, which may wait for it without a span.
func (l *ledger) share(services, failures []service, index map[int32]int) {
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
		slices.SortFunc(s.Shared, func(a, b SharedPart) int { return compareNames(l.table, a.Service, b.Service) })
	}
}
