package engine

import (
	"iter"
	"maps"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Trees holds a calling-context tree for each request type.
type Trees struct {
	table  *trace.Table
	offers *Offers
	byType map[analysis.Hash]*tree
	aged   trace.Nanos // when old contexts were last deleted
}

// tree collects the contexts of one request type, and caches the latest build of their tree.
type tree struct {
	builder cct.Builder
	built   *cct.Tree
	grown   bool // since the latest build
}

// observe adds x, the contexts of a request, to the tree of its type.
func (r *Trees) observe(requestType analysis.Hash, x cct.Observation) {
	t := r.byType[requestType]
	if t == nil {
		t = &tree{}
		r.byType[requestType] = t
	}
	t.grown = true
	t.builder.Observe(x)
}

// Of returns the up-to-date tree of requestType, building it if necessary, or nil if the type has no tree.
func (r *Trees) Of(requestType analysis.Hash) *cct.Tree {
	t := r.byType[requestType]
	if t == nil {
		return nil
	}
	if t.grown {
		t.built, t.grown = t.builder.Build(r.offers.indexed, r.table), false
	}
	return t.built
}

// Built returns the latest build of the tree of requestType, or nil if it was never built. some reports whether the
// type has a tree.
func (r *Trees) Built(requestType analysis.Hash) (built *cct.Tree, some bool) {
	t := r.byType[requestType]
	if t == nil {
		return nil, false
	}
	return t.built, true
}

// All yields the latest builds by request type, in any order. It skips trees that were never built.
func (r *Trees) All() iter.Seq2[analysis.Hash, *cct.Tree] {
	return func(yield func(analysis.Hash, *cct.Tree) bool) {
		for id, t := range r.byType {
			if t.built != nil && !yield(id, t.built) {
				return
			}
		}
	}
}

// inside returns the tree inside operations, joined over types.
func (r *Trees) inside(types []analysis.Hash, operations map[trace.Op]bool) *cct.Tree {
	var joined cct.Builder
	for _, id := range types {
		if t := r.byType[id]; t != nil {
			joined.Merge(t.builder.Inside(operations))
		}
	}
	return joined.Build(r.offers.indexed, r.table)
}

// learn adds results, the evidence from an investigation, to the tree of requestType, if there is one.
func (r *Trees) learn(requestType analysis.Hash, results map[trace.Context]cct.History) {
	if t := r.byType[requestType]; t != nil {
		for ctx, h := range results {
			t.builder.Learn(ctx, h)
		}
		t.grown = true
	}
}

// learnInside adds results, the evidence from an investigation inside operations, to the trees of types.
func (r *Trees) learnInside(
	types []analysis.Hash, operations map[trace.Op]bool, results map[trace.Context]cct.History,
) {
	for _, id := range types {
		if t := r.byType[id]; t != nil && t.builder.LearnInside(operations, results) {
			t.grown = true
		}
	}
}

// outdate makes Of rebuild every tree.
func (r *Trees) outdate() {
	for _, t := range r.byType {
		t.grown = true
	}
}

// treeAging is the time between two deletions of old contexts from trees.
const treeAging = time.Hour

// age deletes the trees of types that aren't known and, every treeAging, old contexts from the others.
func (r *Trees) age(now trace.Nanos, known func(requestType analysis.Hash) bool) {
	maps.DeleteFunc(r.byType, func(id analysis.Hash, _ *tree) bool { return !known(id) })
	if now.Sub(r.aged) < treeAging {
		return
	}
	r.aged = now
	for _, t := range r.byType {
		t.builder.Age(now)
		t.grown = true
	}
}

// save implements section.
func (r *Trees) save(s *savedCore) {
	s.Aged = r.aged
	for _, id := range hashes(r.byType) {
		s.Trees = append(s.Trees, savedPart{id, r.byType[id].builder.AppendBinary(nil)})
	}
}

// restore implements section.
func (r *Trees) restore(s *savedCore) error {
	r.aged = s.Aged
	for _, x := range s.Trees {
		b, err := cct.Decode(x.Data)
		if err != nil {
			return err
		}
		r.byType[x.ID] = &tree{builder: *b, grown: true}
	}
	return nil
}
