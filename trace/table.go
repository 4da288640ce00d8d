package trace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Symbol is the identity of a string: a hash of its bytes. The zero Symbol is the empty string.
type Symbol uint64

// Op is the identity of an operation: a hash of service, normalised name and kind. Zero means none.
type Op uint64

// Context is the identity of a calling context, the path of operations from the root of a request to a place in it: a hash of
// the parent's context and the operation. Zero is the empty path above every root.
type Context uint64

// Edge is the identity of a place on a critical path: a hash of the calling context and of the critical operations before
// and after (see [EdgeInfo]). Zero means none.
type Edge uint64

// SymbolOf returns the symbol of s without storing its text.
func SymbolOf(s []byte) Symbol {
	if len(s) == 0 {
		return 0
	}
	return Symbol(max(xxhash.Sum64(s), 1))
}

// symbolOf is SymbolOf for strings.
func symbolOf(s string) Symbol {
	if s == "" {
		return 0
	}
	return Symbol(max(xxhash.Sum64String(s), 1))
}

// OpOf returns the identity of the operation of the given service, normalised name and kind.
func OpOf(service, name Symbol, kind Kind) Op {
	return Op(Mix(Mix(uint64(service), uint64(name)), uint64(kind)))
}

// Child returns the context of op when it is called from c.
func (c Context) Child(op Op) Context { return Context(Mix(uint64(c), uint64(op))) }

// EdgeOf returns the identity of the edge at ctx between the critical operations before and after, either of which is 0 at
// the start or the end of its span. EdgeOf(ctx, 0, 0) is the edge of a span that waits for no critical child.
func EdgeOf(ctx Context, before, after Op) Edge {
	return Edge(Mix(uint64(ctx), Mix(uint64(before), uint64(after))))
}

// WholeEdge returns the edge that stands for all of ctx's own time, wherever it lies between its children: what the statistics
// of a request type as a whole are kept for. Whole edges are ordered as their contexts are.
func WholeEdge(ctx Context) Edge { return Edge(ctx) }

// Operation is what an [Op] stands for.
type Operation struct {
	Service, Name Symbol
	Kind          Kind
}

// ContextInfo is what a [Context] stands for.
type ContextInfo struct {
	Parent Context
	Op     Op
}

// EdgeInfo is what an [Edge] stands for: the time that the span at Context spent itself between its critical child Before
// and its critical child After; both are 0 for a whole edge.
type EdgeInfo struct {
	Context       Context
	Before, After Op
	// Callee is the operation of the SERVER child where Context ends in a CLIENT span that has one. The time of the edge is then
	// spent on the wire or in the callee's queue. Else 0.
	Callee Op
}

// Table is the dictionary from identities to what they stand for. Because identities are hashes of their content, tables
// that were filled apart hold no contradiction and merge by union.
//
// A Table is bounded: once it holds Limit entries of a sort, new ones are refused and counted, and stand under the name
// [Overflow] in reports. The zero Table is empty and holds up to [DefaultLimit] entries of each sort. It is not safe for
// concurrent use.
type Table struct {
	Limit int // most entries of each sort; 0: DefaultLimit

	text     map[Symbol]string
	ops      map[Op]Operation
	contexts map[Context]ContextInfo
	edges    map[Edge]EdgeInfo
	refused  int

	following bool     // what is new is remembered, for News
	newText   []Symbol // since the last call of News
	newOps    []Op
}

// DefaultLimit bounds each sort of entry of a [Table]: far more than an estate of services has operations, and at about
// 100 bytes an entry still small beside the statistics.
const DefaultLimit = 1 << 20

// Overflow is the name of whatever a full [Table] could not take.
const Overflow = "(other)"

// Refused returns how many entries a full table turned away (the same entry may be counted many times).
func (t *Table) Refused() int { return t.refused }

// Symbol stores s and returns its symbol.
func (t *Table) Symbol(s string) Symbol {
	sym := symbolOf(s)
	if sym != 0 && add(t, &t.text, sym, s) && t.following {
		t.newText = append(t.newText, sym)
	}
	return sym
}

// SymbolBytes is Symbol for bytes; it copies them only when they are new.
func (t *Table) SymbolBytes(s []byte) Symbol {
	sym := SymbolOf(s)
	if sym == 0 {
		return 0
	}
	if _, ok := t.text[sym]; !ok && add(t, &t.text, sym, string(s)) && t.following {
		t.newText = append(t.newText, sym)
	}
	return sym
}

// Op stores the operation of the given service, name and kind and returns its identity. The name is taken as it is; see
// [NormalName].
func (t *Table) Op(service, name Symbol, kind Kind) Op {
	op := OpOf(service, name, kind)
	if add(t, &t.ops, op, Operation{Service: service, Name: name, Kind: kind}) && t.following {
		t.newOps = append(t.newOps, op)
	}
	return op
}

// Child stores the context of op when called from parent and returns its identity.
func (t *Table) Child(parent Context, op Op) Context {
	ctx := parent.Child(op)
	t.AddContext(ctx, parent, op)
	return ctx
}

// AddEdge stores what e stands for. Callee is not part of an edge's identity: of several, the greatest stands, so that the order
// of arrival does not matter.
func (t *Table) AddEdge(e Edge, info EdgeInfo) {
	if known, ok := t.edges[e]; ok {
		if info.Callee > known.Callee {
			t.edges[e] = info
		}
		return
	}
	add(t, &t.edges, e, info)
}

// AddContext stores what ctx stands for.
func (t *Table) AddContext(ctx, parent Context, op Op) {
	add(t, &t.contexts, ctx, ContextInfo{Parent: parent, Op: op})
}

// Text returns the string that sym stands for; [Overflow] if t does not know it.
func (t *Table) Text(sym Symbol) string {
	if sym == 0 {
		return ""
	}
	if s, ok := t.text[sym]; ok {
		return s
	}
	return Overflow
}

// Operation returns what op stands for; the zero Operation if t does not know it.
func (t *Table) Operation(op Op) Operation { return t.ops[op] }

// Context returns what ctx stands for; the zero ContextInfo if t does not know it.
func (t *Table) Context(ctx Context) ContextInfo { return t.contexts[ctx] }

// EdgeInfo returns what e stands for; the zero EdgeInfo if t does not know it.
func (t *Table) EdgeInfo(e Edge) EdgeInfo { return t.edges[e] }

// ServiceName returns the name of op's service.
func (t *Table) ServiceName(op Op) string { return t.Text(t.ops[op].Service) }

// OpName returns op's name without its service.
func (t *Table) OpName(op Op) string {
	o, ok := t.ops[op]
	if !ok && op != 0 {
		return Overflow
	}
	return t.Text(o.Name)
}

// Path returns the operations from the root to ctx, root first. It is empty for the zero context, and begins below the
// nearest ancestor that t does not know.
func (t *Table) Path(ctx Context) []Op {
	var path []Op
	for ctx != 0 && len(path) < maxPath {
		info, ok := t.contexts[ctx]
		if !ok {
			break
		}
		path = append(path, info.Op)
		ctx = info.Parent
	}
	slices.Reverse(path)
	return path
}

// maxPath ends a walk up a table whose contexts, by a collision of hashes, form a cycle.
const maxPath = 1 << 20

// Merge adds all entries of u to t.
func (t *Table) Merge(u *Table) {
	merge(t, &t.text, u.text)
	merge(t, &t.ops, u.ops)
	merge(t, &t.contexts, u.contexts)
	for _, e := range slices.Sorted(maps.Keys(u.edges)) {
		t.AddEdge(e, u.edges[e])
	}
	t.refused += u.refused
}

// Follow makes t remember what is new from now on, for [Table.News].
func (t *Table) Follow() { t.following = true }

// News returns the symbols and operations that t took since the last call, or since [Table.Follow], in a table of their own; nil if there
// are none.
func (t *Table) News() *Table {
	if len(t.newText) == 0 && len(t.newOps) == 0 {
		return nil
	}
	news := &Table{}
	for _, sym := range t.newText {
		add(news, &news.text, sym, t.text[sym])
	}
	for _, op := range t.newOps {
		add(news, &news.ops, op, t.ops[op])
	}
	t.newText, t.newOps = t.newText[:0], t.newOps[:0]
	return news
}

// add stores v under k unless it is there or the table is full, and reports whether it did.
func add[K comparable, V any](t *Table, m *map[K]V, k K, v V) bool {
	if _, ok := (*m)[k]; ok {
		return false
	}
	limit := t.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	if len(*m) >= limit {
		t.refused++
		return false
	}
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
	return true
}

// merge adds entries in ascending order: what a full table refuses is the same every time.
func merge[K cmp.Ordered, V any](t *Table, m *map[K]V, from map[K]V) {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		add(t, m, k, from[k])
	}
}
