package cct

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// draft is a node under construction. Drafts form a tree of index lists, because they move while it is reconciled.
type draft struct {
	op         trace.Op
	tp         trace.Symbol
	layer      Layer
	kind       TracepointKind
	catalogued bool
	floating   bool // placed below its operation for want of a hint
	dead       bool // merged into another
	parent     int32
	kids       []int32
	seen       trace.Nanos
	requests   uint64 // that executed it
	hits       uint64
	errors     uint64
	history    History
	reference  Reference
	witnesses  []uint64
}

// drafting is the state of one Build.
type drafting struct {
	*Builder
	catalogue *Catalogue
	drafts    []draft
	roots     []int32
	table     *trace.Table
	dropped   uint64
}

// Build returns the tree of everything that b knows and of what c, which may be nil, has for the operations in it; table, which may be nil, tells the services of operations. It is a
// function of the content of b and c, not of the order in which it was added. It takes O(n log n) for n nodes of moderate depth, however large the catalogue is, in four steps:
//
//  1. The contexts that appeared form a tree as they appeared.
//  2. Under every operation that owns catalogued tracepoints these are placed, along their hints.
//  3. Contexts that appeared shorter than they are, because tracepoints between were off, are merged into the full ones.
//  4. Leaves beyond the limit are dropped, the least recently seen first, and the rest is laid out in pre-order.
func (b *Builder) Build(c *Catalogue, table *trace.Table) *Tree {
	d := &drafting{Builder: b, catalogue: c, table: table}
	if c == nil {
		d.catalogue = new(Catalogue)
	}
	if table == nil {
		d.table = new(trace.Table)
	}
	d.appeared()
	d.placeCatalogue()
	d.reconcile()
	t := newTree(d.layout(d.keep()))
	t.loose = d.catalogue.loose
	t.Requests, t.Dropped = b.requests, d.dropped+b.refused
	return t
}

// appeared makes the tree of contexts as they appeared. Contexts without their parents are dropped and counted.
func (d *drafting) appeared() {
	below := make(map[trace.Context][]trace.Context)
	for _, ctx := range sortedKeys(d.places) {
		p := d.places[ctx].parent
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
		i := d.addPlace(d.places[queue[k].ctx], queue[k].parent)
		for _, ctx := range below[queue[k].ctx] {
			queue = append(queue, task{ctx, i})
		}
	}
	d.dropped += uint64(len(d.places) - len(queue))
}

func (d *drafting) addPlace(p *place, parent int32) int32 {
	as := d.catalogue.point(p.tp)
	return d.add(draft{
		op: p.op, tp: p.tp, layer: as.Layer, kind: as.Kind, parent: parent, seen: p.seen,
		requests: p.requests, hits: p.hits, errors: p.errors, history: p.history, reference: p.reference, witnesses: p.witnesses,
	})
}

func (d *drafting) add(n draft) int32 {
	i := int32(len(d.drafts))
	d.drafts = append(d.drafts, n)
	if n.parent < 0 {
		d.roots = append(d.roots, i)
	} else {
		d.drafts[n.parent].kids = append(d.drafts[n.parent].kids, i)
	}
	return i
}

// placeCatalogue adds the catalogue under every draft that it belongs to, including those that it adds, breadth first, until
// there are twice the limit.
func (d *drafting) placeCatalogue() {
	c := d.catalogue
	for i := 0; i < len(d.drafts); i++ {
		n := d.drafts[i]
		if n.kind == VariablePoint {
			continue
		}
		if n.tp == 0 {
			d.placeAll(int32(i), c.byOwner[n.op])
			if id := c.base[n.op]; id != 0 {
				d.placeAll(int32(i), c.byHint[id])
			}
		} else {
			d.placeAll(int32(i), c.byHint[n.tp])
		}
		d.placeAll(int32(i), c.byOp[n.op])
	}
}

func (d *drafting) placeAll(parent int32, points []*point) {
	if len(points) == 0 {
		return
	}
	kids := make(map[identity]int32, len(d.drafts[parent].kids))
	for _, k := range d.drafts[parent].kids {
		kids[identity{d.drafts[k].op, d.drafts[k].tp}] = k
	}
	for _, p := range points {
		if len(d.drafts) >= 2*d.limit() {
			d.dropped++
			continue
		}
		d.placeOne(parent, p, kids)
	}
}

// placeOne marks the one of kids that p describes as catalogued, adding it where it is missing and p is not among its own
// ancestors.
func (d *drafting) placeOne(parent int32, p *point, kids map[identity]int32) {
	n := draft{op: p.Op, tp: p.ID, layer: p.Layer, kind: p.Kind, catalogued: true, parent: parent}
	switch {
	case p.Kind == VariablePoint:
		n.op = trace.Op(p.ID)
	case p.Baseline:
		n.tp = 0
	default:
		n.floating = !p.hinted
	}
	if k, there := kids[identity{n.op, n.tp}]; there {
		d.drafts[k].catalogued = true
		return
	}
	depth := 0
	for a := parent; a >= 0; a = d.drafts[a].parent {
		if d.drafts[a].op == n.op && d.drafts[a].tp == n.tp || depth > maxDepth {
			return
		}
		depth++
	}
	d.add(n)
}

// reconcile merges every draft that is the same place as a deeper one seen without the tracepoints between: a sibling's
// descendant with the same operation, with only switchable drafts between that were off whenever the short one appeared.
// Parents come before their children, so that whole subtrees move once.
func (d *drafting) reconcile() {
	queue := slices.Clone(d.roots)
	for k := 0; k < len(queue); k++ {
		p := queue[k]
		if d.mayHide(p) {
			d.reconcileChildren(p)
		}
		for _, c := range d.drafts[p].kids {
			if !d.drafts[c].dead {
				queue = append(queue, c)
			}
		}
	}
}

// mayHide reports whether p has a child that may stand between p and another child, while off.
func (d *drafting) mayHide(p int32) bool {
	kids := d.drafts[p].kids
	return len(kids) > 1 && slices.ContainsFunc(kids, func(k int32) bool {
		return d.drafts[k].tp != 0 && len(d.drafts[k].kids) > 0
	})
}

type identity struct {
	op trace.Op
	tp trace.Symbol
}

func (d *drafting) reconcileChildren(p int32) {
	hidden := d.hiddenBelow(p)
	for _, x := range slices.Clone(d.drafts[p].kids) {
		n := &d.drafts[x]
		if n.dead || n.kind == VariablePoint || n.requests == 0 && (n.layer != App || d.catalogue.point(n.tp).hinted) { // hinted: it is not only somewhere under its operation
			continue
		}
		if y := d.fullOf(p, x, hidden[identity{n.op, n.tp}]); y >= 0 {
			d.merge(y, x)
		}
	}
}

// hiddenBelow returns the drafts at least two levels below p with only switchable drafts between, by identity.
func (d *drafting) hiddenBelow(p int32) map[identity][]int32 {
	hidden := make(map[identity][]int32)
	var stack []int32
	push := func(i int32) {
		if d.drafts[i].tp != 0 && !d.drafts[i].dead {
			stack = append(stack, i)
		}
	}
	for _, k := range d.drafts[p].kids {
		push(k)
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, k := range d.drafts[i].kids {
			id := identity{d.drafts[k].op, d.drafts[k].tp}
			hidden[id] = append(hidden[id], k)
			push(k)
		}
	}
	return hidden
}

// fullOf returns which of the drafts ys below p the short draft x is: the most frequent that x was not told apart from; -1 if
// none.
func (d *drafting) fullOf(p, x int32, ys []int32) int32 {
	best := int32(-1)
	for _, y := range ys {
		if d.drafts[y].dead || !d.between(p, x, y) {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(d.drafts[y].requests, d.drafts[best].requests), cmp.Compare(best, y)) > 0 {
			best = y
		}
	}
	return best
}

// between reports whether y hangs below p through drafts other than x that were off whenever x appeared.
func (d *drafting) between(p, x, y int32) bool {
	for a := d.drafts[y].parent; a != p; a = d.drafts[a].parent {
		if a < 0 || a == x || d.witnessed(x, d.drafts[a].tp) {
			return false
		}
	}
	return true
}

// witnessed reports whether x appeared while tp was on.
func (d *drafting) witnessed(x int32, tp trace.Symbol) bool {
	return slices.ContainsFunc(d.drafts[x].witnesses, func(h uint64) bool {
		s := d.sets[h]
		return s != nil && s.has(tp)
	})
}

// merge moves what is known of x and below it to y.
func (d *drafting) merge(y, x int32) {
	from, to := &d.drafts[x], &d.drafts[y]
	from.dead = true
	to.catalogued = to.catalogued || from.catalogued
	to.seen = max(to.seen, from.seen)
	to.requests += from.requests
	to.hits += from.hits
	to.errors += from.errors
	to.history.Merge(from.history)
	to.reference.Merge(from.reference)
	to.witnesses = append(slices.Clip(to.witnesses), from.witnesses...)
	for _, k := range from.kids {
		if d.drafts[k].dead {
			continue
		}
		if same := d.child(y, d.drafts[k].op, d.drafts[k].tp); same >= 0 {
			d.merge(same, k)
			continue
		}
		d.drafts[k].parent = y
		d.drafts[y].kids = append(d.drafts[y].kids, k)
	}
}

func (d *drafting) child(p int32, op trace.Op, tp trace.Symbol) int32 {
	for _, k := range d.drafts[p].kids {
		if n := &d.drafts[k]; !n.dead && n.op == op && n.tp == tp {
			return k
		}
	}
	return -1
}

// keep returns which drafts stay within the limit: leaves go first that were seen least recently. A draft counts as seen
// whenever one below it was, so that no draft goes before those below it.
func (d *drafting) keep() []bool {
	order, depth := d.preorder()
	for _, i := range slices.Backward(order) {
		if p := d.drafts[i].parent; p >= 0 {
			d.drafts[p].seen = max(d.drafts[p].seen, d.drafts[i].seen)
		}
	}
	kept := make([]bool, len(d.drafts))
	for _, i := range order {
		kept[i] = true
	}
	excess := len(order) - d.limit()
	if excess <= 0 {
		return kept
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(d.drafts[a].seen, d.drafts[b].seen), cmp.Compare(depth[b], depth[a]))
	})
	for _, i := range order[:excess] {
		kept[i] = false
	}
	d.dropped += uint64(excess)
	return kept
}

// preorder returns the living drafts in pre-order, siblings by layer, operation and tracepoint, and the depth of each draft.
func (d *drafting) preorder() (order, depth []int32) {
	depth = make([]int32, len(d.drafts))
	var stack []int32
	push := func(of []int32, at int32) {
		from := len(stack)
		for _, k := range of {
			if !d.drafts[k].dead {
				depth[k] = at
				stack = append(stack, k)
			}
		}
		slices.SortFunc(stack[from:], func(a, b int32) int { return d.compareSiblings(&d.drafts[b], &d.drafts[a]) })
	}
	push(d.roots, 0)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		order = append(order, i)
		push(d.drafts[i].kids, depth[i]+1)
	}
	return order, depth
}

func (d *drafting) compareSiblings(a, b *draft) int {
	return cmp.Or(cmp.Compare(a.layer, b.layer), cmp.Compare(a.kind, b.kind), cmp.Compare(a.op, b.op), cmp.Compare(a.tp, b.tp))
}

// layout returns the kept drafts as nodes in pre-order.
func (d *drafting) layout(kept []bool) []Node {
	order, _ := d.preorder()
	on := d.requestsOn()
	at := make([]int32, len(d.drafts))
	nodes := make([]Node, 0, len(order))
	for _, i := range order {
		if !kept[i] {
			continue
		}
		at[i] = int32(len(nodes))
		n := d.node(&d.drafts[i], on)
		if d.drafts[i].parent >= 0 {
			n.Parent = at[d.drafts[i].parent]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (d *drafting) node(f *draft, on map[trace.Symbol]uint64) Node {
	p := d.catalogue.point(f.tp)
	n := Node{
		Op: f.op, Service: d.table.Operation(f.op).Service, Tracepoint: f.tp, Parent: -1, Layer: f.layer, Kind: f.kind, Catalogued: f.catalogued,
		Floating: f.floating && f.requests == 0, Seen: f.seen,
		Requests: d.requests, Hits: f.hits, Errors: f.errors, Bytes: p.Bytes, Cost: p.Cost, History: f.history,
		Reference: f.reference,
	}
	if f.tp != 0 {
		n.Requests = max(on[f.tp]+on[0], f.requests)
	}
	return n
}

// requestsOn returns how many requests had each tracepoint on; under 0 those that had everything on.
func (d *drafting) requestsOn() map[trace.Symbol]uint64 {
	on := make(map[trace.Symbol]uint64, len(d.before))
	for tp, n := range d.before {
		on[tp] += n
	}
	for _, s := range d.sets {
		if s.all {
			on[0] += s.requests
		}
		for _, tp := range s.on {
			on[tp] += s.requests
		}
	}
	return on
}
