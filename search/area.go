package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of what an investigation looks at.
const (
	maxAreas   = 4       // operations searched at a time
	maxClasses = 1 << 16 // places within one operation
	areaFloor  = 0.25    // an operation is searched if it carries this fraction of the leading one's share
)

// area is a baseline operation that carries part of a problem, in all calling contexts that do, with the places inside: the
// switchable calling contexts below the operation down to the next baseline operation.
type area struct {
	op      trace.Op
	score   float64 // Σ score of edges: the share of what is wrong that the operation spends itself
	edges   []*group.EdgeShare
	matches []Matched
	roots   []int32        // matched nodes of the tree, ascending
	wide    []trace.Symbol // tracepoints with evidence that is not enough
	classes []class        // classes[0] is the operation itself; parents before children
}

// class is a place inside an area: all nodes of the tree with the same switchable path below the area's operation. They look
// alike in every plan.
type class struct {
	parent int32
	kids   []int32
	op     trace.Op
	tp     trace.Symbol
	ctx    trace.Context // full context of the first node
	node   int32         // the first node; -1: unplaced
	layer  cct.Layer
	kind   cct.TracepointKind
	loose  bool    // it, or what it is called from, may be executed anywhere in the area
	hits   float64 // expected per request of the type
	mass   float64 // prior weight of the cause being here
	past   float64 // of this, what history adds or takes
	inside bool    // can lie between the neighbours of the area's edges

	shown       bool // requests executed it while it was on
	known       bool // evidence or silence says what it carries
	n           float64
	share, half float64 // inclusive share of the area, and half its 95 % interval
	region      int32   // the nearest known class at or above
	floating    bool    // unknown, and so is what it is called from up to something loose
	own, ownSD  float64 // of a known class: share less that of the known classes next below, and its standard deviation
}

// areas returns the operations that lead the problem, best first, with the tree's places inside them, and the scores of those
// that are not searched.
func areasOf(p *detect.Problem, t *cct.Tree, table *trace.Table) (searched, rest []*area) {
	byOp := make(map[trace.Op]*area)
	var all []*area
	for _, i := range orderEdges(p.Edges) {
		e := &p.Edges[i]
		m := matchEdge(t, e, table)
		op, key := trace.Op(0), trace.Op(e.Context)
		if len(m.Nodes) > 0 {
			op = t.Nodes[m.Nodes[0]].Op
			key = op
		} else if table != nil {
			op = table.Context(e.Context).Op
		}
		a := byOp[key]
		if a == nil {
			a = &area{op: op}
			byOp[key] = a
			all = append(all, a)
		}
		a.add(e, t, m)
	}
	slices.SortStableFunc(all, func(a, b *area) int { return cmp.Compare(b.score, a.score) })
	for k, a := range all {
		if k < maxAreas && a.score > 0 && a.score >= areaFloor*all[0].score {
			a.grow(t)
			searched = append(searched, a)
		} else {
			rest = append(rest, a)
		}
	}
	return searched, rest
}

// orderEdges returns the indices of the edges that carry something, best first.
func orderEdges(edges []group.EdgeShare) []int {
	var order []int
	for i := range edges {
		if edges[i].Context != 0 && edges[i].Score > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(edges[b].Score, edges[a].Score), cmp.Compare(edges[a].Edge, edges[b].Edge))
	})
	return order
}

func matchEdge(t *cct.Tree, e *group.EdgeShare, table *trace.Table) cct.Match {
	m := t.MatchContext(e.Context)
	if len(m.Nodes) == 0 && table != nil {
		m = t.Match(table.Path(e.Context), nil)
	}
	return m
}

func (a *area) add(e *group.EdgeShare, t *cct.Tree, m cct.Match) {
	a.score += e.Score
	a.edges = append(a.edges, e)
	for k := range a.matches {
		if a.matches[k].Context == e.Context {
			a.matches[k].Score += e.Score
			return
		}
	}
	matched := Matched{Context: e.Context, Score: e.Score, Distance: m.Distance}
	for _, i := range m.Nodes {
		matched.Nodes = append(matched.Nodes, t.Nodes[i].Context)
		if at, found := slices.BinarySearch(a.roots, i); !found {
			a.roots = slices.Insert(a.roots, at, i)
		}
	}
	for _, r := range m.RunnersUp {
		matched.RunnersUp = append(matched.RunnersUp, RunnerUp{t.Nodes[r.Node].Context, r.Distance})
	}
	a.matches = append(a.matches, matched)
}

// grow fills in the classes: those of the tree, then what may be executed anywhere in the service.
func (a *area) grow(t *cct.Tree) {
	a.classes = append(a.classes, class{parent: -1, op: a.op, node: -1, known: true, share: 1, inside: true, hits: 1})
	if len(a.roots) == 0 {
		a.classes[0].ctx = a.edges[0].Context
		return
	}
	first := &t.Nodes[a.roots[0]]
	a.classes[0].node, a.classes[0].ctx, a.classes[0].hits = a.roots[0], first.Context, a.rootHits(t)
	most := a.most(t)
	a.classes = slices.Grow(a.classes, most)
	nodes := append(make([][]int32, 0, most+1), a.roots)
	for i := 0; i < len(a.classes) && len(a.classes) < maxClasses; i++ {
		nodes = a.growBelow(int32(i), t, nodes)
		nodes[i] = nil
	}
	a.growLoose(t, first.Service)
	a.smooth()
	a.markOutside(t)
}

// growLoose adds what may be executed anywhere in the service, unless the tree has it in the area.
func (a *area) growLoose(t *cct.Tree, service trace.Symbol) {
	var placed map[trace.Symbol]bool
	for p := range t.Loose(service) {
		if placed == nil {
			placed = make(map[trace.Symbol]bool, len(a.classes))
			for i := range a.classes {
				placed[a.classes[i].tp] = true
			}
		}
		if !placed[p.ID] && len(a.classes) < maxClasses {
			a.append(class{op: p.Op, tp: p.ID, node: -1, layer: p.Layer, kind: p.Kind, loose: true, hits: 1, inside: true})
			c := &a.classes[len(a.classes)-1]
			c.mass, c.past = prior(t, t.At(p.ID)) // where it was seen elsewhere
		}
	}
}

// most returns how many classes the tree can have below the area's roots, at most maxClasses.
func (a *area) most(t *cct.Tree) int {
	n := 0
	for _, i := range a.roots {
		n += int(t.Nodes[i].End - i)
	}
	return min(n, maxClasses)
}

func (a *area) rootHits(t *cct.Tree) float64 {
	hits := 0.0
	for _, i := range a.roots {
		if r := t.Nodes[i].HitRate(); !math.IsNaN(r) {
			hits += r
		}
	}
	if hits == 0 {
		return 1
	}
	return hits
}

// append adds c below its parent and returns its index.
func (a *area) append(c class) int32 {
	i := int32(len(a.classes))
	a.classes = append(a.classes, c)
	p := &a.classes[c.parent]
	p.kids = append(p.kids, i)
	return i
}

// growBelow adds the children of class i, whose nodes are nodes[i], and appends theirs to nodes.
func (a *area) growBelow(i int32, t *cct.Tree, nodes [][]int32) [][]int32 {
	count := 0
	for _, n := range nodes[i] {
		for k := range t.Children(n) {
			if !t.Nodes[k].Baseline() {
				count++
			}
		}
	}
	if count == 0 {
		return nodes
	}
	kids := make([]int32, 0, count)
	for _, n := range nodes[i] {
		for k := range t.Children(n) {
			if !t.Nodes[k].Baseline() {
				kids = append(kids, k)
			}
		}
	}
	a.classes[i].kids = slices.Grow(a.classes[i].kids, count)
	if len(nodes[i]) > 1 {
		slices.SortStableFunc(kids, func(x, y int32) int { return compareSiblings(&t.Nodes[x], &t.Nodes[y]) })
	}
	for from := 0; from < len(kids); {
		to := from + 1
		for to < len(kids) && compareSiblings(&t.Nodes[kids[from]], &t.Nodes[kids[to]]) == 0 {
			to++
		}
		n := &t.Nodes[kids[from]]
		mass, past := prior(t, kids[from:to])
		a.append(class{
			parent: i, op: n.Op, tp: n.Tracepoint, ctx: n.Context, node: kids[from], layer: n.Layer, kind: n.Kind,
			hits: expectedHits(t, kids[from:to], a.classes[i].hits), mass: mass, past: past, inside: true,
			loose: n.Floating || a.classes[i].loose,
		})
		nodes = append(nodes, kids[from:to])
		from = to
	}
	return nodes
}

func compareSiblings(a, b *cct.Node) int {
	return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Op, b.Op),
		cmp.Compare(a.Tracepoint, b.Tracepoint))
}

// expectedHits returns how many spans a request will emit at nodes: as seen, else as often as their parents.
func expectedHits(t *cct.Tree, nodes []int32, above float64) float64 {
	hits, seen := 0.0, false
	for _, i := range nodes {
		if n := &t.Nodes[i]; n.Requests > 0 {
			hits += n.HitRate()
			seen = true
		}
	}
	if !seen {
		return above
	}
	return hits
}

// prior returns the weight of the cause being at nodes rather than at any other place: 1 without history, more where past
// causes were, little where requests that could get there did not. It never is 0, so that a wrong prior hides nothing. The past
// is the part of it that is due to past causes.
func prior(t *cct.Tree, nodes []int32) (mass, past float64) {
	var h cct.History
	requests, hits := uint64(0), uint64(0)
	for _, i := range nodes {
		n := &t.Nodes[i]
		h.Merge(n.History)
		requests += n.Requests
		hits += n.Hits
	}
	mass = 1
	if h.N > 0 {
		weight := float64(h.N) / (float64(h.N) + 2)
		past = weight * (10*max(0, h.Mean()) - 0.7)
		mass += past
	}
	if hits == 0 && requests > 50 {
		mass, past = 0.05*mass, 0
	}
	return mass, past
}

// Parts of the past of a place that its neighbours have too.
const (
	pastOfParent   = 0.25
	pastOfSiblings = 0.25
)

// smooth spreads the past of places over their children and siblings: a place beside or below one that was a cause is more likely
// to be one than others are. Nothing changes without history.
func (a *area) smooth() {
	if !slices.ContainsFunc(a.classes, func(c class) bool { return c.past != 0 }) {
		return
	}
	for i := range a.classes {
		var sum float64
		for _, k := range a.classes[i].kids {
			sum += a.classes[k].past
		}
		for _, k := range a.classes[i].kids {
			c := &a.classes[k]
			siblings := float64(max(1, len(a.classes[i].kids)-1))
			c.mass = max(leastMass, c.mass+pastOfParent*a.classes[i].past+pastOfSiblings*(sum-c.past)/siblings)
		}
	}
}

// leastMass keeps a wrong prior from hiding the cause.
const leastMass = 0.05

// markOutside finds the classes that cannot lie inside the area's edges: they lead to baseline operations, but to none that
// is a neighbour of an edge. Edges of unknown neighbours contain everything.
func (a *area) markOutside(t *cct.Tree) {
	near := make(map[trace.Op]bool)
	for _, e := range a.edges {
		if e.Before == 0 && e.After == 0 {
			return
		}
		near[e.Before], near[e.After] = true, true
	}
	for i := 1; i < len(a.classes); i++ {
		c := &a.classes[i]
		if c.node >= 0 {
			c.inside = reaches(t, c.node, near)
		}
	}
}

// reaches reports whether the nearest baseline operations below node i are none, or one in near.
func reaches(t *cct.Tree, i int32, near map[trace.Op]bool) bool {
	none := true
	for k := i + 1; k < t.Nodes[i].End; {
		n := &t.Nodes[k]
		switch {
		case !n.Baseline():
			k++
		case near[n.Op]:
			return true
		default:
			none = false
			k = n.End
		}
	}
	return none
}
