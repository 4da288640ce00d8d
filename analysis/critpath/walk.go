package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// walk finds the critical path of each root over baseline spans.
type walk struct {
	overlapTolerance float64 // from Options, as are the next two
	latestStart      bool
	strictTouching   bool

	nodes    []Node
	children []children
	joins    *joins

	root    int32   // number of the root being walked
	stack   []frame // from the root down to the current span
	visited []visit // by node; valid if there are joins

	sections []Section // of all roots
	critical []int32
	overlaps []Overlap
}

// maxSlack is the maximum tolerated overlap in ns, so that times do not overflow.
const maxSlack = 1 << 57

// frame is a span on the stack of a walk.
type frame struct {
	node      int32
	next, end int32       // children to consider: nodes[next:end]
	join      int32       // first join to consider
	after     int32       // the last critical child found, or -1
	low       trace.Nanos // start of the span's part of the path: its own start, or a later time if it was joined
	slack     trace.Nanos // tolerated overlap of children
}

// begin prepares w for the roots of another trace. It invalidates the paths found so far.
func (w *walk) begin(l *layout, j *joins) {
	w.nodes, w.children, w.joins = l.nodes, l.children, j
	w.sections, w.critical, w.overlaps = w.sections[:0], w.critical[:0], w.overlaps[:0]
	if !j.none() {
		w.visited = scratch.Filled(w.visited, len(l.nodes), visit{})
	}
}

// run sets the sections, critical nodes and overlaps of r, which is root number root.
func (w *walk) run(root int32, r *Root) {
	s, c, o := len(w.sections), len(w.critical), len(w.overlaps)
	w.root = root
	w.walk(r.Node)
	slices.Reverse(w.sections[s:])
	r.Sections = slices.Clip(w.sections[s:])
	r.Critical, r.Overlaps = slices.Clip(w.critical[c:]), slices.Clip(w.overlaps[o:])
}

// walk appends the critical path of the root at node first, the latest section first.
//
// The cursor moves from the end of the root to its start. The span on top of the stack must account for the time before
// the cursor:
//
//  1. Select its child, or the span it joined, that ends last, but not after the cursor, and starts before the cursor.
//     The time between the end of that child and the cursor is the span's own.
//  2. Push the child; move the cursor to its end.
//  3. If there is no such child, the time between the start of the span and the cursor is its own. Move the cursor to
//     the start and pop the span.
//
// The cursor only moves back in time, so a rejected child need not be considered again.
func (w *walk) walk(first int32) {
	cursor := w.nodes[first].End
	w.stack = w.stack[:0]
	w.push(first, w.nodes[first].Start)
	for len(w.stack) > 0 {
		f := &w.stack[len(w.stack)-1]
		c := w.pick(f, cursor)
		if c < 0 {
			if f.low < cursor {
				w.sections = append(w.sections, Section{f.node, -1, f.after, -1, f.low, cursor})
				cursor = f.low
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		n := &w.nodes[c]
		if n.End < cursor {
			w.sections = append(w.sections, Section{f.node, c, f.after, -1, n.End, cursor})
		} else if n.End > cursor {
			w.overlaps = append(w.overlaps, Overlap{f.node, n.End.Sub(cursor)})
		}
		f.after = c
		cursor = n.End
		w.push(c, max(n.Start, f.low))
	}
}

// push pushes node i on the stack. low is the start of its part of the path.
func (w *walk) push(i int32, low trace.Nanos) {
	r := &w.children[i]
	f := frame{node: i, next: r.candidates, end: r.tracepoints, after: -1, low: low}
	if w.overlapTolerance > 0 {
		n := &w.nodes[i]
		f.slack = min(trace.Nanos(w.overlapTolerance*float64(n.End-n.Start)), maxSlack)
	}
	if !w.joins.none() {
		f.join = w.joins.at[i]
		w.visited[i].add(w.nodes[i].Root == w.root)
	}
	w.stack = append(w.stack, f)
	w.critical = append(w.critical, i)
}

// pick returns the child of f that ends last among the children that were not yet considered, end at most f.slack after
// cursor, and start before cursor. It returns -1 if there is no such child.
func (w *walk) pick(f *frame, cursor trace.Nanos) int32 {
	latest := cursor + f.slack
	if w.strictTouching && f.after >= 0 {
		latest--
	}
	if !w.joins.none() {
		return w.pickJoining(f, latest, cursor)
	}
	for f.next < f.end {
		n := &w.nodes[f.next]
		f.next++
		if n.End <= latest && n.Start < cursor && n.Start < n.End && n.End > f.low {
			return f.next - 1
		}
	}
	return -1
}

// pickJoining is pick for traces with joins. It merges the children of the span with the spans that it joined. Only the
// part of a joined span after the start of the joining span counts. A joined span that ended after the cursor doesn't
// count, because the joining span did not wait for it.
func (w *walk) pickJoining(f *frame, latest, cursor trace.Nanos) int32 {
	last := w.joins.at[f.node+1]
	for {
		var c int32
		var start, end trace.Nanos
		switch {
		case f.join < last && (f.next == f.end || w.prefersJoin(&w.joins.all[f.join], f.next)):
			j := &w.joins.all[f.join]
			f.join++
			c, start, end = j.to, j.start, j.end
		case f.next < f.end:
			c = f.next
			f.next++
			start, end = w.nodes[c].Start, w.nodes[c].End
		default:
			return -1
		}
		if end <= latest && start < cursor && start < end && end > f.low && w.free(c) {
			return c
		}
	}
}

// prefersJoin reports whether the walk considers j before child c.
func (w *walk) prefersJoin(j *join, c int32) bool {
	child := w.nodes[c].preference()
	return j.before(&child, w.latestStart)
}

// visit records whether a node was visited by the walk of its own root, and by the walk of another root. Each of the
// two visits may happen only once. Without this limit, joins could form cycles, and many roots could repeat the work of
// one.
type visit struct{ own, other bool }

func (v *visit) add(own bool) {
	v.own = v.own || own
	v.other = v.other || !own
}

// free reports whether the current walk may visit node i (see [visit]).
func (w *walk) free(i int32) bool {
	v := w.visited[i]
	if v.own == v.other {
		return !v.own
	}
	return v.own != (w.nodes[i].Root == w.root)
}
