package critpath

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// frame is a span that is being walked.
type frame struct {
	node      int32
	next, end int32       // children that were not considered yet: Nodes[next:end]
	join      int32       // the first join that was not considered yet
	after     int32       // the critical child that was taken last; -1: none yet
	low       trace.Nanos // where the span's part of the path begins: its start, or later if it was joined
	slack     trace.Nanos // by how much children may overlap
}

// bounds says which of x.sections and so on belong to a root.
type bounds struct{ sections, refined, critical, overlaps int }

// walkRoots fills in the sections of all roots.
func (x *Extractor) walkRoots() {
	x.sections, x.refined, x.critical, x.overlaps = x.sections[:0], x.refined[:0], x.critical[:0], x.overlaps[:0]
	x.bounds = x.bounds[:0]
	if x.switched {
		x.passed = filled(x.passed, len(x.path.Nodes), passed{})
	}
	for i := range x.path.Roots {
		b := bounds{len(x.sections), len(x.refined), len(x.critical), len(x.overlaps)}
		x.bounds = append(x.bounds, b)
		x.walk(int32(i))
		slices.Reverse(x.sections[b.sections:])
		if x.switched {
			x.refine(int32(i), x.sections[b.sections:])
			slices.Reverse(x.refined[b.refined:])
		}
	}
	end := bounds{len(x.sections), len(x.refined), len(x.critical), len(x.overlaps)}
	for i := len(x.bounds) - 1; i >= 0; i-- {
		r, b := &x.path.Roots[i], x.bounds[i]
		r.Sections = x.sections[b.sections:end.sections:end.sections]
		r.Refined = x.refined[b.refined:end.refined:end.refined]
		r.Critical = x.critical[b.critical:end.critical:end.critical]
		r.Overlaps = x.overlaps[b.overlaps:end.overlaps:end.overlaps]
		end = b
	}
}

// walk appends the critical path of a root over baseline spans to x.sections, latest first.
//
// The cursor goes from the root's end to its start. All before it is still to be explained by the span on top of the stack:
//
//  1. Of the span's children (and of what it joined), take the one that ends last, but not after the cursor, and starts
//     before the cursor. What lies between its end and the cursor is the span's own.
//  2. Descend into that child, with the cursor at its end.
//  3. If there is no such child, what lies between the span's start and the cursor is its own. Return to the span that waited
//     for it, with the cursor at its start.
//
// The cursor never goes back, so a child that was passed over once is never looked at again.
func (x *Extractor) walk(root int32) {
	nodes := x.path.Nodes
	first := x.path.Roots[root].Node
	cursor := nodes[first].End
	x.stack = x.stack[:0]
	x.enter(root, first, nodes[first].Start)
	for len(x.stack) > 0 {
		f := &x.stack[len(x.stack)-1]
		c := x.pick(root, f, cursor)
		if c < 0 {
			if f.low < cursor {
				x.sections = append(x.sections, Section{f.node, -1, f.after, -1, f.low, cursor})
				cursor = f.low
			}
			x.stack = x.stack[:len(x.stack)-1]
			continue
		}
		n := &nodes[c]
		if n.End < cursor {
			x.sections = append(x.sections, Section{f.node, c, f.after, -1, n.End, cursor})
		} else if n.End > cursor {
			x.overlaps = append(x.overlaps, Overlap{f.node, n.End.Sub(cursor)})
		}
		f.after = c
		cursor = n.End
		x.enter(root, c, max(n.Start, f.low))
	}
}

// enter puts node i on the stack.
func (x *Extractor) enter(root, i int32, low trace.Nanos) {
	fam := &x.path.families[i]
	f := frame{node: i, next: fam.candidates, end: fam.switched, after: -1, low: low}
	if x.options.OverlapTolerance > 0 {
		n := &x.path.Nodes[i]
		f.slack = min(trace.Nanos(x.options.OverlapTolerance*float64(n.End-n.Start)), maxOffset)
	}
	if len(x.joins) > 0 {
		f.join = x.joinAt[i]
		x.visited[i].by(root, x.path.Nodes[i].Root)
	}
	x.stack = append(x.stack, f)
	x.critical = append(x.critical, i)
}

// pick returns the critical child of f before cursor, -1 if there is none.
func (x *Extractor) pick(root int32, f *frame, cursor trace.Nanos) int32 {
	latest := cursor + f.slack
	if x.options.StrictTouching && f.after >= 0 {
		latest--
	}
	if len(x.joins) > 0 && x.joinAt[f.node] < x.joinAt[f.node+1] {
		return x.pickJoining(root, f, latest, cursor)
	}
	nodes := x.path.Nodes
	for f.next < f.end {
		n := &nodes[f.next]
		f.next++
		if n.End <= latest && n.Start < cursor && n.Start < n.End && n.End > f.low && x.free(root, f.next-1) {
			return f.next - 1
		}
	}
	return -1
}

// join is a node that a node waits for without being its parent.
type join struct {
	from, to   int32
	start, end trace.Nanos
	id         trace.SpanID
}

// resolveJoins fills x.joins and x.joinAt. Only a baseline span joins, and only another that is not its child anyway.
func (x *Extractor) resolveJoins() {
	nodes := x.path.Nodes
	found := x.found[:0]
	for _, j := range x.trace.Joins {
		from := x.nodeOf[j.Span]
		linked := x.index.find(j.Linked)
		if from < 0 || linked == nil {
			continue
		}
		to := x.nodeOf[linked.span]
		f, t := &nodes[from], &nodes[to]
		if f.Anchor != from || t.Anchor != to || f.Root < 0 || t.Root < 0 || to == from || t.up == from {
			continue
		}
		found = append(found, join{from, to, t.Start, t.End, t.ID})
	}
	x.found = found
	if len(found) > 0 {
		x.visited = filled(x.visited, len(nodes), visit{})
		x.sortJoins()
	}
}

// sortJoins puts what was found into x.joins, by the node that joins, then in the order in which a walk wants it.
func (x *Extractor) sortJoins() {
	at := filled(x.joinAt, len(x.path.Nodes)+1, 0)
	for i := range x.found {
		at[x.found[i].from]++
	}
	sum := int32(0)
	for i := range at {
		sum += at[i]
		at[i] = sum
	}
	x.joins = sized(x.joins, len(x.found))
	for i := range x.found { // at[i] goes from the end of its part to the start
		j := &x.found[i]
		at[j.from]--
		x.joins[at[j.from]] = *j
	}
	latest := x.options.LatestStart
	for i := range len(at) - 1 {
		if part := x.joins[at[i]:at[i+1]]; len(part) > 1 {
			slices.SortFunc(part, func(a, b join) int {
				return cmp.Or(cmp.Compare(b.end, a.end), compareStarts(a.start, b.start, latest), cmp.Compare(a.id, b.id))
			})
		}
	}
	x.joinAt = at
}

func compareStarts(a, b trace.Nanos, latest bool) int {
	if latest {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// pickJoining is pick for a span that joined others: it merges them with the children. What is joined counts as it lies within the
// span; if it ended later, it was not waited for.
func (x *Extractor) pickJoining(root int32, f *frame, latest, cursor trace.Nanos) int32 {
	nodes := x.path.Nodes
	for {
		var c int32
		var start, end trace.Nanos
		children := f.next < f.end
		switch {
		case f.join < x.joinAt[f.node+1] && (!children || x.prefers(&x.joins[f.join], &nodes[f.next])):
			j := &x.joins[f.join]
			c, start, end = j.to, j.start, j.end
			f.join++
		case children:
			c, start, end = f.next, nodes[f.next].Start, nodes[f.next].End
			f.next++
		default:
			return -1
		}
		if end <= latest && start < cursor && start < end && end > f.low && x.free(root, c) {
			return c
		}
	}
}

// prefers reports whether a walk takes what was joined before child c.
func (x *Extractor) prefers(j *join, c *Node) bool {
	return cmp.Or(cmp.Compare(c.End, j.end), compareStarts(j.start, c.Start, x.options.LatestStart), cmp.Compare(j.id, c.ID)) < 0
}

// visit says whether a node was taken by the walk of its own root, and by that of another root. Each happens at most once:
// otherwise joins could form cycles, and many roots could share, and multiply, the work of one.
type visit struct{ own, other bool }

func (v *visit) by(root, own int32) {
	if root == own {
		v.own = true
	} else {
		v.other = true
	}
}

// free reports whether the walk of root may take node i.
func (x *Extractor) free(root, i int32) bool {
	if len(x.joins) == 0 {
		return true
	}
	v := x.visited[i]
	if v.own == v.other {
		return !v.own
	}
	return v.own != (x.path.Nodes[i].Root == root)
}
