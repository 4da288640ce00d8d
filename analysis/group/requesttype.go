package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// RequestTypes learns which request types there are and then says of each request which it is.
//
// A request type is an entry operation. Where one entry operation serves many purposes (a gateway), it is refined by the
// set of operations among the entry's children: the sets are clustered by Jaccard similarity, the most frequent first, and
// each cluster is a type of its own. What was learned stays as it is after [RequestTypes.Freeze], so that a request's type
// does not depend on when it arrived.
//
// The zero value is ready to learn. It is not safe for concurrent use.
type RequestTypes struct {
	Rules   *RuleSet                 // go before what is learned; nil: there are none
	Cut     uint64                   // requests of which some children were left out, as there were too many
	entries map[trace.Op]*entryTypes // fewer than 2·maxEntries
	beyond  trace.Op                 // entry operations above it are not refined, as there were too many; 0: all are
	frozen  bool
}

// Bounds on what is learned.
const (
	maxEntries      = 1 << 16 // entry operations: those with the smallest identities; further ones are not refined
	maxChildren     = 1 << 10 // operations in a set: the smallest ones
	maxChildSets    = 4096    // distinct sets of children of an entry operation: those with the smallest hashes, whatever comes first
	maxTypesOfEntry = 64      // clusters; sets beyond belong to the last type, "all the rest"
)

// joinSimilarity is the Jaccard similarity from which a set of children joins a cluster: more in common than not.
const joinSimilarity = 0.5

type entryTypes struct {
	sets  map[analysis.Hash]*childSet // fewer than 2·maxChildSets
	limit analysis.Hash               // the least hash of a set that was dropped; zero: none was
	types []RequestType               // by falling count; set by Freeze
	rest  analysis.Hash               // the type of sets that resemble none
	// known maps every set seen to its type: what was learned, and since then as a cache.
	known map[analysis.Hash]analysis.Hash
}

type childSet struct {
	ops   []trace.Op // ascending
	count uint64
}

// RequestType is what kind of request a trace is.
type RequestType struct {
	ID       analysis.Hash
	Entry    trace.Op
	Children []trace.Op // the set that the cluster is built around; ascending
	Count    uint64     // requests it was learned from
}

// Learn counts the request. After [RequestTypes.Freeze] it does nothing.
func (r *RequestTypes) Learn(o *observation.Observation) {
	if e := r.entry(o.Entry); e != nil {
		ops := childrenOf(o)
		if len(ops) < len(o.Children) {
			r.Cut++
		}
		e.add(analysis.HashOf(ops...), ops, 1)
	}
}

// childrenOf returns the operations of the children of o's entry that count.
func childrenOf(o *observation.Observation) []trace.Op {
	return o.Children[:min(len(o.Children), maxChildren)]
}

// entry returns what is learned about an entry operation; nil where nothing is, or can be, learned.
func (r *RequestTypes) entry(op trace.Op) *entryTypes {
	if r.frozen || r.beyond != 0 && op > r.beyond {
		return nil
	}
	e := r.entries[op]
	if e == nil {
		if r.entries == nil {
			r.entries = make(map[trace.Op]*entryTypes)
		}
		e = &entryTypes{sets: make(map[analysis.Hash]*childSet)}
		r.entries[op] = e
		if len(r.entries) == 2*maxEntries {
			r.trim()
			e = r.entries[op]
		}
	}
	return e
}

// trim drops all entry operations but the maxEntries smallest ones, so that which are refined does not depend on what came first.
func (r *RequestTypes) trim() {
	if len(r.entries) <= maxEntries {
		return
	}
	ops := slices.Sorted(maps.Keys(r.entries))
	r.beyond = ops[maxEntries-1]
	for _, op := range ops[maxEntries:] {
		delete(r.entries, op)
	}
}

// add counts a set of children, of which it keeps a copy.
func (e *entryTypes) add(id analysis.Hash, ops []trace.Op, count uint64) {
	s := e.sets[id]
	if s == nil {
		if len(e.sets) == 2*maxChildSets-1 {
			e.trim()
		}
		if !e.limit.IsZero() && id.Compare(e.limit) >= 0 { // the limit may be new
			return
		}
		s = &childSet{ops: slices.Clone(ops)}
		e.sets[id] = s
	}
	s.count += count
}

// trim drops all sets but the maxChildSets ones with the smallest hashes. Those that stay were never dropped: their counts are
// complete.
func (e *entryTypes) trim() {
	if len(e.sets) <= maxChildSets {
		return
	}
	ids := slices.SortedFunc(maps.Keys(e.sets), analysis.Hash.Compare)
	e.limit = ids[maxChildSets]
	for _, id := range ids[maxChildSets:] {
		delete(e.sets, id)
	}
}

// Freeze ends the learning: it clusters the sets of children of each entry operation.
func (r *RequestTypes) Freeze() {
	if r.frozen {
		return
	}
	r.frozen = true
	r.trim()
	for op, e := range r.entries {
		e.trim()
		e.freeze(op)
	}
}

func (e *entryTypes) freeze(entry trace.Op) {
	ids := slices.SortedFunc(maps.Keys(e.sets), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(e.sets[b].count, e.sets[a].count), a.Compare(b))
	})
	e.known = make(map[analysis.Hash]analysis.Hash, len(ids))
	e.rest = analysis.HashOf(uint64(entry), 1)
	for _, id := range ids {
		s := e.sets[id]
		i := e.nearest(s.ops)
		if i < 0 && len(e.types) < maxTypesOfEntry {
			i = len(e.types)
			e.types = append(e.types, RequestType{ID: analysis.HashOf(uint64(entry), id.Hi^id.Lo), Entry: entry, Children: s.ops})
		}
		if i < 0 {
			e.known[id] = e.rest
			continue
		}
		e.types[i].Count += s.count
		e.known[id] = e.types[i].ID
	}
	if len(e.types) == 1 { // the entry operation says it all
		whole := analysis.HashOf(uint64(entry), 0)
		e.types[0].ID, e.rest = whole, whole
		for id := range e.known {
			e.known[id] = whole
		}
	}
	e.sets = nil
}

// nearest returns the index of the type whose set is most similar to ops, the first of equals; -1 if none is similar enough.
func (e *entryTypes) nearest(ops []trace.Op) int {
	best, index := joinSimilarity, -1
	for i := range e.types {
		if s := jaccard(e.types[i].Children, ops); s > best || s == best && index < 0 {
			best, index = s, i
		}
	}
	return index
}

// Of returns the type of the request. Before [RequestTypes.Freeze], and for an entry operation that was never learned, that is
// the type of the entry operation as a whole. Rules that name a type go first.
func (r *RequestTypes) Of(o *observation.Observation) analysis.Hash {
	if id, ok := r.Rules.typeOf(o); ok {
		return id
	}
	e := r.entries[o.Entry]
	if e == nil || e.known == nil {
		return analysis.HashOf(uint64(o.Entry), 0)
	}
	children := childrenOf(o)
	set := analysis.HashOf(children...)
	if id, ok := e.known[set]; ok {
		return id
	}
	id := e.rest
	if i := e.nearest(children); i >= 0 {
		id = e.types[i].ID
	}
	if len(e.known) < maxChildSets {
		e.known[set] = id
	}
	return id
}

// Siblings returns the request types of an entry operation, the most frequent first, as they were frozen.
func (r *RequestTypes) Siblings(entry trace.Op) []RequestType {
	if e := r.entries[entry]; e != nil {
		return e.types
	}
	return nil
}

// Name returns the name that rules give to a request type; "" if they give none.
func (r *RequestTypes) Name(id analysis.Hash) string { return r.Rules.name(id) }

// Distinct returns the operations that tell the type id of entry apart from its siblings, those that fewest siblings have
// first, at most n. It is empty where the entry has one type only.
func (r *RequestTypes) Distinct(entry trace.Op, id analysis.Hash, n int) []trace.Op {
	types := r.Siblings(entry)
	i := slices.IndexFunc(types, func(t RequestType) bool { return t.ID == id })
	if i < 0 || len(types) < 2 {
		return nil
	}
	shared := make(map[trace.Op]int)
	for _, t := range types {
		for _, op := range t.Children {
			shared[op]++
		}
	}
	ops := slices.Clone(types[i].Children)
	slices.SortFunc(ops, func(a, b trace.Op) int {
		return cmp.Or(cmp.Compare(shared[a], shared[b]), cmp.Compare(a, b))
	})
	return ops[:min(n, len(ops))]
}

// jaccard returns |a∩b| / |a∪b| of two ascending lists; 1 for two empty ones.
func jaccard(a, b []trace.Op) float64 {
	if len(a)+len(b) == 0 {
		return 1
	}
	common, i, j := 0, 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			common++
			i++
			j++
		}
	}
	return float64(common) / float64(len(a)+len(b)-common)
}
