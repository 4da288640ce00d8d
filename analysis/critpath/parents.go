package critpath

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// parents finds the parent and the caller of every span. The caller of a tracepoint span is its parent; the caller of a
// baseline span is its nearest baseline ancestor.
type parents struct {
	caller []int32 // by span: its caller, or the reason why it has no caller
	parent []int32 // by span: its parent, or the reason why it has no parent; empty if equal to caller

	orphans    int   // spans whose parent is missing
	lastOrphan int32 // the last of them, or -1
	cycles     int   // cycles broken

	spans []trace.Span
	ids   *spanIDs

	anchors []int32 // scratch, by span: nearest baseline ancestor of tracepoint spans; see anchor
	climbed []int32 // scratch of anchor
	climbs  []int32 // scratch of breakCycles
}

// Reasons why a span has no parent or caller.
const (
	noParent int32 = -1 - iota // it was sent without a parent
	missing                    // the parent did not arrive
	broken                     // it was on a cycle of parents
	dropped                    // the span itself was dropped as a copy
)

// find finds the parents and callers of spans.
func (p *parents) find(spans []trace.Span, ids *spanIDs) {
	p.spans, p.ids = spans, ids
	p.orphans, p.lastOrphan, p.cycles = 0, -1, 0
	p.caller, p.parent = scratch.Sized(p.caller, len(spans)), p.parent[:0]
	caller, tracepoints := p.caller, false
	for i := range caller {
		s := &spans[i]
		tracepoints = tracepoints || s.Tracepoint != 0
		parent := ids.parent(int32(i), s)
		if parent == missing {
			p.orphans++
			p.lastOrphan = int32(i)
		}
		caller[i] = parent
	}
	if tracepoints {
		p.parent = append(p.parent, p.caller...)
		p.findCallers()
	}
}

// tracepoints reports whether there are tracepoint spans.
func (p *parents) tracepoints() bool { return len(p.parent) > 0 }

// findCallers replaces the parents of baseline spans in p.caller with their nearest baseline ancestors.
func (p *parents) findCallers() {
	p.anchors = scratch.Filled(p.anchors, len(p.spans), unknown)
	for i, parent := range p.parent {
		if parent >= 0 && p.spans[i].Tracepoint == 0 {
			p.caller[i] = p.anchor(parent)
		}
	}
}

// States of a tracepoint span in parents.anchors before its anchor is known.
const (
	unknown int32 = -100 - iota
	climbing
)

// anchor returns the nearest baseline span at or above span i, or the reason why there is no such span. All calls
// together visit each tracepoint span once.
func (p *parents) anchor(i int32) int32 {
	p.climbed = p.climbed[:0]
	for i >= 0 && p.spans[i].Tracepoint != 0 {
		if a := p.anchors[i]; a == climbing {
			i = broken // a cycle of tracepoint spans
			break
		} else if a != unknown {
			i = a
			break
		}
		p.anchors[i] = climbing
		p.climbed = append(p.climbed, i)
		i = p.parent[i]
	}
	for _, j := range p.climbed {
		p.anchors[j] = i
	}
	return i
}

// breakCycles removes the caller of the smallest span, by start and ID, of every cycle. nodes holds the spans that are
// in a tree; all others are on a cycle or below one.
//
//  1. Mark the spans of nodes as done.
//  2. From each unmarked span climb to its callers, and mark them with the number of the climb.
//  3. If a climb reaches its own mark, it has gone round a cycle: find the smallest span on the cycle.
func (p *parents) breakCycles(nodes []Node) {
	const done = -1
	p.climbs = scratch.Filled(p.climbs, len(p.caller), 0)
	for i := range nodes {
		p.climbs[nodes[i].Span] = done
	}
	for i := range p.caller {
		climb := int32(i) + 1
		j := int32(i)
		for j >= 0 && p.climbs[j] == 0 {
			p.climbs[j] = climb
			j = p.caller[j]
		}
		if j >= 0 && p.climbs[j] == climb {
			p.caller[p.smallestOnCycle(j)] = broken
			p.cycles++
		}
	}
}

func (p *parents) smallestOnCycle(i int32) int32 {
	smallest := i
	for j := p.caller[i]; j != i; j = p.caller[j] {
		a, b := &p.spans[j], &p.spans[smallest]
		if cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(p.ids.id(j), p.ids.id(smallest))) < 0 {
			smallest = j
		}
	}
	return smallest
}
