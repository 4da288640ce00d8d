package compare

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Wires holds the excess of wire time between services, per request. Wire time is the time between a call and its
// answer, without the work of the callee. The excess is the wire time above its fence in the history.
//
// The time may have been lost in the caller, if it sends or receives late; on the way; or in the callee, if it accepts
// late. However, a service affects all of its partners alike, so excess is attributed to services greedily: first to
// the service that explains most, together with the other evidence against it, then to the next.
//
//   - In: a service is late by the same time per call for all of its callers: the lower median over them.
//   - Out: a service is late by the same time per call with all of its callees. A single callee can't show this, so a
//     virtual callee without excess is added to the real ones, unless all of the caller's wires are borders: borders
//     contain own time of the caller, which may be slow without being late. Within one trace, a service often has a
//     single callee. The virtual callee then has the excess that other evidence shows for the service: in its own time,
//     or per call to it.
//   - A callee that emits no spans (a database named by its callers) is treated like any other, but the excess that it
//     does not explain is charged to its callers as own time.
//
// The gain of an explanation is the excess that it removes, minus the excess that it predicts but that did not occur.
type Wires map[Wire]*excessTime

// Wire identifies the calls of one service to another.
type Wire struct {
	From, To int32 // numbers of services
	Border   bool  // the caller has no CLIENT spans: the wire contains its own time
}

// excessTime is the excess time and the number of the calls on a wire, both per request.
type excessTime struct{ Excess, calls float64 }

// Add adds calls and their excess of time, both per request.
func (w Wires) Add(x Wire, calls, excess float64) {
	l := w[x]
	if l == nil {
		l = &excessTime{}
		w[x] = l
	}
	l.Excess += excess
	l.calls += calls
}

// late reports whether any wire has an excess.
func (w Wires) late() bool {
	for _, x := range w {
		if x.Excess > 0 {
			return true
		}
	}
	return false
}

// explanation attributes up to perCall of the excess of each call on some wires to a service. gain is the excess that
// it explains, minus the excess that it predicts wrongly.
type explanation struct{ gain, perCall float64 }

// explain returns the explanation of the wires, together with virtual wires that have the given excess per call.
func explain(wires []*wireTo, virtual ...float64) explanation {
	if len(wires) == 0 {
		return explanation{}
	}
	perCall := slices.Grow(virtual, len(wires))
	for _, l := range wires {
		perCall = append(perCall, l.Excess/l.calls)
	}
	slices.Sort(perCall)
	x := explanation{perCall: perCall[(len(perCall)-1)/2]}
	for _, l := range wires {
		predicted := x.perCall * l.calls
		x.gain += min(l.Excess, predicted) - max(0, predicted-l.Excess)
	}
	x.gain = max(0, x.gain)
	return x
}

// subtract removes the explained excess from the wires. It calls explained with the removed part of each wire.
func (x explanation) subtract(wires []*wireTo, explained func(of *wireTo, part float64)) {
	for _, l := range wires {
		part := min(l.Excess, x.perCall*l.calls)
		l.Excess -= part
		explained(l, part)
	}
}

// Service is a candidate for explaining wire times.
type Service struct {
	Suspect
	in, out     []*wireTo // from callers, to callees
	toOpaque    []*wireTo // to callees without spans
	byIn, byOut explanation
	shared      map[int]float64 // by index of the neighbour: the part of the score that comes from calls between both
	running     bool            // in a running service: changed calls order suspects, but don't add to the score
	late        map[int]float64 // by index of the caller: the part from time, or failures, on the way from it
	Processed   bool
	OneTrace    bool // the virtual callee is as late as the service itself, see [Wires]
}

// lateFrom adds a part of the score that comes from time, or failures, on the way from a caller.
func (s *Service) lateFrom(caller int, part float64) {
	if s.late == nil {
		s.late = make(map[int]float64)
	}
	s.late[caller] += part
}

// nearlyAll is the minimum share of the evidence against a service that must arise on the way from one caller for the
// fault to be located there.
const nearlyAll = 0.9

// from returns the index of the caller if nearly all of the evidence against s arises on the way from one caller, or -1
// otherwise. If several callers qualify, it returns the one with the largest part.
func (s *Service) from() int {
	from, most := -1, 0.0
	for caller, part := range s.late {
		if part >= nearlyAll*(s.Score-s.Shape) && (part > most || part == most && caller < from) {
			from, most = caller, part
		}
	}
	return from
}

// share adds a part of the score that comes from calls between s and a neighbour.
func (s *Service) share(neighbour int, part float64) {
	if part == 0 {
		return
	}
	if s.shared == nil {
		s.shared = make(map[int]float64)
	}
	s.shared[neighbour] += part
}

// wireTo is a wire with the indices of the services at its ends.
type wireTo struct {
	*excessTime
	from, to int
	border   bool
}

// evaluate computes the explanations and the score of s.
func (s *Service) evaluate() {
	s.byIn = explain(s.in)
	var virtual []float64
	if slices.ContainsFunc(s.out, func(x *wireTo) bool { return !x.border }) {
		virtual = []float64{0}
		if s.OneTrace {
			virtual[0] = max(s.Own, s.byIn.perCall)
		}
	}
	s.byOut = explain(s.out, virtual...)
	s.In, s.Out = s.byIn.gain, s.byOut.gain
	s.Score = s.Own + s.Added + s.Errors + s.Unanswered + s.Silent + s.In + s.Out
	if !s.running {
		s.Score += s.Shape
	}
	for _, x := range s.toOpaque {
		s.Score += x.Excess
	}
}

// Attribute attributes the excess of the wires to services and sets their scores. index maps the number of a service to
// its index in services. Services that are already processed explain nothing.
func (w Wires) Attribute(services []Service, index map[int32]int) {
	all := w.sorted(index)
	for _, x := range all {
		if services[x.to].Opaque {
			services[x.from].toOpaque = append(services[x.from].toOpaque, x)
		} else {
			services[x.from].out = append(services[x.from].out, x)
		}
		services[x.to].in = append(services[x.to].in, x)
	}
	var left []*Service // services that may explain something, unless they are processed
	for i := range services {
		s := &services[i]
		if s.evaluate(); !s.Processed && s.hasExcess() {
			left = append(left, s)
		}
	}
	for len(left) > 0 {
		best := 0
		for i, s := range left {
			if s.precedes(left[best]) {
				best = i
			}
		}
		s := left[best]
		left = slices.Delete(left, best, best+1)
		s.Processed = true
		in, out := s.byIn, s.byOut
		in.subtract(s.in, func(x *wireTo, part float64) {
			s.share(x.from, part)
			if !x.border { // otherwise it may be the caller's own time
				s.lateFrom(x.from, part)
			}
		})
		out.subtract(s.out, func(x *wireTo, part float64) { s.share(x.to, part) })
		for _, x := range s.toOpaque {
			s.Own += x.Excess
			s.share(x.to, x.Excess)
			services[x.to].Rest += x.Excess
			x.Excess = 0
			services[x.to].reevaluate()
		}
		for _, x := range s.in {
			services[x.from].reevaluate()
		}
		for _, x := range s.out {
			services[x.to].reevaluate()
		}
	}
	for _, x := range all {
		services[x.to].Rest += x.Excess
		services[x.to].share(x.from, x.Excess)
		if !x.border {
			services[x.to].lateFrom(x.from, x.Excess)
		}
	}
	for i := range services {
		services[i].Score += services[i].Rest
	}
}

// hasExcess reports whether any wire of s has an excess. If not, s explains nothing, now or later, because the excess
// of a wire never grows.
func (s *Service) hasExcess() bool {
	return slices.ContainsFunc([][]*wireTo{s.in, s.out, s.toOpaque}, func(wires []*wireTo) bool {
		return slices.ContainsFunc(wires, func(x *wireTo) bool { return x.Excess > 0 })
	})
}

// reevaluate evaluates s again after some of its wires were explained, unless s is processed.
func (s *Service) reevaluate() {
	if !s.Processed {
		s.evaluate()
	}
}

// sorted returns the wires, ordered by the indices of their services.
func (w Wires) sorted(index map[int32]int) []*wireTo {
	all := make([]*wireTo, 0, len(w))
	for k, l := range w {
		all = append(all, &wireTo{l, index[k.From], index[k.To], k.Border})
	}
	sorting.Slice(all, func(a, b *wireTo) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), trace.CompareBools(a.border, b.border))
	})
	return all
}

// scoreTolerance is the relative difference between two scores that rounding alone may cause.
const scoreTolerance = 1e-9

// order returns the figure that orders suspects: the score plus, for a running service, the changed calls.
func (s *Service) order() float64 {
	if s.running {
		return s.Score + s.Shape
	}
	return s.Score
}

// precedes reports whether s explains more than t. If scores are equal, a service that emits spans precedes one that
// does not; otherwise the service with the larger Out comes first: if a caller and a callee explain the same time, the
// caller comes first, because it is known to have spent it.
func (s *Service) precedes(t *Service) bool {
	switch a, b := s.order(), t.order(); {
	case a > b*(1+scoreTolerance):
		return true
	case a < b*(1-scoreTolerance):
		return false
	case s.Opaque != t.Opaque:
		return t.Opaque
	}
	return s.Out > t.Out*(1+scoreTolerance)
}
