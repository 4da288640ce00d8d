package baselinediff

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// wires holds the excess of time between services: how much later than the history allows, per request, callers got answers from
// callees than these worked on them.
//
// Where such time was lost is not in it: in the caller, which is late to send or to receive, on the way, or in the callee, which
// is late to accept. But what a service does to one it does to all. So they are explained by services, greedily: the service
// that explains most, together with what else speaks against it, takes its part of the excess, then the next.
//
//   - In: to all of its callers a service is late by the same time per call: the lower median of theirs.
//   - Out: a service is late by the same time per call with all of its callees. Of a single one that cannot be said; a callee
//     without excess is imagined beside the real ones, unless all of the caller's wires are borders: then its own time is in
//     them, and it may be slow without being late.
//   - A callee that emits no spans (a database that is named by its callers) is explained like any other, but what it does not
//     explain is its callers' own.
//
// What is explained is the excess that this takes away, minus what it predicts where there is none.
type wires map[wire]*lost

type wire struct {
	from, to int32 // numbers of services
	border   bool  // the caller has no CLIENT spans: its own time is in it
}

// lost is the excess of time of all calls together, and their number, per request.
type lost struct{ excess, calls float64 }

func (w wires) add(x wire, calls, excess float64) {
	l := w[x]
	if l == nil {
		l = &lost{}
		w[x] = l
	}
	l.excess += excess
	l.calls += calls
}

// explanation is what a service explains: the gain, by taking perCall from each call of some wires.
type explanation struct{ gain, perCall float64 }

// explain returns the explanation of the wires, beside imagined ones without an excess.
func explain(wires []*wireTo, imagined int) explanation {
	if len(wires) == 0 {
		return explanation{}
	}
	perCall := make([]float64, imagined, imagined+len(wires))
	for _, l := range wires {
		perCall = append(perCall, l.excess/l.calls)
	}
	slices.Sort(perCall)
	x := explanation{perCall: perCall[(len(perCall)-1)/2]}
	for _, l := range wires {
		want := x.perCall * l.calls
		x.gain += min(l.excess, want) - max(0, want-l.excess)
	}
	x.gain = max(0, x.gain)
	return x
}

func (x explanation) take(wires []*wireTo) {
	for _, l := range wires {
		l.excess -= min(l.excess, x.perCall*l.calls)
	}
}

// service is one that may explain wire times.
type service struct {
	Suspect
	in, out     []*wireTo // from its callers, to its callees
	toOpaque    []*wireTo // to callees that emit no spans
	byIn, byOut explanation
	opaque      bool // emits no spans
	done        bool
}

// wireTo is a wire with the services at its ends, as indices among all.
type wireTo struct {
	*lost
	from, to int
	border   bool
}

// weigh computes what s explains, and its score.
func (s *service) weigh() {
	imagined := 0
	if slices.ContainsFunc(s.out, func(x *wireTo) bool { return !x.border }) {
		imagined = 1
	}
	s.byIn, s.byOut = explain(s.in, 0), explain(s.out, imagined)
	s.In, s.Out = s.byIn.gain, s.byOut.gain
	s.Score = s.Own + s.Shape + s.In + s.Out
	for _, x := range s.toOpaque {
		s.Score += x.excess
	}
}

// settle explains the wire times and returns the services with their scores, in the order given.
func (w wires) settle(services []service, number map[int32]int) {
	all := w.sorted(number)
	for _, x := range all {
		if services[x.to].opaque {
			services[x.from].toOpaque = append(services[x.from].toOpaque, x)
		} else {
			services[x.from].out = append(services[x.from].out, x)
		}
		services[x.to].in = append(services[x.to].in, x)
	}
	for i := range services {
		services[i].weigh()
	}
	for range services {
		best := -1
		for i := range services {
			if s := &services[i]; !s.done && (best < 0 || s.before(&services[best])) {
				best = i
			}
		}
		s := &services[best]
		s.done = true
		in, out := s.byIn, s.byOut
		in.take(s.in)
		out.take(s.out)
		for _, x := range s.toOpaque {
			s.Own += x.excess
			services[x.to].Rest += x.excess
			x.excess = 0
			services[x.to].reweigh()
		}
		for _, x := range s.in {
			services[x.from].reweigh()
		}
		for _, x := range s.out {
			services[x.to].reweigh()
		}
	}
	for _, x := range all {
		services[x.to].Rest += x.excess
	}
	for i := range services {
		services[i].Score += services[i].Rest
	}
}

// reweigh weighs s again after some of its wires were explained, unless it had its turn.
func (s *service) reweigh() {
	if !s.done {
		s.weigh()
	}
}

// sorted returns the wires in the order of their services.
func (w wires) sorted(number map[int32]int) []*wireTo {
	all := make([]*wireTo, 0, len(w))
	for k, l := range w {
		all = append(all, &wireTo{l, number[k.from], number[k.to], k.border})
	}
	slices.SortFunc(all, func(a, b *wireTo) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), trace.CompareBools(a.border, b.border))
	})
	return all
}

// alike is the relative difference up to which two scores may differ by rounding alone.
const alike = 1e-9

// before reports whether s explains more than t. Where one caller and one callee explain the same time, the caller, which is
// known to have spent it, does.
func (s *service) before(t *service) bool {
	switch {
	case s.Score > t.Score*(1+alike):
		return true
	case s.Score < t.Score*(1-alike):
		return false
	case s.opaque != t.opaque:
		return t.opaque
	}
	return s.Out > t.Out*(1+alike)
}
