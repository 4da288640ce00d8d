// Package callgraph interprets the spans of a closed trace as calls. It determines the caller and the operation of each
// call, its own time, and the calls that it makes. It finds the callers of calls behind a hop without spans and below a
// lost span, too. Packages history and compare count and compare these calls.
package callgraph

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Reader computes the time that each span and each border spends on a path. It reuses its memory for the next path.
type Reader struct {
	Times
	// Off holds the times that the spans off the path would spend on it if nothing ran in parallel. The times of a span
	// are 0 either here or in Times.
	Off Times

	homes     []int32    // by node: the node whose Local includes it
	positions []position // by node
	ops       []trace.Op
}

// Times holds times in ns, by node.
type Times struct {
	Nanos   []int64 // own time
	Borders []int64 // time on the wire, for nodes that [Crosses] accepts
	// Local is the own time of a node and of all INTERNAL spans inside it, set by MeasureLocal. It doesn't depend on
	// the number of INTERNAL spans that a service creates for its work.
	Local []int64
}

// position is the position of a node relative to critical paths.
type position uint8

const (
	apart    position = iota // runs in parallel with spans that take longer
	waited                   // also off the path, but its caller, which is off the path, too, waits for it
	critical                 // on the path
)

// Measure sets Nanos and Borders in r and r.Off. The own time of a call to a missing hop, or of a span around a lost
// call, excludes the time of the spans below, because their own root accounts for it.
func (r *Reader) Measure(p *critpath.Path) {
	for _, t := range []*Times{&r.Times, &r.Off} {
		t.Nanos = scratch.Filled(t.Nanos, len(p.Nodes), 0)
		t.Borders = scratch.Filled(t.Borders, len(p.Nodes), 0)
	}
	r.positions = scratch.Filled(r.positions, len(p.Nodes), apart)
	for i := range p.Roots {
		for _, s := range p.Roots[i].Sections {
			r.share(p, &s)
		}
		for _, v := range p.Roots[i].Overlaps {
			r.Nanos[v.Node] -= int64(v.By)
		}
		for _, node := range p.Roots[i].Critical {
			r.positions[node] = critical
		}
	}
	r.measureBeside(p)
	lost := 0
	for i := range p.Roots {
		switch root := &p.Roots[i]; {
		case root.Gap >= 0:
			for _, t := range []*Times{&r.Times, &r.Off} {
				t.Nanos[root.Gap] = max(0, t.Nanos[root.Gap]-int64(p.Duration(root)))
			}
		case root.Origin == critpath.BelowMissing && lost < maxLost:
			lost++
			r.leave(p, int32(i))
		}
	}
}

// measureBeside fills r.Off. It walks each span off the path as [critpath] walks a root.
func (r *Reader) measureBeside(p *critpath.Path) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if r.positions[i] == critical || n.Root < 0 || n.Anchor != int32(i) {
			continue
		}
		cursor, after := n.End, int32(-1)
		first, last := p.Candidates(int32(i))
		for c := first; c < last; c++ {
			if x := &p.Nodes[c]; x.End <= cursor && x.Start < cursor && x.Start < x.End {
				if r.positions[c] == apart {
					r.positions[c] = waited
				}
				r.Off.share(p, &critpath.Section{Node: int32(i), Before: c, After: after, Start: x.End, End: cursor})
				cursor, after = x.Start, c
			}
		}
		start := min(n.Start, cursor)
		r.Off.share(p, &critpath.Section{Node: int32(i), Before: -1, After: after, Start: start, End: cursor})
	}
}

// maxLost is the maximum number of roots of a trace whose time we subtract from spans of other roots.
const maxLost = 64

// leave subtracts the time of root number root, whose caller was lost, from the own time of the shortest span around
// it.
func (r *Reader) leave(p *critpath.Path, root int32) {
	top, around := &p.Nodes[p.Roots[root].Node], int32(-1)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Root < 0 || n.Root == root || n.Anchor != int32(i) || n.Start > top.Start || top.End > n.End {
			continue
		}
		if around < 0 || cmp.Or(cmp.Compare(n.End-n.Start, p.Nodes[around].End-p.Nodes[around].Start),
			cmp.Compare(n.ID, p.Nodes[around].ID)) < 0 {
			around = int32(i)
		}
	}
	if around < 0 {
		return
	}
	for _, s := range p.Roots[p.Nodes[around].Root].Sections {
		if s.Node == around {
			r.Nanos[around] -= max(0, int64(min(s.End, top.End)-max(s.Start, top.Start)))
		}
	}
	r.Nanos[around] = max(0, r.Nanos[around])
	r.Off.Nanos[around] = max(0, r.Off.Nanos[around]-int64(top.End-top.Start))
}

// Called returns the operation that node i calls; see [critpath.Path.Target]. If the call went through a hop without
// spans, it returns the operation behind the hop, because the time in the hop counts as time on the wire to that
// operation.
func Called(p *critpath.Path, i int32) trace.Op {
	if entry := p.Entry(i); entry >= 0 {
		return p.Span(p.Roots[entry].Node).Op
	}
	return p.Target(i)
}

// Answering returns the index in p.Trace.Spans of the span that answers node i, possibly through a hop without spans,
// or -1 if no span answers.
func Answering(p *critpath.Path, i int32) int32 {
	if entry := p.Entry(i); entry >= 0 {
		return p.Nodes[p.Roots[entry].Node].Span
	}
	return max(-1, p.Nodes[i].Callee)
}

// Reached returns the operation of the first root below node i if i is a call whose answer is missing, and 0 otherwise.
func Reached(p *critpath.Path, i int32) trace.Op {
	if p.Nodes[i].Callee == critpath.CalleeMissing {
		for k := range p.Roots {
			if p.Roots[k].Gap == i {
				return p.Span(p.Roots[k].Node).Op
			}
		}
	}
	return 0
}

// Step returns the step of node i: its operation together with the operation that it called.
func Step(p *critpath.Path, i int32) trace.Op {
	if p.Nodes[i].Callee != critpath.CalleeMissing {
		return p.Nodes[i].Step
	}
	return p.Span(i).Op.To(Called(p, i))
}

// Caller returns the node that called node i, possibly through a hop without spans or a lost span, or -1 if no known
// node called it.
func Caller(p *critpath.Path, i int32) int32 {
	if up := p.Caller(i); up >= 0 {
		return up
	}
	if root := &p.Roots[p.Nodes[i].Root]; root.Node == i {
		return root.Gap
	}
	return -1
}

// MeasureLocal computes r.Local and r.Off.Local from the own times. It relies on callers preceding the nodes that they
// call.
func (r *Reader) MeasureLocal(p *critpath.Path) {
	r.Local = append(r.Local[:0], r.Nanos...)
	r.Off.Local = append(r.Off.Local[:0], r.Off.Nanos...)
	r.homes = scratch.Sized(r.homes, len(p.Nodes))
	for i := range p.Nodes {
		r.homes[i] = int32(i)
		if up := p.Caller(int32(i)); up >= 0 && int(up) < i && within(p.Span(int32(i)), p.Span(up)) {
			r.homes[i] = r.homes[up]
			r.Local[r.homes[i]] += r.Nanos[i]
			if r.homes[i] != up && r.positions[up] == apart {
				r.positions[i] = apart
			}
			if r.positions[i] == waited { // otherwise it runs in parallel with other work of its service
				r.Off.Local[r.homes[i]] += r.Off.Nanos[i]
			}
		}
	}
}

// within reports whether s is an INTERNAL span inside the work of its caller. A CLIENT span contains no work, because
// its time is on the wire.
func within(s, caller *trace.Span) bool {
	return s.Kind == trace.Internal && caller.Service == s.Service && caller.Kind != trace.Client
}

// share adds the time of s to its span or to borders. Time next to a call to another service without a CLIENT span
// can't be distinguished from the time of that call, so it belongs to the border. If it lies between two such calls,
// each gets half of it.
func (t *Times) share(p *critpath.Path, s *critpath.Section) {
	d := int64(s.End - s.Start)
	before, after := s.Before >= 0 && Crosses(p, s.Before), s.After >= 0 && Crosses(p, s.After)
	switch {
	case before && after:
		t.Borders[s.Before] += d / 2
		t.Borders[s.After] += d - d/2
	case before:
		t.Borders[s.Before] += d
	case after:
		t.Borders[s.After] += d
	default:
		t.Nanos[s.Node] += d
	}
}

// Crosses reports whether node i is called by a span of another service that is not a CLIENT span.
func Crosses(p *critpath.Path, i int32) bool {
	up := p.Caller(i)
	if up < 0 {
		return false
	}
	caller := p.Span(up)
	return caller.Kind != trace.Client && caller.Service != p.Span(i).Service
}

// Shapes of successful and of failed calls that make no calls.
const (
	Leaf       uint64 = 1
	FailedLeaf uint64 = 2
)

// Shape returns the shape of node i: a hash of the operations that it calls, the order of magnitude of their counts,
// and whether node i failed.
func (r *Reader) Shape(p *critpath.Path, i int32, failed bool) uint64 {
	first, last := p.Children(i)
	r.ops = r.ops[:0]
	for k := first; k < last; k++ {
		if p.Nodes[k].Anchor == k {
			r.ops = append(r.ops, Step(p, k))
		}
	}
	if p.Nodes[i].Callee == critpath.CalleeMissing {
		r.ops = append(r.ops, Called(p, i)) // a service behind the hop answered it
	}
	slices.Sort(r.ops)
	h := Leaf
	if failed {
		h = FailedLeaf
	}
	for i := 0; i < len(r.ops); {
		first := i
		for i < len(r.ops) && r.ops[i] == r.ops[first] {
			i++
		}
		h = trace.Mix(trace.Mix(h, uint64(r.ops[first])), uint64(bits.Len(uint(i-first))))
	}
	return h
}
