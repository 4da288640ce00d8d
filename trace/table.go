package trace

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Symbol identifies a string by a hash of its bytes. The zero Symbol is the empty string.
type Symbol uint64

// Op identifies an operation by a hash of service, normalised name and kind. An operation is a piece of code. A step of
// a request is an operation together with the operation that it calls, its target; [Op.To] identifies both in one Op.
// Zero is not an operation.
type Op uint64

// Context identifies a calling context, the path of operations from the root of a request to a span, by a hash of the
// parent's context and the operation. Zero is the empty path above every root.
type Context uint64

// Edge identifies a section of a critical path by a hash of the calling context and of the critical operations before
// and after it; see [EdgeInfo]. Zero is not an edge.
type Edge uint64

// SymbolOf returns the symbol of s without storing the text.
func SymbolOf(s []byte) Symbol {
	if len(s) == 0 {
		return 0
	}
	return Symbol(max(xxhash.Sum64(s), 1))
}

// symbolOf is like SymbolOf, but for a string.
func symbolOf(s string) Symbol {
	if s == "" {
		return 0
	}
	return Symbol(max(xxhash.Sum64String(s), 1))
}

// OpOf returns the identity of the operation with the given service, normalised name and kind.
func OpOf(service, name Symbol, kind Kind) Op {
	return Op(Mix(Mix(uint64(service), uint64(name)), uint64(kind)))
}

// To returns the identity of the step from op to target. It is op itself if target is 0.
func (op Op) To(target Op) Op {
	if target == 0 {
		return op
	}
	return Op(Mix(uint64(op), uint64(target)^stepSalt))
}

// stepSalt keeps the calling context of a step distinct from the edge between op and target.
const stepSalt = 0xbb67ae8584caa73b

// Child returns the context of op when called from c.
func (c Context) Child(op Op) Context { return Context(Mix(uint64(c), uint64(op))) }

// EdgeOf returns the identity of the edge at ctx between the critical operations before and after, where 0 means the
// start or the end of the span. EdgeOf(ctx, 0, 0) is the edge of a span without critical children.
func EdgeOf(ctx Context, before, after Op) Edge {
	return Edge(Mix(uint64(ctx), Mix(uint64(before), uint64(after))))
}

// ContextEdge returns the edge for all of ctx's own time, regardless of its position between children. The statistics
// of request types use these edges. They sort in the same order as their contexts.
func ContextEdge(ctx Context) Edge { return Edge(ctx) }

// Operation is the content of an [Op].
type Operation struct {
	Service, Name Symbol
	Kind          Kind
	// Target is the operation that a step calls. It is 0 for an operation, and for a step without a known target. A
	// target is never a step.
	Target Op
}

// id returns the Op that identifies o.
func (o Operation) id() Op { return OpOf(o.Service, o.Name, o.Kind).To(o.Target) }

// ContextInfo is the content of a [Context].
type ContextInfo struct {
	Parent Context
	Op     Op
}

// EdgeInfo is the content of an [Edge]: the own time of the span at Context between its critical children Before and
// After. Both are 0 for a [ContextEdge].
type EdgeInfo struct {
	Context       Context
	Before, After Op
}

// Table is the dictionary from identities to their content. Because identities are hashes of their content, tables
// filled independently never contradict each other and merge by union.
//
// A Table is bounded: once it holds Limit entries of a kind, 2×Limit texts, or 128×Limit bytes of text, it refuses and
// counts new entries until [Table.Forget] makes room. Refused entries appear under the name [Overflow] in reports. The
// zero Table is empty and has the limit [DefaultLimit]. A Table is not safe for concurrent use.
type Table struct {
	Limit int // maximum number of entries of each kind except texts; 0 means DefaultLimit

	text     entries[Symbol, string]
	ops      entries[Op, Operation]
	contexts entries[Context, ContextInfo]
	edges    entries[Edge, EdgeInfo]
	refused  int

	textBytes int // total length of the texts

	recording bool     // new symbols and operations are recorded for TakeAdditions
	newText   []Symbol // since the last call to TakeAdditions
	newOps    []Op

	renewed *renewals // nil before the first call to Renew
}

// DefaultLimit is the default limit of a [Table] for each kind of entry. It is far above the number of operations in
// real systems. Even a full table, with about 100 bytes per entry, is small compared with the statistics.
const DefaultLimit = 1 << 21

// Limits on the texts of a [Table]. There is room for two texts per operation: its name and the ID of its tracepoint.
const (
	textsPerName = 2
	bytesPerName = 128 // total bytes of these two texts; most names are shorter than 64 bytes
)

// Overflow is the name of every entry that a full [Table] refused.
const Overflow = "(other)"

// Room returns the maximum number of entries of each kind except texts.
func (t *Table) Room() int { return t.limit() }

// Contains reports whether t contains sym.
func (t *Table) Contains(sym Symbol) bool {
	return sym == 0 || t.text.has(sym)
}

// Refused returns the number of entries refused because the table was full. It may count the same entry many times.
func (t *Table) Refused() int { return t.refused }

// Symbol stores s and returns its symbol.
func (t *Table) Symbol(s string) Symbol {
	sym := symbolOf(s)
	if sym != 0 {
		t.addText(sym, s)
	}
	return sym
}

func (t *Table) addText(sym Symbol, s string) {
	switch {
	case t.text.has(sym):
	case t.textBytes+len(s) > bytesPerName*t.limit():
		t.refused++
		return
	case !add(t, &t.text, textsPerName*t.limit(), sym, s):
		return
	default:
		t.textBytes += len(s)
		if t.recording {
			t.newText = append(t.newText, sym)
		}
	}
	t.renewed.add(uint64(sym))
}

// SymbolBytes is like Symbol, but for bytes. It copies s only if necessary.
func (t *Table) SymbolBytes(s []byte) Symbol {
	sym := SymbolOf(s)
	if sym == 0 {
		return 0
	}
	if !t.text.has(sym) || t.renewed != nil {
		t.addText(sym, string(s))
	}
	return sym
}

// Op stores the operation with the given service, name and kind and returns its identity. It does not normalise name;
// see [NormalName].
func (t *Table) Op(service, name Symbol, kind Kind) Op {
	return t.addOp(Operation{Service: service, Name: name, Kind: kind})
}

// Step stores the step from op to target and returns its identity. It stores nothing if target is 0 or t does not
// contain op.
func (t *Table) Step(op, target Op) Op {
	if o, ok := t.ops.get(op); ok && target != 0 {
		o.Target = target
		return t.addOp(o)
	}
	return op.To(target)
}

func (t *Table) addOp(o Operation) Op {
	op := o.id()
	t.putOp(op, o)
	return op
}

func (t *Table) putOp(op Op, o Operation) {
	if add(t, &t.ops, t.limit(), op, o) && t.recording {
		t.newOps = append(t.newOps, op)
	}
	if t.ops.has(op) {
		t.renewed.add(uint64(op))
	}
}

// Base returns step without its target. It returns step itself if it has no target or if t doesn't contain it.
func (t *Table) Base(step Op) Op {
	if o := t.Operation(step); o.Target != 0 {
		return OpOf(o.Service, o.Name, o.Kind)
	}
	return step
}

// Target returns the target of step, or 0 if it has none or t doesn't contain it.
func (t *Table) Target(step Op) Op { return t.Operation(step).Target }

// Child stores the context of op when called from parent and returns its identity.
func (t *Table) Child(parent Context, op Op) Context {
	ctx := parent.Child(op)
	t.AddContext(ctx, parent, op)
	return ctx
}

// AddEdge stores the content of e. It does nothing if e is a [ContextEdge]: [Table.EdgeInfo] derives its content.
func (t *Table) AddEdge(e Edge, info EdgeInfo) {
	if e != ContextEdge(info.Context) {
		add(t, &t.edges, t.limit(), e, info)
	}
}

// AddContext stores the content of ctx.
func (t *Table) AddContext(ctx, parent Context, op Op) {
	add(t, &t.contexts, t.limit(), ctx, ContextInfo{Parent: parent, Op: op})
}

// Text returns the string of sym, or [Overflow] if t does not contain it.
func (t *Table) Text(sym Symbol) string {
	if sym == 0 {
		return ""
	}
	if s, ok := t.text.get(sym); ok {
		return s
	}
	return Overflow
}

// HostOf returns the symbol of the first part of sym's text if the text looks like an address, e.g. cart for
// cart.default.svc:7070. Otherwise it returns sym.
func (t *Table) HostOf(sym Symbol) Symbol {
	text := t.Text(sym)
	if end := strings.IndexAny(text, ".:"); end > 0 {
		return SymbolOf([]byte(text[:end]))
	}
	return sym
}

// Operation returns the content of op, or the zero Operation if t does not contain it.
func (t *Table) Operation(op Op) Operation {
	o, _ := t.ops.get(op)
	return o
}

// Context returns the content of ctx, or the zero ContextInfo if t does not contain it.
func (t *Table) Context(ctx Context) ContextInfo {
	info, _ := t.contexts.get(ctx)
	return info
}

// EdgeInfo returns the content of e, or the zero EdgeInfo if t does not contain e. t contains a [ContextEdge] if it
// contains its context.
func (t *Table) EdgeInfo(e Edge) EdgeInfo {
	info, ok := t.edges.get(e)
	if !ok && t.contexts.has(Context(e)) {
		return EdgeInfo{Context: Context(e)}
	}
	return info
}

// ServiceName returns the name of op's service, or "" if t does not contain op.
func (t *Table) ServiceName(op Op) string { return t.Text(t.Operation(op).Service) }

// OpName returns the name of op without its service, or [Overflow] if t does not contain it.
func (t *Table) OpName(op Op) string {
	o, ok := t.ops.get(op)
	if !ok && op != 0 {
		return Overflow
	}
	return t.Text(o.Name)
}

// Path returns the operations from the root to ctx, root first. The path is empty for the zero context. If t lacks an
// ancestor, the path starts below the nearest missing one.
func (t *Table) Path(ctx Context) []Op {
	var path []Op
	for ctx != 0 && len(path) < maxPath {
		info, ok := t.contexts.get(ctx)
		if !ok {
			break
		}
		path = append(path, info.Op)
		ctx = info.Parent
	}
	slices.Reverse(path)
	return path
}

// maxPath limits the length of a path, in case a hash collision makes contexts form a cycle.
const maxPath = 1 << 20

// Merge adds all entries of u to t, as far as there is room.
func (t *Table) Merge(u *Table) {
	u.text.each(t.addText)
	u.ops.each(t.putOp)
	u.contexts.each(func(c Context, info ContextInfo) { add(t, &t.contexts, t.limit(), c, info) })
	u.edges.each(t.AddEdge)
	t.refused += u.refused
}

// Clear deletes all entries, including those that [Table.TakeAdditions] would return.
func (t *Table) Clear() {
	t.text.clear()
	t.ops.clear()
	t.contexts.clear()
	t.edges.clear()
	t.textBytes = 0
	t.newText, t.newOps = t.newText[:0], t.newOps[:0]
}

// RecordAdditions makes t record the symbols and operations added from then on, for [Table.TakeAdditions].
func (t *Table) RecordAdditions() { t.recording = true }

// TakeAdditions returns a new table with the symbols and operations added since the last call, or since
// [Table.RecordAdditions]. It returns nil if nothing was added.
func (t *Table) TakeAdditions() *Table {
	if len(t.newText) == 0 && len(t.newOps) == 0 {
		return nil
	}
	added := &Table{}
	for _, sym := range t.newText {
		added.text.put(sym, t.Text(sym))
	}
	for _, op := range t.newOps {
		added.ops.put(op, t.Operation(op))
	}
	t.newText, t.newOps = t.newText[:0], t.newOps[:0]
	return added
}

// add stores v under k, unless k is present or the number of entries has reached limit, and reports whether it stored
// v.
func add[K cmp.Ordered, V any](t *Table, to *entries[K, V], limit int, k K, v V) bool {
	if to.has(k) {
		return false
	}
	if to.len() >= limit {
		t.refused++
		return false
	}
	to.put(k, v)
	return true
}

func (t *Table) limit() int { return cmp.Or(t.Limit, DefaultLimit) }
