package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// RequestTypes learns request types and assigns requests to them.
//
// A request type is an entry operation. If an entry operation serves several purposes, as in a gateway, it is refined
// by the set of operations that the entry span has as children: the sets are clustered by Jaccard similarity, most
// frequent first, and each cluster is a type of its own. [RequestTypes.Freeze] ends the learning, so that the type of a
// request does not depend on when the request arrives.
//
// The zero value is ready to learn. RequestTypes is not safe for concurrent use.
type RequestTypes struct {
	Rules     *RuleSet                 // take precedence over learned types; may be nil
	Limit     int                      // maximum number of refined entry operations; 0 means maxEntries, the maximum
	Truncated uint64                   // requests with too many children, some of which were ignored
	entries   map[trace.Op]*entryTypes // fewer than 2·Limit
	// beyond is the greatest entry operation that is refined, because there were too many. It is 0 if there is no limit
	// yet.
	beyond trace.Op
	frozen bool
}

// Limits on learning. If there are too many values, those with the smallest identities or hashes are kept.
const (
	maxEntries      = 1 << 16 // entry operations; further ones are not refined
	maxChildren     = 1 << 10 // operations in a set
	maxChildSets    = 4096    // distinct sets of children of an entry operation
	maxTypesOfEntry = 64      // clusters of an entry operation; all further sets form one more type
)

// joinSimilarity is the minimum Jaccard similarity between a set of children and the cluster that it joins: half of all
// operations are in both.
const joinSimilarity = 0.5

type entryTypes struct {
	sets  map[analysis.Hash]*childSet // fewer than 2·maxChildSets
	limit analysis.Hash               // the smallest hash of a dropped set, or zero
	types []RequestType               // in decreasing order of count; set by Freeze
	rest  analysis.Hash               // the type of sets that resemble no cluster
	// known maps sets of children to their types: the learned sets and, as a cache, later ones.
	known map[analysis.Hash]analysis.Hash
}

type childSet struct {
	ops   []trace.Op // ascending
	count uint64
}

// RequestType is a learned request type.
type RequestType struct {
	ID       analysis.Hash
	Entry    trace.Op
	Children []trace.Op // the set at the centre of the cluster; ascending
	Count    uint64     // learned requests
}

// Learn learns from o. It does nothing after [RequestTypes.Freeze].
func (r *RequestTypes) Learn(o *observation.Observation) {
	if e := r.entry(o.Entry); e != nil {
		ops := childrenOf(o)
		if len(ops) < len(o.Children) {
			r.Truncated++
		}
		e.add(analysis.HashOf(ops...), ops, 1)
	}
}

// childrenOf returns the children of the entry of o that are taken into account.
func childrenOf(o *observation.Observation) []trace.Op {
	return o.Children[:min(len(o.Children), maxChildren)]
}

// entry returns the state of the entry operation op, creating it if necessary. It returns nil after Freeze, or if op is
// beyond the limit.
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
		if len(r.entries) >= 2*r.limit() {
			r.trim()
			e = r.entries[op]
		}
	}
	return e
}

func (r *RequestTypes) limit() int { return min(cmp.Or(r.Limit, maxEntries), maxEntries) }

// trim keeps only the smallest entry operations, up to the limit, so that the selection does not depend on the order of
// requests.
func (r *RequestTypes) trim() {
	limit := r.limit()
	if len(r.entries) <= limit {
		return
	}
	ops := slices.Sorted(maps.Keys(r.entries))
	r.beyond = ops[limit-1]
	for _, op := range ops[limit:] {
		delete(r.entries, op)
	}
}

// add adds count to the count of the set ops of children, whose hash is id. It keeps a copy of ops.
func (e *entryTypes) add(id analysis.Hash, ops []trace.Op, count uint64) {
	s := e.sets[id]
	if s == nil {
		if len(e.sets) == 2*maxChildSets-1 {
			e.trim()
		}
		if !e.limit.IsZero() && id.Compare(e.limit) >= 0 { // trim may have lowered the limit
			return
		}
		s = &childSet{ops: slices.Clone(ops)}
		e.sets[id] = s
	}
	s.count += count
}

// trim drops all sets except the maxChildSets with the smallest hashes. The kept sets were never dropped before, so
// their counts are complete.
func (e *entryTypes) trim() {
	if len(e.sets) <= maxChildSets {
		return
	}
	ids := sorting.Sorted(maps.Keys(e.sets), analysis.Hash.Compare)
	e.limit = ids[maxChildSets]
	for _, id := range ids[maxChildSets:] {
		delete(e.sets, id)
	}
}

// Freeze ends the learning and clusters the sets of children of each entry operation.
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
	ids := sorting.Sorted(maps.Keys(e.sets), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(e.sets[b].count, e.sets[a].count), a.Compare(b))
	})
	e.known = make(map[analysis.Hash]analysis.Hash, len(ids))
	e.rest = analysis.HashOf(uint64(entry), 1)
	for _, id := range ids {
		s := e.sets[id]
		i := e.nearest(s.ops)
		if i < 0 && len(e.types) < maxTypesOfEntry {
			i = len(e.types)
			e.types = append(e.types,
				RequestType{ID: analysis.HashOf(uint64(entry), id.Hi^id.Lo), Entry: entry, Children: s.ops})
		}
		if i < 0 {
			e.known[id] = e.rest
			continue
		}
		e.types[i].Count += s.count
		e.known[id] = e.types[i].ID
	}
	if len(e.types) == 1 { // the entry operation identifies the type
		whole := analysis.HashOf(uint64(entry), 0)
		e.types[0].ID, e.rest = whole, whole
		for id := range e.known {
			e.known[id] = whole
		}
	}
	e.sets = nil
}

// nearest returns the index of the type whose set is most similar to ops, or -1 if no set is similar enough. If several
// are equally similar, it returns the first.
func (e *entryTypes) nearest(ops []trace.Op) int {
	best, index := joinSimilarity, -1
	for i := range e.types {
		if s := jaccard(e.types[i].Children, ops); s > best || s == best && index < 0 {
			best, index = s, i
		}
	}
	return index
}

// Of returns the type of o. Rules that name a type take precedence. If the entry operation was not learned, or before
// [RequestTypes.Freeze], the type is the whole entry operation.
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

// Siblings returns the learned request types of entry, most frequent first, or nil if it was not learned. The slice
// belongs to r.
func (r *RequestTypes) Siblings(entry trace.Op) []RequestType {
	if e := r.entries[entry]; e != nil {
		return e.types
	}
	return nil
}

// Name returns the name of a request type in the rules, or "" if they don't name it.
func (r *RequestTypes) Name(id analysis.Hash) string { return r.Rules.name(id) }

// Distinct returns at most n operations that distinguish the type id from the other types of its entry, the least
// shared ones first. It returns nil if the entry has only one type, or if id is not one of its learned types.
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
	sorting.Slice(ops, func(a, b trace.Op) int {
		return cmp.Or(cmp.Compare(shared[a], shared[b]), cmp.Compare(a, b))
	})
	return ops[:min(n, len(ops))]
}

// jaccard returns |a∩b| / |a∪b| of two ascending lists, or 1 if both are empty.
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
