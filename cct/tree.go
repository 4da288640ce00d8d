package cct

import (
	"cmp"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Tree is the calling-context tree of a request type, in pre-order: the subtree of node i is Nodes[i:Nodes[i].End].
// Siblings are ordered by layer, kind, operation and tracepoint. A Tree is immutable once built, except for
// [Tree.Offer], and safe to share.
type Tree struct {
	Nodes       []Node
	Version     uint64 // hash of the tree's shape: equal for equal sets of contexts and tracepoints
	Requests    uint64 // number of requests observed
	Tracepoints int    // number of distinct tracepoints that can be enabled
	Dropped     uint64 // contexts dropped because the tree was full

	byContext    []int32         // nodes ascending by Context
	byTracepoint []int32         // nodes with a tracepoint, ascending by (Tracepoint, index)
	byBaseline   []int32         // baseline nodes ascending by baseline context
	baseline     []trace.Context // by node: context while all tracepoints are disabled
	unplaced     unplacedIndex   // shared with the catalogue
	services     []trace.Symbol  // of the nodes, ascending and distinct
}

// Unplaced yields the catalogued tracepoints that may run anywhere in service, ascending by ID. Their agents announce
// neither an operation nor a caller for them, as with kernel probes of a process. The tree has nodes for them only
// where requests have executed them.
func (t *Tree) Unplaced(service trace.Symbol) iter.Seq[*Tracepoint] {
	entries := t.unplaced.entries
	at, _ := slices.BinarySearchFunc(entries, service, func(e unplacedEntry, s trace.Symbol) int {
		return cmp.Compare(e.service, s)
	})
	return func(yield func(*Tracepoint) bool) {
		for ; at < len(entries) && entries[at].service == service; at++ {
			if !yield(&entries[at].Tracepoint) {
				return
			}
		}
	}
}

// Offer makes [Tree.Unplaced] and [Tree.FindUnplaced] use catalogue c from now on.
func (t *Tree) Offer(c *Catalogue) { t.unplaced = c.unplaced }

// HasService reports whether an operation of service is in the tree.
func (t *Tree) HasService(service trace.Symbol) bool {
	_, found := slices.BinarySearch(t.services, service)
	return found
}

// FindUnplaced returns the catalogue's entry for tp, and its service, if [Tree.Unplaced] yields tp for that service.
// Otherwise it returns nil and 0.
func (t *Tree) FindUnplaced(tp trace.Symbol) (point *Tracepoint, service trace.Symbol) {
	x := &t.unplaced
	at, found := slices.BinarySearchFunc(x.byID, tp,
		func(i int32, tp trace.Symbol) int { return cmp.Compare(x.entries[i].ID, tp) })
	if !found {
		return nil, 0
	}
	e := &x.entries[x.byID[at]]
	return &e.Tracepoint, e.service
}

// NewTree returns the tree of nodes, which must be in pre-order and have Parent, Op and Tracepoint set. It sets their
// End, Depth and Context. The tree takes ownership of nodes.
func NewTree(nodes []Node) *Tree {
	t := &Tree{
		Nodes: nodes, byContext: make([]int32, len(nodes)), baseline: make([]trace.Context, len(nodes)),
	}
	for i := range nodes {
		t.complete(int32(i))
	}
	for i := range slices.Backward(nodes) {
		if p := nodes[i].Parent; p >= 0 {
			nodes[p].End = max(nodes[p].End, nodes[i].End)
		}
	}
	sorting.Slice(t.byContext, func(a, b int32) int {
		return cmp.Or(cmp.Compare(nodes[a].Context, nodes[b].Context), cmp.Compare(a, b))
	})
	sorting.Slice(t.byTracepoint, func(a, b int32) int {
		return cmp.Or(cmp.Compare(nodes[a].Tracepoint, nodes[b].Tracepoint), cmp.Compare(a, b))
	})
	sorting.Slice(t.byBaseline, func(a, b int32) int {
		return cmp.Or(cmp.Compare(t.baseline[a], t.baseline[b]), cmp.Compare(a, b))
	})
	t.Tracepoints = t.countTracepoints()
	for i := range nodes {
		if at, found := slices.BinarySearch(t.services, nodes[i].Service); !found {
			t.services = slices.Insert(t.services, at, nodes[i].Service)
		}
	}
	return t
}

func (t *Tree) complete(i int32) {
	n := &t.Nodes[i]
	var above, base trace.Context
	n.Depth, n.End = 0, i+1
	if n.Parent >= 0 {
		p := &t.Nodes[n.Parent]
		above, base, n.Depth = p.Context, t.baseline[n.Parent], p.Depth+1
	}
	n.Context = above.Child(n.Op)
	if n.Baseline() {
		base = base.Child(n.Op)
		t.byBaseline = append(t.byBaseline, i)
	} else {
		t.byTracepoint = append(t.byTracepoint, i)
	}
	t.baseline[i] = base
	t.byContext[i] = i
	t.Version = trace.Mix(t.Version, trace.Mix(uint64(n.Context), uint64(n.Tracepoint)))
}

func (t *Tree) countTracepoints() int {
	count := 0
	for k, i := range t.byTracepoint {
		if k == 0 || t.Nodes[i].Tracepoint != t.Nodes[t.byTracepoint[k-1]].Tracepoint {
			count++
		}
	}
	return count
}

// Children yields the children of node i, in order.
func (t *Tree) Children(i int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for c := i + 1; c < t.Nodes[i].End; c = t.Nodes[c].End {
			if !yield(c) {
				return
			}
		}
	}
}

// Find returns the node with the full context ctx, or -1 if there is no such node.
func (t *Tree) Find(ctx trace.Context) int32 {
	at, found := slices.BinarySearchFunc(t.byContext, ctx, func(i int32, ctx trace.Context) int {
		return cmp.Compare(t.Nodes[i].Context, ctx)
	})
	if !found {
		return -1
	}
	return t.byContext[at]
}

// At returns the nodes of tracepoint tp, ascending, or nil if it has no nodes. The tree owns the slice.
func (t *Tree) At(tp trace.Symbol) []int32 {
	compare := func(i int32, tp trace.Symbol) int { return cmp.Compare(t.Nodes[i].Tracepoint, tp) }
	from, found := slices.BinarySearchFunc(t.byTracepoint, tp, compare)
	if !found {
		return nil
	}
	to := from
	for to < len(t.byTracepoint) && t.Nodes[t.byTracepoint[to]].Tracepoint == tp {
		to++
	}
	return t.byTracepoint[from:to]
}

// Path returns the operations from the root to node i, root first.
func (t *Tree) Path(i int32) []trace.Op {
	path := make([]trace.Op, t.Nodes[i].Depth+1)
	for ; i >= 0; i = t.Nodes[i].Parent {
		path[t.Nodes[i].Depth] = t.Nodes[i].Op
	}
	return path
}
