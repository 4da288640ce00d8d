package critpath

import (
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// settling finds a new caller for the baseline spans that are outside their caller, or detaches them. The package
// comment states the rules.
type settling struct {
	loose   []bool   // by span: whether it is detached from its caller; may be empty
	answers []answer // answers to CLIENT spans by spans that are no longer below them
	moved   int      // spans with a new caller

	layout *layout
	places []place // scratch, by node
}

// place is the interval of a node after the node and all spans above it have been settled.
type place struct {
	start, end trace.Nanos // clamped to the caller
	last       trace.Nanos // the end before clamping
	up         int32       // node of the caller, or -1 for a root
}

// maxClimb is the maximum number of ancestors that climb tries. It bounds the time spent on hostile chains of spans. In
// real traces, far fewer spans of one process are open at once.
const maxClimb = 64

func (f *settling) reset() { f.loose, f.answers, f.moved = f.loose[:0], f.answers[:0], 0 }

// run changes the callers and parents of the spans that get a new caller, and marks the spans to detach. Nodes come
// after their callers, so the place of a caller is final before its children are settled.
func (f *settling) run(l *layout, p *parents) {
	f.layout = l
	f.places = scratch.Sized(f.places, len(l.nodes))
	for i := range l.nodes {
		n := &l.nodes[i]
		s := &l.spans[n.Span]
		if s.Tracepoint != 0 {
			continue // baseline spans have no tracepoint callers
		}
		x := place{start: s.Start, end: max(s.Start, s.End), up: n.caller}
		if len(l.shifts) > 0 {
			o := trace.Nanos(l.offsets[i])
			x.start, x.end = x.start+o, x.end+o
		}
		x.last = x.end
		if n.caller >= 0 && !f.fits(&x, n.caller) {
			f.lose(n)
			x.up = f.climb(s, &x)
			f.record(n, x.up, p)
		}
		if x.up >= 0 {
			up := &f.places[x.up]
			x.start, x.end = max(x.start, up.start), min(x.end, up.end)
		}
		f.places[i] = x
	}
}

// fits reports whether x is inside node up or overlaps it (see [apart]).
func (f *settling) fits(x *place, up int32) bool {
	return !apart(x.start, x.end, f.places[up].start, f.places[up].end)
}

// lose must be called when n loses its caller. If n, or a span behind it, answers that caller, lose records the answer
// so that it isn't lost as well.
func (f *settling) lose(n *Node) {
	client := f.layout.nodes[n.caller].Span
	if f.layout.spans[client].Kind != trace.Client {
		return
	}
	if callee := f.layout.callees.answer(client, n.Span); callee >= 0 {
		f.answers = append(f.answers, answer{client, callee})
	}
}

// climb returns the new caller of s, whose place x is outside its caller: the nearest ancestor, in the process of that
// caller, that x fits into. It returns -1 if s is a request of its own.
func (f *settling) climb(s *trace.Span, x *place) int32 {
	l := f.layout
	if s.Kind == trace.Consumer {
		return -1
	}
	if c := &f.places[x.up]; crosses(&l.spans[l.nodes[x.up].Span], s) && (x.start >= c.last || x.start < c.start) {
		return -1
	}
	i := x.up
	for range maxClimb {
		up := f.places[i].up
		if up < 0 || crosses(&l.spans[l.nodes[up].Span], &l.spans[l.nodes[i].Span]) {
			return -1
		}
		if i = up; f.fits(x, i) {
			return i
		}
	}
	return -1
}

// crosses reports whether the call of s by caller leaves a process.
func crosses(caller, s *trace.Span) bool {
	return caller.Service != s.Service || caller.Kind == trace.Client && s.Kind == trace.Server
}

// record makes node up the caller of n, or detaches n if up is -1.
func (f *settling) record(n *Node, up int32, p *parents) {
	if up < 0 {
		if len(f.loose) == 0 {
			f.loose = scratch.Filled(f.loose, len(f.layout.spans), false)
		}
		f.loose[n.Span] = true
		return
	}
	f.moved++
	p.caller[n.Span] = f.layout.nodes[up].Span
	if p.tracepoints() {
		p.parent[n.Span] = p.caller[n.Span]
	}
}
