package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// opens returns for each class of a how many tracepoints in its region could still be tried. What may be executed anywhere may be
// below any function that carries something itself.
func (i *inquiry) opens(a *area) []int {
	counts, floating := make([]int, len(a.classes)), 0
	for k := range a.classes {
		x := &a.classes[k]
		switch {
		case x.known || x.kind == cct.VariablePoint || i.refuses(x.tp) != "":
		case x.floating:
			floating++
		default:
			counts[x.region]++
		}
	}
	least := liveShare * a.classes[a.best()].own
	for k := range a.classes {
		if c := &a.classes[k]; c.known && c.layer == cct.App && c.own >= least {
			counts[k] += floating
		}
	}
	return counts
}

// best returns the known class that carries most itself, of those that may call what nobody places: the functions. A thread that
// waits in the kernel executes nothing meanwhile, and what runtimes call they announce.
func (a *area) best() int32 {
	best := int32(0)
	for k := range a.classes {
		if c := &a.classes[k]; c.known && c.layer == cct.App && c.own > a.classes[best].own {
			best = int32(k)
		}
	}
	return best
}

// knownClass is a known class of an area.
type knownClass struct {
	a *area
	c int32
}

// regions makes the question for the strategy: the regions that may carry the problem, best first, without candidates.
func (i *inquiry) regions() {
	var spots []knownClass
	most := 0.0
	for _, a := range i.searched {
		for k := range a.classes {
			if a.classes[k].known {
				spots = append(spots, knownClass{a, int32(k)})
				most = max(most, a.score*a.classes[k].own)
			}
		}
	}
	share := func(s knownClass) float64 { return s.a.score * s.a.classes[s.c].own }
	slices.SortStableFunc(spots, func(x, y knownClass) int { return cmp.Compare(share(y), share(x)) })
	q := &i.question
	*q = Question{
		Problem: i.p, Tree: i.tree, Requests: finite(i.p.Rate) * i.Epoch.Seconds(), Pairs: i.Pairs[i.p.ID],
		Seed: trace.Mix(i.Seed, trace.Mix(i.v.Problem.Lo, uint64(i.v.Epochs))),
	}
	i.spots = nil
	for _, s := range spots {
		c := &s.a.classes[s.c]
		sd := s.a.score * c.ownSD
		if share(s) < liveShare*most || share(s)+1.96*sd < refutedShare*i.searched[0].score {
			continue
		}
		q.Regions = append(q.Regions, Region{Tracepoint: c.tp, Op: c.op, Share: share(s), SD: sd, Edges: s.a.edges})
		i.spots = append(i.spots, s)
	}
}

// fill fills the regions with their candidates.
func (i *inquiry) fill() {
	size := 0
	for _, a := range i.searched {
		size += len(a.classes)
	}
	q := &i.question
	q.Candidates = make([]Candidate, 0, size)
	for r, s := range i.spots {
		q.Regions[r].From = len(q.Candidates)
		i.region = r
		i.candidates(s.a, s.c)
		q.Regions[r].To = len(q.Candidates)
	}
}

// candidates appends those of the region of class c, in pre-order, and to the best region those that may be executed anywhere.
func (i *inquiry) candidates(a *area, c int32) {
	best := a.best() == c
	i.below(a, c, func(x *class) bool { return !x.floating || best && c == 0 }, -1, 1)
	if best && c != 0 {
		i.below(a, 0, func(x *class) bool { return x.floating }, -1, 1)
	}
}

// below appends the candidates among the unknown classes below class c that are wanted.
func (i *inquiry) below(a *area, c int32, wanted func(*class) bool, parent, depth int) {
	for _, kid := range a.classes[c].kids {
		x := &a.classes[kid]
		if x.known || !wanted(x) {
			continue
		}
		at := i.candidate(x, parent, depth)
		if at < 0 {
			i.below(a, kid, wanted, parent, depth)
			continue
		}
		i.below(a, kid, wanted, at, depth+1)
		i.question.Candidates[at].End = len(i.question.Candidates)
	}
}

// candidate appends x, unless it may not be switched on, and returns its index, or -1.
func (i *inquiry) candidate(x *class, parent, depth int) int {
	q := &i.question
	if why := i.refuses(x.tp); why != "" {
		i.rejected = append(i.rejected, Rejected{x.tp, why})
		return -1
	}
	q.Candidates = append(q.Candidates, Candidate{
		Tracepoint: x.tp, Op: x.op, Context: x.ctx, Node: x.node, Region: i.region, Parent: parent, End: len(q.Candidates) + 1, Depth: depth,
		Layer: x.layer, Kind: x.kind, Mass: x.mass, Hits: x.hits, Inside: x.inside, Loose: x.floating,
	})
	return len(q.Candidates) - 1
}
