package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// refinement subdivides the sections of critical paths at tracepoint spans. It is reused from trace to trace.
type refinement struct {
	strictTouching bool // from Options

	nodes    []Node
	children []children
	chains   []chain // by node

	root     int32      // number of the root being refined
	passed   []progress // by node
	sections []Section  // refined sections of all roots
}

// chain locates a node among the tracepoint spans between it and its anchor.
type chain struct {
	depth int32 // number of callers up to the anchor; 0 for the anchor
	jump  int32 // a caller, or the anchor; following jumps reaches any ancestor in logarithmic time
	live  int32 // the nearest node at or above it that was not dropped, or -1
}

// progress counts the tracepoint children of a node that the refinement of a root has passed.
type progress struct{ root, children int32 } // root: its number + 1

// begin prepares f for the roots of another trace. It invalidates the sections found so far.
func (f *refinement) begin(l *layout) {
	f.nodes, f.children = l.nodes, l.children
	f.sections = f.sections[:0]
	f.chains, f.passed = scratch.Sized(f.chains, len(l.nodes)), scratch.Sized(f.passed, len(l.nodes))
	for i := range l.nodes {
		f.chains[i], f.passed[i] = f.chain(int32(i)), progress{}
	}
}

// chain returns the chain of node i. The chain of its caller must be known.
func (f *refinement) chain(i int32) chain {
	n := &f.nodes[i]
	c := chain{jump: i, live: i}
	switch {
	case n.Anchor == i:
	case n.caller < 0:
		c.live = -1
	case n.Root < 0:
		c.live = f.chains[n.caller].live
	default:
		up := &f.chains[n.caller]
		jump := &f.chains[up.jump]
		c.depth = up.depth + 1
		c.jump = n.caller
		if up.depth-jump.depth == jump.depth-f.chains[jump.jump].depth {
			c.jump = jump.jump
		}
	}
	return c
}

// run sets the refined sections of r, which is root number root. They are nil if no tracepoint span refines a section.
func (f *refinement) run(root int32, r *Root) {
	first := len(f.sections)
	f.root = root
	refined := false
	for i := len(r.Sections) - 1; i >= 0; i-- {
		refined = f.refine(int32(i), &r.Sections[i]) || refined
	}
	if !refined {
		f.sections = f.sections[:first]
		r.Refined = nil
		return
	}
	slices.Reverse(f.sections[first:])
	r.Refined = slices.Clip(f.sections[first:])
}

// refine appends the parts of section s, the latest first, and reports whether tracepoint spans are among them. It
// walks tracepoint spans as [walk.walk] walks baseline spans, with two differences: the part of a span outside s does
// not count, and if s ends at the start of a critical child, the walk starts in the tracepoint span that called that
// child. refine needs no stack, because the walk returns from a span to its caller.
func (f *refinement) refine(within int32, s *Section) (refined bool) {
	cursor, after := s.End, s.After
	i := f.openAt(s)
	refined = i != s.Node
	for {
		if c := f.pick(i, cursor, s.Start, after < 0); c >= 0 {
			if end := f.nodes[c].End; end < cursor {
				f.sections = append(f.sections, Section{i, c, after, within, end, cursor})
				cursor = end
			}
			i, after, refined = c, -1, true
			continue
		}
		low, before := f.nodes[i].Start, int32(-1)
		if low < s.Start || i == s.Node {
			low, before = s.Start, s.Before
		}
		if low < cursor {
			f.sections = append(f.sections, Section{i, before, after, within, low, cursor})
			cursor = low
		}
		if i == s.Node || cursor <= s.Start {
			return refined
		}
		i, after = f.nodes[i].caller, i
	}
}

// openAt returns the innermost tracepoint span that called s.After, directly or indirectly, and was running when
// s.After started. If there is no such span, it returns s.Node. Spans lie within their callers, so the running ones are
// above the others.
func (f *refinement) openAt(s *Section) int32 {
	if s.After < 0 || f.nodes[s.After].caller != s.Node || f.nodes[s.After].Parent == s.Node {
		return s.Node
	}
	open := func(i int32) bool { return i == s.Node || f.nodes[i].Start < s.End && s.End < f.nodes[i].End }
	i := f.chains[f.nodes[s.After].Parent].live
	if i < 0 {
		return s.Node
	}
	for !open(i) {
		if jump := f.chains[i].jump; !open(jump) {
			i = jump
		} else {
			i = f.nodes[i].caller
		}
	}
	return i
}

// pick returns the tracepoint child of node i that ends last among those that end after low but not after cursor, and
// start before cursor. It returns -1 if there is no such child. last means that no later child of node i was picked.
// The cursor of a root only moves back in time, so a child that was passed need not be considered again.
func (f *refinement) pick(i int32, cursor, low trace.Nanos, last bool) int32 {
	p := &f.passed[i]
	if p.root != f.root+1 {
		*p = progress{root: f.root + 1}
	}
	latest := cursor
	if f.strictTouching && !last {
		latest--
	}
	r := &f.children[i]
	for c := r.tracepoints + p.children; c < r.outside; c++ {
		n := &f.nodes[c]
		if n.End <= low {
			return -1
		}
		p.children++
		if n.End <= latest && n.Start < cursor && n.Start < n.End {
			return c
		}
	}
	return -1
}
