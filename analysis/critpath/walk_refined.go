package critpath

import "github.com/sibyl-trace/sibyl/trace"

// chain places a node among the switched-on spans between it and its anchor.
type chain struct {
	depth int32 // below the anchor; 0 for the anchor
	jump  int32 // some switched-on ancestor, or the anchor: following jumps, any ancestor is reached in logarithmic time
	live  int32 // the nearest at or above that was not dropped; -1 if there is none
}

// addChain adds the chain of n, which is node i.
func (x *Extractor) addChain(i int32, n *Node) {
	c := chain{jump: i, live: i}
	switch {
	case n.Anchor == i:
	case n.up < 0:
		c.live = -1
	case n.Root < 0:
		c.live = x.chains[n.up].live
	default:
		up := &x.chains[n.up]
		jump := &x.chains[up.jump]
		c.depth = up.depth + 1
		c.jump = n.up
		if up.depth-jump.depth == jump.depth-x.chains[jump.jump].depth {
			c.jump = jump.jump
		}
	}
	x.chains = append(x.chains, c)
}

// passed says how many of a node's switched-on children the refining walk of a root is past.
type passed struct{ root, children int32 } // root: its number plus 1

// refine appends the sections of a root's path that switched-on spans refine to x.refined, latest first.
func (x *Extractor) refine(root int32, sections []Section) {
	begin := len(x.refined)
	taken := false
	for i := len(sections) - 1; i >= 0; i-- {
		if x.refineSection(root, int32(i), &sections[i]) {
			taken = true
		}
	}
	if !taken {
		x.refined = x.refined[:begin]
	}
}

// refineSection appends the parts of section s, latest first, and reports whether there are switched-on spans among them.
//
// It walks s as [Extractor.walk] does a span, but over switched-on spans, and within s: what of a span lies outside s is not
// its time. If the section ends because a baseline span starts, the walk begins in the switched-on span that called that one.
// A span's parent is its only way back, so no stack is needed.
func (x *Extractor) refineSection(root, number int32, s *Section) bool {
	nodes := x.path.Nodes
	cursor, after := s.End, s.After
	cur := x.openAt(s)
	taken := cur != s.Node
	for {
		if c := x.pickRefined(root, cur, cursor, s.Start, after < 0); c >= 0 {
			if end := nodes[c].End; end < cursor {
				x.refined = append(x.refined, Section{cur, c, after, number, end, cursor})
				cursor = end
			}
			cur, after, taken = c, -1, true
			continue
		}
		low, prev := nodes[cur].Start, int32(-1)
		if low < s.Start || cur == s.Node {
			low, prev = s.Start, s.Before
		}
		if low < cursor {
			x.refined = append(x.refined, Section{cur, prev, after, number, low, cursor})
			cursor = low
		}
		if cur == s.Node || cursor <= s.Start {
			return taken
		}
		cur, after = nodes[cur].up, cur
	}
}

// openAt returns the innermost switched-on span that was going on when s.After started and that it was called from; s.Node if
// there is none. Spans lie within their parents, so that those that were going on are above those that were not.
func (x *Extractor) openAt(s *Section) int32 {
	nodes := x.path.Nodes
	if s.After < 0 || nodes[s.After].up != s.Node || nodes[s.After].Parent == s.Node {
		return s.Node
	}
	open := func(i int32) bool { return i == s.Node || nodes[i].Start < s.End && s.End < nodes[i].End }
	i := x.chains[nodes[s.After].Parent].live
	if i < 0 {
		return s.Node
	}
	for !open(i) {
		if jump := x.chains[i].jump; !open(jump) {
			i = jump
		} else {
			i = nodes[i].up
		}
	}
	return i
}

// pickRefined returns the switched-on child of node i that ends last, but not after cursor, and starts before it and
// overlaps what is after low; -1 if there is none. It is the first to be picked at the end of its span or not. The cursor of a root only goes down, so that what it is past for good
// is not looked at again.
func (x *Extractor) pickRefined(root, i int32, cursor, low trace.Nanos, first bool) int32 {
	p := &x.passed[i]
	if p.root != root+1 {
		*p = passed{root: root + 1}
	}
	fam := &x.path.families[i]
	latest := cursor
	if x.options.StrictTouching && !first {
		latest--
	}
	for c := fam.switched + p.children; c < fam.outside; c++ {
		n := &x.path.Nodes[c]
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
