package cct

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// buildNode is a node under construction. Nodes refer to each other by index and have lists of children, because Build
// moves subtrees.
type buildNode struct {
	op         trace.Op // a step; may have a target
	base       trace.Op // op without its target, because agents and catalogues don't know targets
	tp         trace.Symbol
	layer      Layer
	kind       TracepointKind
	catalogued bool
	unanchored bool // placed directly below its owner because no hint names its caller
	merged     bool // into another node
	parent     int32
	children   []int32
	seen       trace.Nanos
	requests   uint64 // requests that executed the context
	hits       uint64
	errors     uint64
	unanswered uint64
	history    History
	witnesses  []uint64
}

// treeBuild is the state of one call to Build.
type treeBuild struct {
	builder   *Builder
	catalogue *Catalogue
	nodes     []buildNode
	roots     []int32
	table     *trace.Table
	dropped   uint64
}

// Build returns the tree of all contexts in b and of the tracepoints that c lists for their operations. table provides
// the services of operations. c and table may be nil. The result depends only on the contents of b and c, not on the
// order in which contexts were added. Build takes O(n log n) time for n nodes of moderate depth, regardless of the size
// of the catalogue:
//
//  1. Build the tree of contexts as they appeared.
//  2. Under every operation that owns catalogued tracepoints, place the tracepoints along their hints.
//  3. Merge contexts that appeared shorter than they are, because tracepoints in between were disabled, into the full
//     contexts.
//  4. Drop leaves beyond the limit, the least recently seen first, and lay out the rest in pre-order.
func (b *Builder) Build(c *Catalogue, table *trace.Table) *Tree {
	t := &treeBuild{builder: b, catalogue: c, table: table}
	if c == nil {
		t.catalogue = new(Catalogue)
	}
	if table == nil {
		t.table = new(trace.Table)
	}
	t.appeared()
	t.placeCatalogue()
	t.reconcile()
	tree := NewTree(t.layout(t.keep()))
	tree.unplaced = t.catalogue.unplaced
	tree.Requests, tree.Dropped = b.requests, t.dropped+b.refused
	return tree
}

// appeared builds the tree of contexts as they appeared. It drops and counts contexts whose parents are missing.
func (t *treeBuild) appeared() {
	below := make(map[trace.Context][]trace.Context)
	for _, ctx := range slices.Sorted(maps.Keys(t.builder.places)) {
		p := t.builder.places[ctx].parent
		below[p] = append(below[p], ctx)
	}
	type task struct {
		ctx    trace.Context
		parent int32
	}
	var queue []task
	for _, ctx := range below[0] {
		queue = append(queue, task{ctx, -1})
	}
	for k := 0; k < len(queue); k++ {
		i := t.addPlace(t.builder.places[queue[k].ctx], queue[k].parent)
		for _, ctx := range below[queue[k].ctx] {
			queue = append(queue, task{ctx, i})
		}
	}
	t.dropped += uint64(len(t.builder.places) - len(queue))
}

func (t *treeBuild) addPlace(p *place, parent int32) int32 {
	as := t.catalogue.point(p.tp)
	return t.add(buildNode{
		op:         p.op,
		tp:         p.tp,
		layer:      as.Layer,
		kind:       as.Kind,
		parent:     parent,
		seen:       p.seen,
		requests:   p.requests,
		hits:       p.hits,
		errors:     p.errors,
		unanswered: p.unanswered,
		history:    p.history,
		witnesses:  p.witnesses,
	})
}

func (t *treeBuild) add(n buildNode) int32 {
	i := int32(len(t.nodes))
	n.base = t.table.Base(n.op)
	t.nodes = append(t.nodes, n)
	if n.parent < 0 {
		t.roots = append(t.roots, i)
	} else {
		t.nodes[n.parent].children = append(t.nodes[n.parent].children, i)
	}
	return i
}

// placeCatalogue adds the tracepoints of the catalogue below every node that they belong to, including nodes that it
// has added itself. It works breadth-first, and stops adding once the number of nodes reaches twice the limit.
func (t *treeBuild) placeCatalogue() {
	c := t.catalogue
	for i := 0; i < len(t.nodes); i++ {
		n := t.nodes[i]
		if n.kind == VariablePoint {
			continue
		}
		if n.tp == 0 {
			t.placeAll(int32(i), c.byOwner[n.base])
			if id := c.base[n.base]; id != 0 {
				t.placeAll(int32(i), c.byHint[id])
			}
		} else {
			t.placeAll(int32(i), c.byHint[n.tp])
		}
		t.placeAll(int32(i), c.byOp[n.base])
	}
}

func (t *treeBuild) placeAll(parent int32, points []*point) {
	if len(points) == 0 {
		return
	}
	children := make(map[identity][]int32, len(t.nodes[parent].children))
	for _, k := range t.nodes[parent].children {
		id := t.nodes[k].identity()
		children[id] = append(children[id], k)
	}
	for _, p := range points {
		if len(t.nodes) >= 2*t.builder.limit() {
			t.dropped++
			continue
		}
		t.placeOne(parent, p, children)
	}
}

// placeOne marks the children with the identity of p as catalogued. If there is no such child, it adds one, unless p
// would be its own ancestor or too deep.
func (t *treeBuild) placeOne(parent int32, p *point, children map[identity][]int32) {
	n := buildNode{op: p.Op, tp: p.ID, layer: p.Layer, kind: p.Kind, catalogued: true, parent: parent}
	switch {
	case p.Kind == VariablePoint:
		n.op = trace.Op(p.ID)
	case p.Baseline:
		n.tp = 0
	default:
		n.unanchored = !p.hinted
	}
	same := identity{n.op, n.tp} // operations in a catalogue have no targets
	if there := children[same]; len(there) > 0 {
		for _, k := range there {
			t.nodes[k].catalogued = true
		}
		return
	}
	depth := 0
	for a := parent; a >= 0; a = t.nodes[a].parent {
		if t.nodes[a].identity() == same || depth > maxDepth {
			return
		}
		depth++
	}
	t.add(n)
}

// reconcile merges nodes that appeared while tracepoints above them were disabled into their full contexts. A child x
// of p merges into a descendant y of one of its siblings if both have the same operation, and if all nodes between p
// and y are switchable and were disabled whenever x appeared. Parents are processed before their children, so that
// whole subtrees move once.
func (t *treeBuild) reconcile() {
	queue := slices.Clone(t.roots)
	for k := 0; k < len(queue); k++ {
		p := queue[k]
		if t.mayHide(p) {
			t.reconcileChildren(p)
		}
		for _, c := range t.nodes[p].children {
			if !t.nodes[c].merged {
				queue = append(queue, c)
			}
		}
	}
}

// mayHide reports whether children of one of p's children may have appeared as children of p, because the tracepoint
// between them was disabled.
func (t *treeBuild) mayHide(p int32) bool {
	children := t.nodes[p].children
	return len(children) > 1 && slices.ContainsFunc(children, func(k int32) bool {
		return t.nodes[k].tp != 0 && len(t.nodes[k].children) > 0
	})
}

// identity is the operation of a node, without its target, and the tracepoint of the node.
type identity struct {
	base trace.Op
	tp   trace.Symbol
}

func (n *buildNode) identity() identity { return identity{n.base, n.tp} }

func (t *treeBuild) reconcileChildren(p int32) {
	hidden := t.hiddenBelow(p)
	for _, x := range slices.Clone(t.nodes[p].children) {
		n := t.nodes[x]
		if n.merged || n.kind == VariablePoint {
			continue
		}
		if n.requests == 0 && (n.layer != App || t.catalogue.point(n.tp).hinted) { // if hinted, its place is known
			continue
		}
		if y := t.fullOf(p, x, hidden[n.identity()]); y >= 0 {
			if n.requests > 0 {
				y = t.withTarget(y, n.op)
			}
			t.merge(y, x)
		}
	}
}

// hiddenBelow returns, by identity, the nodes at least two levels below p that are separated from it only by switchable
// nodes.
func (t *treeBuild) hiddenBelow(p int32) map[identity][]int32 {
	hidden := make(map[identity][]int32)
	var stack []int32
	push := func(i int32) {
		if t.nodes[i].tp != 0 && !t.nodes[i].merged {
			stack = append(stack, i)
		}
	}
	for _, k := range t.nodes[p].children {
		push(k)
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, k := range t.nodes[i].children {
			id := t.nodes[k].identity()
			hidden[id] = append(hidden[id], k)
			push(k)
		}
	}
	return hidden
}

// fullOf returns the node among ys that is the full context of x, a child of p, or −1 if there is no such node. All
// nodes between p and a full context were disabled whenever x appeared. fullOf prefers a node with the same target as
// x, and then the most frequently executed node. The targets may differ only if x never appeared, so that its target is
// unknown, or if the operation belongs there according to the catalogue.
func (t *treeBuild) fullOf(p, x int32, ys []int32) int32 {
	best := int32(-1)
	for _, y := range ys {
		n, m := &t.nodes[x], &t.nodes[y]
		if m.merged || n.op != m.op && n.requests > 0 && !m.catalogued || !t.between(p, x, y) {
			continue
		}
		if best < 0 || t.fuller(x, y, best) {
			best = y
		}
	}
	return best
}

// fuller reports whether y is a better full context of x than z.
func (t *treeBuild) fuller(x, y, z int32) bool {
	op, a, b := t.nodes[x].op, &t.nodes[y], &t.nodes[z]
	if (a.op == op) != (b.op == op) {
		return a.op == op
	}
	return cmp.Or(cmp.Compare(a.requests, b.requests), cmp.Compare(z, y)) > 0
}

// withTarget returns the node for step op with the parent and tracepoint of y, a step of the same operation. It
// returns y itself if y is that step already, or if y never appeared and can take the target. Otherwise it adds a node.
func (t *treeBuild) withTarget(y int32, op trace.Op) int32 {
	n := t.nodes[y]
	switch {
	case n.op == op:
		return y
	case n.requests == 0:
		t.nodes[y].op = op
		return y
	}
	return t.add(buildNode{
		op:         op,
		tp:         n.tp,
		layer:      n.layer,
		kind:       n.kind,
		catalogued: true,
		unanchored: n.unanchored,
		parent:     n.parent,
	})
}

// between reports whether all nodes between p and y differ from x and were disabled whenever x appeared.
func (t *treeBuild) between(p, x, y int32) bool {
	for a := t.nodes[y].parent; a != p; a = t.nodes[a].parent {
		if a < 0 || a == x || t.witnessed(x, t.nodes[a].tp) {
			return false
		}
	}
	return true
}

// witnessed reports whether x appeared while tp was enabled.
func (t *treeBuild) witnessed(x int32, tp trace.Symbol) bool {
	return slices.ContainsFunc(t.nodes[x].witnesses, func(h uint64) bool {
		s := t.builder.sets[h]
		return s != nil && s.has(tp)
	})
}

// merge moves the statistics and children of x to y.
func (t *treeBuild) merge(y, x int32) {
	from, to := &t.nodes[x], &t.nodes[y]
	from.merged = true
	to.catalogued = to.catalogued || from.catalogued
	to.seen = max(to.seen, from.seen)
	to.requests += from.requests
	to.hits += from.hits
	to.errors += from.errors
	to.unanswered += from.unanswered
	to.history.Merge(from.history)
	to.witnesses = append(slices.Clip(to.witnesses), from.witnesses...)
	for _, k := range from.children {
		if t.nodes[k].merged {
			continue
		}
		if same := t.child(y, t.nodes[k].op, t.nodes[k].tp); same >= 0 {
			t.merge(same, k)
			continue
		}
		t.nodes[k].parent = y
		t.nodes[y].children = append(t.nodes[y].children, k)
	}
}

func (t *treeBuild) child(p int32, op trace.Op, tp trace.Symbol) int32 {
	for _, k := range t.nodes[p].children {
		if n := &t.nodes[k]; !n.merged && n.op == op && n.tp == tp {
			return k
		}
	}
	return -1
}

// keep reports for each node whether it is kept. It drops the least recently seen leaves until the rest is within the
// limit. A node counts as seen whenever one of its descendants was, so descendants are dropped before their ancestors.
func (t *treeBuild) keep() []bool {
	order, depth := t.preorder()
	for _, i := range slices.Backward(order) {
		if p := t.nodes[i].parent; p >= 0 {
			t.nodes[p].seen = max(t.nodes[p].seen, t.nodes[i].seen)
		}
	}
	kept := make([]bool, len(t.nodes))
	for _, i := range order {
		kept[i] = true
	}
	excess := len(order) - t.builder.limit()
	if excess <= 0 {
		return kept
	}
	sorting.SliceStable(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(t.nodes[a].seen, t.nodes[b].seen), cmp.Compare(depth[b], depth[a]))
	})
	for _, i := range order[:excess] {
		kept[i] = false
	}
	t.dropped += uint64(excess)
	return kept
}

// preorder returns the nodes that haven't been merged into others, in pre-order, and the depth of each node. Siblings
// are ordered by layer, kind, operation and tracepoint.
func (t *treeBuild) preorder() (order, depth []int32) {
	depth = make([]int32, len(t.nodes))
	var stack []int32
	push := func(of []int32, at int32) {
		from := len(stack)
		for _, k := range of {
			if !t.nodes[k].merged {
				depth[k] = at
				stack = append(stack, k)
			}
		}
		sorting.Slice(stack[from:], func(a, b int32) int { return t.compareSiblings(&t.nodes[b], &t.nodes[a]) })
	}
	push(t.roots, 0)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		order = append(order, i)
		push(t.nodes[i].children, depth[i]+1)
	}
	return order, depth
}

func (t *treeBuild) compareSiblings(a, b *buildNode) int {
	return cmp.Or(cmp.Compare(a.layer, b.layer), cmp.Compare(a.kind, b.kind), cmp.Compare(a.op, b.op),
		cmp.Compare(a.tp, b.tp))
}

// layout returns the kept nodes in pre-order.
func (t *treeBuild) layout(kept []bool) []Node {
	order, _ := t.preorder()
	on := t.requestsOn()
	at := make([]int32, len(t.nodes))
	nodes := make([]Node, 0, len(order))
	for _, i := range order {
		if !kept[i] {
			continue
		}
		at[i] = int32(len(nodes))
		n := t.node(&t.nodes[i], on)
		if t.nodes[i].parent >= 0 {
			n.Parent = at[t.nodes[i].parent]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (t *treeBuild) node(f *buildNode, on map[trace.Symbol]uint64) Node {
	p := t.catalogue.point(f.tp)
	n := Node{
		Op:         f.op,
		Service:    t.table.Operation(f.op).Service,
		Tracepoint: f.tp,
		Parent:     -1,
		Layer:      f.layer,
		Kind:       f.kind,
		Catalogued: f.catalogued,
		Unanchored: f.unanchored && f.requests == 0,
		Seen:       f.seen,
		Requests:   t.builder.requests,
		Hits:       f.hits,
		Errors:     f.errors,
		Unanswered: f.unanswered,
		Bytes:      p.Bytes,
		Cost:       p.Cost,
		History:    f.history,
	}
	if f.tp != 0 {
		n.Requests = max(on[f.tp], f.requests)
	}
	return n
}

// requestsOn returns the number of requests with each tracepoint enabled.
func (t *treeBuild) requestsOn() map[trace.Symbol]uint64 {
	on := make(map[trace.Symbol]uint64, len(t.builder.before))
	for tp, n := range t.builder.before {
		on[tp] += n
	}
	for _, s := range t.builder.sets {
		for _, tp := range s.on {
			on[tp] += s.requests
		}
	}
	return on
}
