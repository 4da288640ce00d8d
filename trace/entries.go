package trace

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// entries holds the entries of one kind in a [Table]. The zero value is empty.
type entries[K cmp.Ordered, V any] struct {
	added  map[K]V // since the last call to freeze
	frozen map[K]V // not written to until thaw
}

func (e *entries[K, V]) get(k K) (v V, ok bool) {
	if v, ok = e.added[k]; !ok && e.frozen != nil {
		v, ok = e.frozen[k]
	}
	return v, ok
}

func (e *entries[K, V]) put(k K, v V) {
	if e.added == nil {
		e.added = make(map[K]V)
	}
	e.added[k] = v
}

func (e *entries[K, V]) has(k K) bool {
	_, ok := e.get(k)
	return ok
}

func (e *entries[K, V]) len() int { return len(e.added) + len(e.frozen) }

// all yields all entries, in no particular order.
func (e *entries[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, m := range []map[K]V{e.frozen, e.added} {
			for k, v := range m {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// each calls f for all entries in ascending order of their keys, so that a full table always refuses the same entries.
func (e *entries[K, V]) each(f func(K, V)) {
	keys := make([]K, 0, e.len())
	for k := range e.all() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		v, _ := e.get(k)
		f(k, v)
	}
}

func (e *entries[K, V]) clear() {
	clear(e.added)
	e.frozen = nil
}

// freeze returns the entries of e. Until thaw is called, they may be read while other entries are added to e.
func (e *entries[K, V]) freeze() entries[K, V] {
	e.thaw()
	e.frozen, e.added = e.added, nil
	return entries[K, V]{frozen: e.frozen}
}

// thaw merges the entries added since the call to freeze into the frozen ones. This invalidates the entries returned by
// freeze.
func (e *entries[K, V]) thaw() {
	if e.frozen != nil {
		maps.Copy(e.frozen, e.added)
		e.added, e.frozen = e.frozen, nil
	}
}

// Freeze returns a table with the entries of t. Until [Table.Thaw] is called, another goroutine may read it while t is
// in use.
func (t *Table) Freeze() *Table {
	return &Table{
		Limit:     t.Limit,
		refused:   t.refused,
		textBytes: t.textBytes,
		text:      t.text.freeze(),
		ops:       t.ops.freeze(),
		contexts:  t.contexts.freeze(),
		edges:     t.edges.freeze(),
	}
}

// Thaw ends the effect of [Table.Freeze] and invalidates the table that it returned.
func (t *Table) Thaw() {
	t.text.thaw()
	t.ops.thaw()
	t.contexts.thaw()
	t.edges.thaw()
}
