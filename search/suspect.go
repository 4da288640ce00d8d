package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the verdict about suspects.
const (
	keptShare  = 0.8 // fraction of the leading operations' share that the located suspects must carry
	maxLocated = 3   // maximum number of suspects that are located together
)

// ranking holds the suspects of an investigation and the scopes that were searched for them.
type ranking struct {
	scopes   []*operationScope // the leading one first; never empty
	suspects []Suspect         // best first; never empty
}

// suspectsOf returns the locations that may be the cause, best first. These are the known locations of the searched
// operations by their own share, summed over the contexts of one tracepoint or operation, and the operations in rest.
// open counts the candidates below each location of a scope.
func suspectsOf(searched, rest []*operationScope, open func(*operationScope) []int) []Suspect {
	type key struct {
		op trace.Op
		tp trace.Symbol
	}
	at := make(map[key]int)
	var list []Suspect
	add := func(s Suspect) {
		k := key{s.Op, s.Tracepoint}
		i, ok := at[k]
		if !ok {
			at[k] = len(list)
			list = append(list, s)
			return
		}
		list[i].merge(s)
	}
	for _, o := range searched {
		counts := open(o)
		for i := range o.locations {
			if l := &o.locations[i]; l.known && (l.share != 0 || i == 0) {
				add(o.suspect(int32(i), counts[i]))
			}
		}
	}
	for _, o := range rest {
		add(Suspect{
			Op:        o.op,
			Context:   o.edges[0].Context,
			Share:     o.score,
			Low:       o.score,
			High:      o.score,
			Inclusive: o.score,
		})
	}
	sorting.SliceStable(list, func(a, b Suspect) int { return cmp.Compare(b.Share, a.Share) })
	return list
}

func (o *operationScope) suspect(i int32, open int) Suspect {
	l := &o.locations[i]
	half := 1.96 * l.ownSD
	return Suspect{
		Tracepoint: l.tp, Op: l.op, Context: l.ctx, Share: o.score * l.own, Low: o.score * (l.own - half),
		High: o.score * (l.own + half), Inclusive: o.score * l.share, Requests: uint64(l.requests), Open: open,
	}
}

// merge adds t, the same suspect in another context, to s. It keeps the context with the larger share.
func (s *Suspect) merge(t Suspect) {
	if t.Share > s.Share {
		s.Context = t.Context
	}
	half := math.Hypot(s.High-s.Share, t.High-t.Share)
	s.Share += t.Share
	s.Low, s.High = s.Share-half, s.Share+half
	s.Inclusive += t.Inclusive
	s.Requests = max(s.Requests, t.Requests)
	s.Open += t.Open
}

// outstanding returns the number of first suspects that are needed to keep keptShare of the leading operations' share,
// at most [maxLocated]. The last of these suspects must clearly exceed the next one. If closed is set, they must also
// have no candidates below them. outstanding returns 0 if these conditions don't hold.
func (r ranking) outstanding(closed bool) int {
	total := 0.0
	for _, o := range r.scopes {
		if o.score >= r.scopes[0].score/2 {
			total += o.score
		}
	}
	sum := 0.0
	for k := range r.suspects {
		s := &r.suspects[k]
		sum += s.Share
		if k >= maxLocated || closed && s.Open > 0 {
			return 0
		}
		if sum >= keptShare*total {
			if k+1 < len(r.suspects) && s.Low <= r.suspects[k+1].Share {
				return 0
			}
			return k + 1
		}
	}
	return 0
}

// rivals returns the tracepoints of the suspects that stand out only together, or nil if one stands out alone or no
// suspect does. Ranking them takes more requests than distinguishing them from the others.
func (r ranking) rivals() []trace.Symbol {
	n := r.outstanding(false)
	if n < 2 {
		return nil
	}
	list := make([]trace.Symbol, n)
	for k := range list {
		list[k] = r.suspects[k].Tracepoint
	}
	return list
}

// undivided reports whether the first suspect is an operation without any known location inside, so no tracepoint has
// divided it.
func (r ranking) undivided() bool {
	top := &r.suspects[0]
	for _, o := range r.scopes {
		if top.Tracepoint == 0 && o.op == top.Op {
			return !slices.ContainsFunc(o.locations[1:], func(l location) bool { return l.known })
		}
	}
	return top.Tracepoint == 0
}

// missing returns the operations of the first suspects, at most maxLocated, that carry at least leastShare of the
// problem.
func (r ranking) missing() []trace.Op {
	var ops []trace.Op
	for _, s := range r.suspects[:min(len(r.suspects), maxLocated)] {
		if s.Op != 0 && s.Share >= leastShare {
			ops = append(ops, s.Op)
		}
	}
	return ops
}
