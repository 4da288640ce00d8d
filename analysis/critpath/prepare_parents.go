package critpath

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// findParents fills x.up and, if there are switched-on spans, x.above.
func (x *Extractor) findParents() {
	spans := x.trace.Spans
	x.switched = false
	for i := range spans {
		s := &spans[i]
		x.switched = x.switched || s.Tracepoint != 0
		x.up[i] = x.parentOf(int32(i), s)
	}
	if x.switched {
		x.projectParents()
	}
}

// parentOf returns the index of s's parent, or why there is none.
func (x *Extractor) parentOf(i int32, s *trace.Span) int32 {
	if len(x.gone) > 0 {
		switch {
		case x.gone[i]:
			return dropped
		case x.shared && x.alias[i] != 0: // the server half is the child of the client half
			return x.index.find(s.ID).span
		case s.Parent == s.ID:
			return i
		}
	}
	if s.Parent == 0 {
		return noParent
	}
	e := x.index.find(s.Parent)
	switch {
	case e == nil:
		x.path.Counts.Orphans++
		x.orphan = i
		return missing
	case x.shared && x.server[e.span] >= 0:
		return x.server[e.span]
	}
	return e.span
}

// projectParents replaces the parents of baseline spans in x.up by their nearest baseline ancestors, and keeps the parents in
// x.above.
func (x *Extractor) projectParents() {
	spans := x.trace.Spans
	x.above = append(x.above[:0], x.up...)
	x.anchors = filled(x.anchors, len(spans), unknown)
	for i := range spans {
		if p := x.above[i]; spans[i].Tracepoint == 0 && p >= 0 {
			x.up[i] = x.anchor(p)
		}
	}
}

// States of a switched-on span in x.anchors other than a span or a reason why there is none.
const (
	unknown int32 = -100 - iota
	climbing
)

// anchor returns the nearest baseline span at or above i, or why there is none. Each switched-on span is climbed over once.
func (x *Extractor) anchor(i int32) int32 {
	x.climbed = x.climbed[:0]
	for i >= 0 && x.trace.Spans[i].Tracepoint != 0 {
		if a := x.anchors[i]; a == climbing {
			i = broken // a cycle of switched-on spans
			break
		} else if a != unknown {
			i = a
			break
		}
		x.anchors[i] = climbing
		x.climbed = append(x.climbed, i)
		i = x.above[i]
	}
	for _, j := range x.climbed {
		x.anchors[j] = i
	}
	return i
}

// link cuts messaging off and fills the lists of children and of spans without a parent.
func (x *Extractor) link() {
	spans := x.trace.Spans
	for i := range x.firstChild {
		x.firstChild[i] = -1
	}
	x.heads = x.heads[:0]
	x.tops, x.rootless = 0, true
	x.pairs = x.pairs[:0]
	for i := int32(len(spans)) - 1; i >= 0; i-- { // downwards: lists are in the order of spans
		p := x.up[i]
		if p < 0 {
			x.addTop(i, p)
			continue
		}
		switch s := &spans[i]; s.Kind {
		case trace.Consumer:
			if up := &spans[p]; up.Kind == trace.Producer || up.Service != s.Service {
				x.path.Flags |= FlagDetached
				x.up[i] = cut
				x.heads = append(x.heads, x.head(i))
				continue
			}
		case trace.Server:
			x.pair(p, i)
		case trace.Unspecified, trace.Internal, trace.Client, trace.Producer:
		}
		x.nextChild[i] = x.firstChild[p]
		x.firstChild[p] = i
	}
}

// head is a span without a parent.
type head struct {
	start, end trace.Nanos
	id         trace.SpanID
	span       int32
}

func (x *Extractor) head(i int32) head {
	s := &x.trace.Spans[i]
	return head{s.Start, max(s.Start, s.End), x.id(i), i}
}

// addTop notes a span that has no parent, for reason why.
func (x *Extractor) addTop(i, why int32) {
	if why == dropped {
		return
	}
	x.heads = append(x.heads, x.head(i))
	if x.trace.Spans[i].Tracepoint != 0 || why == cut {
		return
	}
	x.tops++
	x.top = i
	x.rootless = x.rootless && why != noParent
}

// sortHeads puts the primary root first: the earliest, then longest, then smallest ID.
func (x *Extractor) sortHeads() {
	slices.SortFunc(x.heads, func(a, b head) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.id, b.id))
	})
}

// breakCycles finds the cycles of parents among the spans that no tree reached, and makes a head of the smallest span of
// each by (start, ID).
//
//  1. Spans that are part of a tree are marked as done.
//  2. From each span without a mark, climb, marking what is passed with the number of the climb.
//  3. If the climb ends at a mark of its own, it went round a cycle: go round once more for the smallest span.
func (x *Extractor) breakCycles() {
	const done = -1
	x.mark = filled(x.mark, len(x.up), 0)
	for i := range x.path.Nodes {
		x.mark[x.path.Nodes[i].Span] = done
	}
	for i := range x.up {
		climb := int32(i) + 1
		j := int32(i)
		for j >= 0 && x.mark[j] == 0 {
			x.mark[j] = climb
			j = x.up[j]
		}
		if j >= 0 && x.mark[j] == climb {
			x.up[x.smallestOnCycle(j)] = broken
			x.path.Counts.Cycles++
		}
	}
}

func (x *Extractor) smallestOnCycle(i int32) int32 {
	spans := x.trace.Spans
	smallest := i
	for j := x.up[i]; j != i; j = x.up[j] {
		a, b := &spans[j], &spans[smallest]
		if cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(x.id(j), x.id(smallest))) < 0 {
			smallest = j
		}
	}
	return smallest
}

// id returns the ID of span i, a new one for the server half of a shared ID.
func (x *Extractor) id(i int32) trace.SpanID {
	if x.shared && x.alias[i] != 0 {
		return x.alias[i]
	}
	return x.trace.Spans[i].ID
}
