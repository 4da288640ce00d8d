package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the part of a tree that an investigation searches.
const (
	maxScopes    = 4       // maximum number of operations searched at a time
	maxLocations = 1 << 16 // maximum number of locations within one operation
	scopeFloor   = 0.25    // minimum share of the leading operation's score for an operation to be searched
)

// operationScope is a baseline operation that carries part of a problem, in all its calling contexts. Its locations are
// the switchable calling contexts below it, down to the next baseline operation.
type operationScope struct {
	op        trace.Op
	score     float64 // sum of the edges' scores: the share of the problem that the operation spends itself
	edges     []*group.EdgeShare
	matches   []Matched
	roots     []int32        // matching nodes of the tree, ascending
	uncertain []trace.Symbol // tracepoints whose evidence has too wide an interval
	locations []location     // locations[0] is the operation itself; parents come before children
	sampled   bool           // the stacks of its slow requests are known
}

// location stands for all nodes of the tree with the same path of tracepoints below the scope's operation, because
// plans cannot distinguish between these nodes.
type location struct {
	parent      int32
	children    []int32
	op          trace.Op
	tp          trace.Symbol
	ctx         trace.Context // full context of the first node
	node        int32         // the first node, or -1
	layer       cct.Layer
	kind        cct.TracepointKind
	unanchored  bool    // the location or one above it may run anywhere in the scope
	hits        float64 // expected number of spans per request of the type
	priorWeight float64 // weight of the cause being here
	history     float64 // the part of priorWeight that is due to past causes; may be negative
	inside      bool    // it can lie between the neighbours of the scope's edges

	executed    bool // requests executed it while its tracepoint was on
	known       bool // its share is known, possibly as 0
	requests    float64
	share, half float64 // inclusive share of the scope, and half its 95 % interval
	region      int32   // the nearest known location at or above
	anyRegion   bool    // may lie in any region: unknown and unanchored, like all locations above it but the operation
	own, ownSD  float64 // share minus the shares of the known locations next below, with its deviation; if known
	computing   bool    // it consists of waits for a CPU that count as own time of the function around them
	standing    float64 // share of the time of slow requests that it accounts for; 0 if unknown
	offStack    bool    // samples of stacks show that it isn't worth trying
	calls       bool    // it is a call of another service
	rare        bool    // it is a kind of wait that seldom makes requests slow
}

// scopesOf returns the operations that carry p, best first. searched holds the operations to search, with their
// locations, and rest all others.
func scopesOf(p *detect.Problem, t *cct.Tree, table *trace.Table) (searched, rest []*operationScope) {
	byOp := make(map[trace.Op]*operationScope)
	var all []*operationScope
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
		scope := byOp[key]
		if scope == nil {
			scope = &operationScope{op: op}
			byOp[key] = scope
			all = append(all, scope)
		}
		scope.add(e, t, m)
	}
	sorting.SliceStable(all, func(a, b *operationScope) int { return cmp.Compare(b.score, a.score) })
	for k, scope := range all {
		if k < maxScopes && scope.score > 0 && scope.score >= scopeFloor*all[0].score {
			scope.grow(t, leavesApplication(table, scope.op))
			scope.preferCommonWaits(table)
			searched = append(searched, scope)
		} else {
			rest = append(rest, scope)
		}
	}
	return searched, rest
}

// leavesApplication reports whether step calls something that emits no spans, such as a database. It returns false if
// table is nil.
func leavesApplication(table *trace.Table, step trace.Op) bool {
	return table != nil && table.Operation(step).Kind == trace.Client &&
		table.Operation(table.Target(step)).Kind == trace.External
}

// orderEdges returns the indices of the edges with a context and a positive score, best first.
func orderEdges(edges []group.EdgeShare) []int {
	var order []int
	for i := range edges {
		if edges[i].Context != 0 && edges[i].Score > 0 {
			order = append(order, i)
		}
	}
	sorting.Slice(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(edges[b].Score, edges[a].Score), cmp.Compare(edges[a].Edge, edges[b].Edge))
	})
	return order
}

// matchEdge returns the nodes of t that match the context of e, exactly or by the edit distance between paths.
func matchEdge(t *cct.Tree, e *group.EdgeShare, table *trace.Table) cct.Match {
	m := t.MatchContext(e.Context)
	if len(m.Nodes) == 0 && table != nil {
		m = t.Match(table.Path(e.Context), nil)
	}
	return m
}

// add adds to the scope e and its matches m in t.
func (o *operationScope) add(e *group.EdgeShare, t *cct.Tree, m cct.Match) {
	o.score += e.Score
	o.edges = append(o.edges, e)
	for k := range o.matches {
		if o.matches[k].Context == e.Context {
			o.matches[k].Score += e.Score
			return
		}
	}
	matched := Matched{Context: e.Context, Score: e.Score, Distance: m.Distance}
	for _, i := range m.Nodes {
		matched.Nodes = append(matched.Nodes, t.Nodes[i].Context)
		if at, found := slices.BinarySearch(o.roots, i); !found {
			o.roots = slices.Insert(o.roots, at, i)
		}
	}
	for _, r := range m.RunnersUp {
		matched.RunnersUp = append(matched.RunnersUp, RunnerUp{t.Nodes[r.Node].Context, r.Distance})
	}
	o.matches = append(o.matches, matched)
}

// grow adds the locations in t, then the unanchored tracepoints of the service. If the operation leaves the
// application, no function of the service runs inside it.
func (o *operationScope) grow(t *cct.Tree, leaves bool) {
	o.locations = append(o.locations, location{
		parent: -1,
		op:     o.op,
		node:   -1,
		known:  true,
		share:  1,
		inside: true,
		hits:   1,
	})
	if len(o.roots) == 0 {
		o.locations[0].ctx = o.edges[0].Context
		return
	}
	first := &t.Nodes[o.roots[0]]
	o.locations[0].node, o.locations[0].ctx, o.locations[0].hits = o.roots[0], first.Context, o.rootHits(t)
	most := o.atMost(t)
	o.locations = slices.Grow(o.locations, most)
	nodes := append(make([][]int32, 0, most+1), o.roots)
	for i := 0; i < len(o.locations) && len(o.locations) < maxLocations; i++ {
		nodes = o.growBelow(int32(i), t, nodes)
		nodes[i] = nil
	}
	o.growUnanchored(t, first.Service, leaves)
	o.smooth()
	o.markOutside(t)
}

// growUnanchored adds the tracepoints that may run anywhere in the service, unless the tree has them in the scope. A
// tracepoint whose caller is announced lies below the caller, because it only runs there. Waits in the kernel that
// were seen within one function may also occur within others.
func (o *operationScope) growUnanchored(t *cct.Tree, service trace.Symbol, leaves bool) {
	var placed map[trace.Symbol]bool
	unplaced := make(map[trace.Symbol]*cct.Tracepoint)
	var order []*cct.Tracepoint
	for p := range t.Unplaced(service) {
		if placed == nil {
			placed = make(map[trace.Symbol]bool, len(o.locations))
			for i := range o.locations {
				if l := &o.locations[i]; l.layer != cct.Kernel || l.parent == 0 {
					placed[l.tp] = true
				}
			}
		}
		if !placed[p.ID] && (!leaves || p.Layer != cct.App) && len(o.locations)+len(order) < maxLocations {
			unplaced[p.ID] = p
			order = append(order, p)
		}
	}
	at := make(map[trace.Symbol]int32, len(order))
	for _, p := range order {
		o.appendBelowCaller(p, unplaced, at, t)
	}
}

// appendBelowCaller adds an unplaced tracepoint below its caller, which it adds first, and returns its index. If
// callers form a cycle, one of them is placed below the operation. at contains the indices of the added tracepoints.
func (o *operationScope) appendBelowCaller(
	p *cct.Tracepoint, unplaced map[trace.Symbol]*cct.Tracepoint, at map[trace.Symbol]int32, t *cct.Tree,
) int32 {
	if i, ok := at[p.ID]; ok {
		return i
	}
	at[p.ID] = 0
	parent := int32(0)
	if caller := unplaced[p.Parent]; caller != nil {
		parent = o.appendBelowCaller(caller, unplaced, at, t)
	}
	i := o.append(location{
		parent:     parent,
		op:         p.Op,
		tp:         p.ID,
		node:       -1,
		layer:      p.Layer,
		kind:       p.Kind,
		unanchored: true,
		hits:       1,
		inside:     true,
	})
	l := &o.locations[i]
	l.priorWeight, l.history = prior(t, t.At(p.ID)) // from its nodes elsewhere
	at[p.ID] = i
	return i
}

// atMost returns an upper bound on the number of locations below the roots, capped at maxLocations.
func (o *operationScope) atMost(t *cct.Tree) int {
	n := 0
	for _, i := range o.roots {
		n += int(t.Nodes[i].End - i)
	}
	return min(n, maxLocations)
}

// rootHits returns the number of executions of the operation per request, or 1 if no execution was seen.
func (o *operationScope) rootHits(t *cct.Tree) float64 {
	hits := 0.0
	for _, i := range o.roots {
		if r := t.Nodes[i].HitRate(); !math.IsNaN(r) {
			hits += r
		}
	}
	if hits == 0 {
		return 1
	}
	return hits
}

// append adds l below its parent and returns its index.
func (o *operationScope) append(l location) int32 {
	i := int32(len(o.locations))
	o.locations = append(o.locations, l)
	p := &o.locations[l.parent]
	p.children = append(p.children, i)
	return i
}

// growBelow adds the children of location i, whose nodes are nodes[i], and appends their nodes to nodes.
func (o *operationScope) growBelow(i int32, t *cct.Tree, nodes [][]int32) [][]int32 {
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
	o.locations[i].children = slices.Grow(o.locations[i].children, count)
	if len(nodes[i]) > 1 {
		sorting.SliceStable(kids, func(x, y int32) int { return compareSiblings(&t.Nodes[x], &t.Nodes[y]) })
	}
	for from := 0; from < len(kids); {
		to := from + 1
		for to < len(kids) && compareSiblings(&t.Nodes[kids[from]], &t.Nodes[kids[to]]) == 0 {
			to++
		}
		n := &t.Nodes[kids[from]]
		weight, history := prior(t, kids[from:to])
		unplaced := i == 0 && n.Layer == cct.Kernel // seen while functions were off
		o.append(location{
			parent:      i,
			op:          n.Op,
			tp:          n.Tracepoint,
			ctx:         n.Context,
			node:        kids[from],
			layer:       n.Layer,
			kind:        n.Kind,
			hits:        expectedHits(t, kids[from:to], o.locations[i].hits),
			priorWeight: weight,
			history:     history,
			inside:      true,
			unanchored:  n.Unanchored || o.locations[i].unanchored || unplaced,
		})
		nodes = append(nodes, kids[from:to])
		from = to
	}
	return nodes
}

// compareSiblings orders nodes with the same parent. Nodes that compare equal are one location.
func compareSiblings(a, b *cct.Node) int {
	return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Op, b.Op),
		cmp.Compare(a.Tracepoint, b.Tracepoint))
}

// expectedHits returns the expected number of spans per request at nodes. It is the sum of the observed hit rates, or
// `above`, the parent's rate, if no request could run the nodes.
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

// prior returns the prior weight of the cause being at nodes, relative to other locations. The weight is 1 without
// history, more if past causes were there, and small if requests that could run the nodes didn't. It is never 0, so a
// wrong prior can't hide the cause. history is the part of weight that comes from past causes.
func prior(t *cct.Tree, nodes []int32) (weight, history float64) {
	var h cct.History
	requests, hits := uint64(0), uint64(0)
	for _, i := range nodes {
		n := &t.Nodes[i]
		h.Merge(n.History)
		requests += n.Requests
		hits += n.Hits
	}
	weight = 1
	if h.N > 0 {
		certainty := float64(h.N) / (float64(h.N) + 2)
		history = certainty * (10*max(0, h.Mean()) - 0.7)
		weight += history
	}
	if hits == 0 && requests > 50 {
		weight, history = 0.05*weight, 0
	}
	return weight, history
}

// Fractions of a location's history that also count for its children and for its siblings.
const (
	historyOfParent   = 0.25
	historyOfSiblings = 0.25
)

// minPriorWeight keeps a wrong prior from hiding the cause.
const minPriorWeight = 0.05

// smooth spreads the history of locations over their children and siblings, because a location next to or below a past
// cause is more likely to be a cause. It changes nothing without history.
func (o *operationScope) smooth() {
	if !slices.ContainsFunc(o.locations, func(l location) bool { return l.history != 0 }) {
		return
	}
	for i := range o.locations {
		var sum float64
		for _, k := range o.locations[i].children {
			sum += o.locations[k].history
		}
		for _, k := range o.locations[i].children {
			l := &o.locations[k]
			siblings := float64(max(1, len(o.locations[i].children)-1))
			l.priorWeight = max(minPriorWeight,
				l.priorWeight+historyOfParent*o.locations[i].history+historyOfSiblings*(sum-l.history)/siblings)
		}
	}
}

// markOutside marks the locations that can't lie inside the scope's edges, because the baseline operations below them
// aren't neighbours of an edge. Edges with unknown neighbours contain everything.
func (o *operationScope) markOutside(t *cct.Tree) {
	near := make(map[trace.Op]bool)
	for _, e := range o.edges {
		if e.Before == 0 && e.After == 0 {
			return
		}
		near[e.Before], near[e.After] = true, true
	}
	for i := 1; i < len(o.locations); i++ {
		l := &o.locations[i]
		if l.node >= 0 {
			l.inside = reaches(t, l.node, near)
		}
	}
}

// reaches reports whether one of the nearest baseline operations below node i is in near, or there are no baseline
// operations below it.
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
