package engine

import (
	"cmp"
	"iter"
	"maps"
	"math"
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

	room  *cct.Room // for the contexts of all trees
	nodes int       // number of nodes in all cached builds
	uses  int       // sequence number of the latest use of a build
}

// tree collects the contexts of one request type, and caches the latest tree built from them.
type tree struct {
	builder cct.Builder
	built   *cct.Tree
	grown   bool // whether built is out of date
	used    int  // sequence number of the latest use of built
}

func newTrees(table *trace.Table, offers *Offers, contexts int) *Trees {
	return &Trees{
		table:  table,
		offers: offers,
		byType: make(map[analysis.Hash]*tree),
		room:   &cct.Room{Limit: cmp.Or(contexts, math.MaxInt)},
	}
}

// Contexts returns the number of contexts in all trees.
func (r *Trees) Contexts() int { return r.room.Used() }

// Refused returns how many times a new context has been dropped since the start because its tree, or all trees
// together, had no room for it.
func (r *Trees) Refused() int { return r.room.Refused() }

// add adds a tree for requestType with the contexts in b. If there isn't enough room, the tree drops the oldest
// contexts.
func (r *Trees) add(requestType analysis.Hash, b *cct.Builder) *tree {
	t := &tree{builder: *b, grown: true}
	t.builder.Limit = r.maxNodes()
	t.builder.Join(r.room)
	r.byType[requestType] = t
	return t
}

// maxNodes returns the maximum number of nodes of one tree.
func (r *Trees) maxNodes() int { return min(r.room.Limit, cct.DefaultLimit) }

// observe adds x, the contexts of a request, to the tree of its type.
func (r *Trees) observe(requestType analysis.Hash, x cct.Observation) {
	t := r.byType[requestType]
	if t == nil {
		t = r.add(requestType, &cct.Builder{})
	}
	t.grown = true
	t.builder.Observe(x)
}

// Of returns the up-to-date tree of requestType, building it if necessary, or nil if the type has no tree. If the
// cached builds exceed the room, it drops the least recently used ones.
func (r *Trees) Of(requestType analysis.Hash) *cct.Tree {
	t := r.byType[requestType]
	if t == nil {
		return nil
	}
	r.uses++
	t.used = r.uses
	if t.grown || t.built == nil {
		r.drop(t)
		t.built, t.grown = t.builder.Build(r.offers.catalogue, r.table), false
		r.nodes += len(t.built.Nodes)
	}
	for built := t.built; ; {
		last := r.dispensable(t)
		if last == nil {
			return built
		}
		r.drop(last)
	}
}

// roomy reports whether there is room for another build.
func (r *Trees) roomy() bool { return r.nodes < r.room.Limit }

// addOthers adds the latest build of each type missing from trees. If a type has no build, it builds one as long as
// there is room.
func (r *Trees) addOthers(trees map[analysis.Hash]*cct.Tree) {
	for _, id := range hashes(r.byType) {
		if trees[id] != nil {
			continue
		}
		if t := r.byType[id]; t.built != nil {
			trees[id] = t.built
		} else if r.roomy() {
			trees[id] = r.Of(id)
		}
	}
}

// dispensable returns the tree, other than t, whose build was used least recently. It returns nil if the builds fit
// into the room, or if no other tree has a build.
func (r *Trees) dispensable(t *tree) (last *tree) {
	if r.nodes <= r.room.Limit {
		return nil
	}
	for _, x := range r.byType {
		if x != t && x.built != nil && (last == nil || x.used < last.used) {
			last = x
		}
	}
	return last
}

// drop drops the build of t.
func (r *Trees) drop(t *tree) {
	if t.built != nil {
		r.nodes -= len(t.built.Nodes)
		t.built = nil
	}
}

// Built returns the latest build of the tree of requestType, or nil if there is no build. some reports whether the type
// has a tree.
func (r *Trees) Built(requestType analysis.Hash) (built *cct.Tree, some bool) {
	t := r.byType[requestType]
	if t == nil {
		return nil, false
	}
	return t.built, true
}

// All yields the latest builds by request type, in any order. It skips trees without a build.
func (r *Trees) All() iter.Seq2[analysis.Hash, *cct.Tree] {
	return func(yield func(analysis.Hash, *cct.Tree) bool) {
		for id, t := range r.byType {
			if t.built != nil && !yield(id, t.built) {
				return
			}
		}
	}
}

// inside returns a tree of the contexts inside operations, merged over types.
func (r *Trees) inside(types []analysis.Hash, operations map[trace.Op]bool) *cct.Tree {
	joined := cct.Builder{Limit: r.maxNodes()}
	for _, id := range types {
		if t := r.byType[id]; t != nil {
			joined.Merge(t.builder.Inside(operations))
		}
	}
	return joined.Build(r.offers.catalogue, r.table)
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

// outdate makes Of rebuild every tree. Until then, the builds refer to the new catalogue, so that the old one isn't
// kept in memory.
func (r *Trees) outdate() {
	for _, t := range r.byType {
		if t.grown = true; t.built != nil {
			t.built.Offer(r.offers.catalogue)
		}
	}
}

const (
	treeAging  = time.Hour     // time between two deletions of old contexts from trees
	shortAging = 2 * time.Hour // age at which contexts are deleted if there is little room
)

// age deletes the trees of unknown types and, every treeAging, old contexts from the other trees.
func (r *Trees) age(now trace.Nanos, known func(requestType analysis.Hash) bool) {
	maps.DeleteFunc(r.byType, func(id analysis.Hash, t *tree) bool {
		if known(id) {
			return false
		}
		r.drop(t)
		t.builder.Leave()
		return true
	})
	if now.Sub(r.aged) < treeAging {
		return
	}
	r.aged = now
	idle := cct.MaxAge
	if r.room.Short() {
		idle = shortAging
	}
	for _, t := range r.byType {
		t.builder.Age(now, idle)
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
		r.add(x.ID, b)
	}
	return nil
}
