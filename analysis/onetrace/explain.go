package onetrace

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Explanation describes how one trace differs from normal traces.
type Explanation struct {
	// Duration is the duration of the primary root. Usual is the median duration of such requests in normal traces, and
	// requests that take longer than Limit are outliers. All are in ns. Usual and Limit are NaN if no normal trace has
	// a request of this type.
	Duration, Usual, Limit float64
	Suspects               []CallSuspect // ranked
}

// Known reports whether the normal traces contain requests of this type.
func (e *Explanation) Known() bool { return !math.IsNaN(e.Usual) }

// Excess returns Duration − Usual in ns. It is negative if the request was faster, and NaN if its type is unknown.
func (e *Explanation) Excess() float64 { return e.Duration - e.Usual }

// CallSuspect is a step of one trace that differs from normal traces. Calls of one step that differ in the same way
// form one suspect.
type CallSuspect struct {
	Service trace.Symbol
	Op      trace.Op // a step, or the caller's step if only the name of the service is known
	Reason  Reason
	Part    Part // of a slow step
	// Excess is the critical-path time beyond the usual time, in ns. For a new step, it is the time of the calls
	// including everything below them. It is 0 for a failed or missing step.
	Excess float64
	// Score is the evidence in ns, which determines the rank. For a slow step, it is the time above the fence; for the
	// other reasons, it is the usual duration of the request times the certainty. The first suspect of a service has
	// the evidence against the whole service.
	Score float64
	Calls int // number of calls that differ, at least 1
	// Node is the node in the path, and Span the span, of the call with the most evidence. If the call is missing, they
	// identify its caller.
	Node int32
	Span trace.SpanID
	// Missing lists the steps that the step Caller usually calls but did not: Op and others. It is set for the reason
	// Missing. Missing and Caller are empty if the callee, Op, did not answer. If normal calls continue in different
	// ways, or in other services, Op is the caller.
	Missing []trace.Op
	Caller  trace.Op
	// Unanswered means that Node called the callee, which has no span.
	Unanswered bool

	most float64 // evidence of Node
}

// Reason is a way to differ from normal traces.
type Reason string

// The reasons, as named in JSON.
const (
	Slow    Reason = "slow"    // takes longer than usual
	Failed  Reason = "failed"  // fails, although such calls usually do not
	Missing Reason = "missing" // does not make the usual calls, or does not answer
	New     Reason = "new"     // does not occur in any normal trace
)

// Part is the part of a slow step that takes longer.
type Part string

// The parts, as named in JSON.
const (
	OwnPart   Part = "own"   // own time
	InPart    Part = "in"    // time on the wire to the service, or queued there
	OutPart   Part = "out"   // time on the wire from the service
	CallsPart Part = "calls" // more calls than usual
)

// Thresholds of evidence.
const (
	// leastExcess is the minimum excess of a slow step, as a share of the duration. Without a smaller excess, the
	// request would take about as long.
	leastExcess = 0.01
	// leastCertainty is the minimum certainty of a failed, missing or new step.
	leastCertainty = 0.1
)

// Explain returns the differences between the trace of p and the normal traces, which must have been added before. It
// compares each call with the calls at its site. A trace without a usable root has no suspects.
//
//  1. Slow. The excess of a call is its own time on the critical path beyond the median of its site, if the own time is
//     above the fence. The own time of a CLIENT span and of a border is time on the wire to the callee.
//  2. Repeated. A caller that makes more calls to a site than the fence allows is charged for the time of the
//     additional calls.
//  3. Failed, missing, new. See [explaining.structure].
//  4. Times on wires are attributed to services; see [compare.Wires].
//  5. Suspects are ranked by their evidence, except that the first suspect of a service is ranked by the evidence
//     against the whole service. A process that is short of CPU is a little late in many places, and each delay may be
//     less than the variation of an unrelated call.
//
// The result is valid until p is overwritten. Explain takes time linear in the size of the trace, except for calls with
// unusual shapes: it compares these with all shapes of their sites.
func (f *Profile) Explain(p *critpath.Path) Explanation {
	e := Explanation{Usual: math.NaN(), Limit: math.NaN()}
	calls := f.measure(p)
	if calls == nil {
		return e
	}
	f.resolveNames()
	e.Duration = float64(f.rec.Traces[0].Duration)
	x := explaining{
		Profile: f, path: p, calls: calls, unit: max(1, e.Duration),
		suspects: make(map[suspectKey]*CallSuspect), evidence: make(map[int32]float64), wires: make(compare.Wires),
	}
	if d := f.durations(); d != nil && !x.newType() {
		e.Usual, e.Limit = d.usual()
		x.unit = max(1, e.Usual)
	}
	x.addUp()
	x.findUnanswered()
	x.slow()
	x.structure(e.Known())
	x.attributeWires()
	e.Suspects = x.rank(leastExcess*e.Duration, leastCertainty*x.unit)
	return e
}

// explaining is the state of one call of Explain.
type explaining struct {
	*Profile

	path  *critpath.Path
	calls []compare.Call
	unit  float64 // evidence of a request with a changed shape, in ns: the usual duration of the request

	inclusive  []float64    // by call: critical-path time of the call and of all calls below it
	unanswered []unanswered // by call

	suspects map[suspectKey]*CallSuspect
	evidence map[int32]float64 // by service
	wires    compare.Wires
	raised   []raisedWire
}

// suspectKey identifies a suspect.
type suspectKey struct {
	service int32
	op      trace.Op
	reason  Reason
	part    Part
}

// raisedWire is a call whose time on the wire is above the fence.
type raisedWire struct {
	compare.Wire
	caller         trace.Op // the calling step
	called         trace.Op // 0 if unknown
	node           int32
	excess, beyond float64
}

// charge adds a call at node, with its excess and score, to the suspect with key k, and returns the suspect.
func (x *explaining) charge(k suspectKey, node int32, excess, score float64) *CallSuspect {
	s := x.suspects[k]
	if s == nil {
		s = &CallSuspect{Service: x.rec.Names[k.service], Op: k.op, Reason: k.reason, Part: k.part}
		x.suspects[k] = s
	}
	if s.Calls == 0 || score > s.most {
		s.Node, s.Span, s.most = node, x.path.Nodes[node].ID, score
	}
	s.Calls++
	s.Excess += excess
	s.Score += score
	return s
}

// addUp fills x.inclusive.
func (x *explaining) addUp() {
	x.inclusive = make([]float64, len(x.calls))
	for i, c := range slices.Backward(x.calls) {
		x.inclusive[i] += float64(c.Nanos)
		up := c.Parent
		if x.isBorder(i) {
			up = int32(i - 1) // the call that it belongs to
		}
		if up >= 0 {
			x.inclusive[up] += x.inclusive[i]
		}
	}
}

// slow charges own times above the fence and additional calls, and collects the wires.
func (x *explaining) slow() {
	for i := range x.calls {
		c := &x.calls[i]
		if c.Site == history.Overflow {
			continue
		}
		x.repeated(i)
		excess, beyond := x.ownTimes(c.Site, x.below[i].sites, x.unanswered[i].certainty > 0).excess(float64(c.Nanos))
		at := &x.rec.Sites[c.Site]
		called := x.calleeOf(i)
		if called.Service == 0 || called.Service == at.Service {
			if beyond > 0 {
				x.charge(suspectKey{at.Service, at.Op, Slow, OwnPart}, x.nodes[i], excess, beyond)
				x.evidence[at.Service] += beyond
			}
			continue
		}
		w := compare.Wire{From: at.Service, To: called.Service, Border: at.Border}
		x.wires.Add(w, 1, beyond)
		if beyond > 0 {
			caller := at.Op
			if at.Border {
				caller = at.Parent
			}
			x.raised = append(x.raised, raisedWire{w, caller, called.Op, x.nodes[i], excess, beyond})
		}
	}
}

// repeated charges call i for the calls that it makes more often than normal calls of the same shape.
func (x *explaining) repeated(i int) {
	s := x.known(x.calls[i].Site)
	if s == nil {
		return
	}
	shape := s.shapes[shapeHash(x.below[i].sites)]
	if shape == nil || shape.calls < minShapeHistory {
		return
	}
	caller := &x.rec.Sites[x.calls[i].Site]
	for k, site := range shape.sites {
		group := x.below[i].group(k)
		additional, beyond := shape.repeats[k].excess(float64(len(group)))
		if beyond <= 0 {
			continue
		}
		each := 0.0
		for _, call := range group {
			each += x.inclusive[call] / float64(len(group))
		}
		op := caller.Op
		if called := &x.rec.Sites[site]; called.Service == caller.Service {
			op = called.Op
		}
		x.charge(suspectKey{caller.Service, op, Slow, CallsPart},
			x.nodes[group[0]], each*additional, each*beyond).Calls += len(group) - 1
		x.evidence[caller.Service] += each * beyond
	}
}

// calleeOf returns the callee of call i, which is a CLIENT span or a border: the callee that answered, or else the
// usual one. Its service is 0 if unknown. Its Op is 0 if only attributes name the service.
func (x *explaining) calleeOf(i int) history.Callee {
	switch c := &x.calls[i]; {
	case x.unanswered[i].callee.Service != 0:
		return x.unanswered[i].callee
	case c.Callee != 0:
		return x.resolved(x.rec.Callees[c.Callee])
	default:
		return x.usualCallee(c.Site)
	}
}

// maxWireServices is the maximum number of services that wires are attributed to, because attribution takes time
// quadratic in that number.
const maxWireServices = 128

// attributeWires charges the raised wires, and adds them to the evidence. All services without a raised wire count as a
// single service, number 0, which is never late. Raised wires to callees beyond maxWireServices are charged to these
// callees.
func (x *explaining) attributeWires() {
	if len(x.raised) == 0 {
		return
	}
	sorting.SliceStable(x.raised, func(a, b raisedWire) int { return cmp.Compare(b.beyond, a.beyond) })
	taking := make(map[int32]bool)
	for i := 0; i < len(x.raised) && len(taking)+2 <= maxWireServices; i++ {
		taking[x.raised[i].From], taking[x.raised[i].To] = true, true
	}
	services, index := make([]compare.Service, 1, len(taking)+1), make(map[int32]int, len(taking))
	services[0].Processed = true
	for _, number := range sorting.Sorted(maps.Keys(taking), func(a, b int32) int {
		return compare.ByName(x.rec.Table, x.rec.Names[a], x.rec.Names[b])
	}) {
		index[number] = len(services)
		services = append(services, compare.Service{
			Suspect:  compare.Suspect{Opaque: x.names.Opaque[number], Own: x.evidence[number]},
			OneTrace: true,
		})
	}
	for w, t := range x.wires {
		// Number 0 does not stand for services without spans, and wires within it matter to no other service.
		if t.Excess == 0 && x.names.Opaque[w.To] || !taking[w.From] && !taking[w.To] {
			delete(x.wires, w)
		}
	}
	x.wires.Attribute(services, index)
	for number, i := range index {
		s := &services[i]
		x.evidence[number] = s.Own + s.In + s.Out
		if !s.Opaque {
			x.evidence[number] += s.Rest
		}
	}
	x.chargeWires(services, index)
}

// chargeWires charges the steps at the ends of raised wires, in proportion to the excess of each wire.
func (x *explaining) chargeWires(services []compare.Service, index map[int32]int) {
	in, out := make(map[int32]float64), make(map[int32]float64)
	for _, w := range x.raised {
		in[w.To] += w.beyond
		out[w.From] += w.beyond
	}
	for _, w := range x.raised {
		charge := func(k suspectKey, share float64) {
			if share > 0 {
				x.charge(k, w.node, w.excess*share, w.beyond*share)
			}
		}
		called := suspectKey{w.To, cmp.Or(w.called, w.caller), Slow, InPart}
		to, from := &services[index[w.To]], &services[index[w.From]]
		switch {
		case index[w.To] == 0:
			charge(called, 1)
			x.evidence[w.To] += w.beyond
		case to.Opaque:
			charge(called, to.In/in[w.To])
			charge(suspectKey{w.From, w.caller, Slow, OwnPart}, to.Rest/in[w.To])
		default:
			charge(called, (to.In+to.Rest)/in[w.To])
		}
		if index[w.From] > 0 {
			charge(suspectKey{w.From, w.caller, Slow, OutPart}, from.Out/out[w.From])
		}
	}
}

// rank returns the suspects in order. It leaves out slow suspects below leastExcess, and other suspects below
// leastScore, both in ns.
func (x *explaining) rank(leastExcess, leastScore float64) []CallSuspect {
	all := make([]CallSuspect, 0, len(x.suspects))
	for _, s := range x.suspects {
		all = append(all, *s)
	}
	sorting.SliceStable(all, x.compare)
	first := make(map[trace.Symbol]bool)
	for i := range all {
		if s := &all[i]; !first[s.Service] {
			first[s.Service] = true
			s.Score = max(s.Score, x.evidence[x.rec.ServiceNumbers[s.Service]])
		}
	}
	sorting.SliceStable(all, x.compare)
	return slices.DeleteFunc(all, func(s CallSuspect) bool {
		if s.Reason == Slow {
			return max(s.Excess, s.Score) < leastExcess
		}
		return s.Score < leastScore
	})
}

// compare orders suspects by decreasing evidence. If the evidence is equal, the earlier call comes first, because it
// may be the cause of the later call.
func (x *explaining) compare(a, b CallSuspect) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(x.path.Nodes[a.Node].Start, x.path.Nodes[b.Node].Start),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Op, b.Op),
		cmp.Compare(a.Part, b.Part), cmp.Compare(a.Service, b.Service))
}
