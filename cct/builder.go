package cct

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of what a [Builder] keeps.
const (
	// DefaultLimit bounds the nodes of a tree: an estate of 100 000 tracepoints, each at two contexts.
	DefaultLimit = 200_000
	// MaxAge is how long a context that no request executes is remembered.
	MaxAge = 7 * 24 * time.Hour
	// maxSets bounds the remembered sets of enabled tracepoints: one an epoch of ten seconds for half a day.
	maxSets = 4096
	// maxWitnesses bounds the sets remembered of one context; the smallest hashes stay, so that merging is exact.
	maxWitnesses = 8
	// maxDepth ends chains of hints, which may be wrong and form cycles.
	maxDepth = 256
)

// Observation is what one request executed.
type Observation struct {
	Seen trace.Nanos
	// On holds the tracepoints that were on for the request, ascending: what its plan and arm say.
	On []trace.Symbol
	// Explore marks a fully instrumented request: everything was on, and its times feed the references.
	Explore bool
	// Unwell keeps the times of a request that explores from the references, which are those of healthy requests.
	Unwell   bool
	Contexts []Sighting // every context with its parents
}

// Sighting is one calling context of a request, as it appeared with what was on.
type Sighting struct {
	Context, Parent trace.Context
	Op              trace.Op
	Tracepoint      trace.Symbol // 0: baseline
	Count, Errors   int32        // spans; of these with status error
	Nanos           int64        // on the critical path, with what is below: for the references, from requests that explore
}

// Builder collects what requests of one type show. Builders merge in any order to the same bytes, because what appeared
// under which tracepoints is kept as it appeared and reconciled only by Build. The zero Builder is empty. It is not safe for
// concurrent use.
type Builder struct {
	Limit int // most nodes of a tree; 0: DefaultLimit

	requests uint64
	places   map[trace.Context]*place
	sets     map[uint64]*set
	before   map[trace.Symbol]uint64 // requests with a tracepoint on, of sets that are forgotten
	refused  uint64                  // sightings turned away because the builder was full
	pruned   uint64                  // contexts that aged away
}

// place is a context as it appeared.
type place struct {
	parent    trace.Context
	op        trace.Op
	tp        trace.Symbol
	seen      trace.Nanos
	requests  uint64 // that executed it
	hits      uint64
	errors    uint64
	witnesses []uint64 // ascending: hashes of sets that were on while it appeared, the smallest maxWitnesses of them
	history   History
	reference Reference
}

// set is a set of tracepoints that was on.
type set struct {
	on       []trace.Symbol // ascending; nil with everything: all
	all      bool
	seen     trace.Nanos
	requests uint64
}

func (s *set) has(tp trace.Symbol) bool {
	_, found := slices.BinarySearch(s.on, tp)
	return s.all || found
}

// everything is the hash of the set of all tracepoints.
const everything = 1

func setHash(on []trace.Symbol, all bool) uint64 {
	if all {
		return everything
	}
	h := uint64(2)
	for _, tp := range on {
		h = trace.Mix(h, uint64(tp))
	}
	return h
}

func (b *Builder) limit() int { return cmp.Or(b.Limit, DefaultLimit) }

// Refused returns how many sightings found the builder full.
func (b *Builder) Refused() uint64 { return b.refused }

// Pruned returns how many contexts aged away.
func (b *Builder) Pruned() uint64 { return b.pruned }

// Observe adds a request. A context that is new once there are twice the limit is refused and counted.
func (b *Builder) Observe(o Observation) {
	b.requests++
	h := setHash(o.On, o.Explore)
	s := b.set(h, o)
	s.requests++
	s.seen = max(s.seen, o.Seen)
	for i := range o.Contexts {
		x := &o.Contexts[i]
		p := b.place(x)
		if p == nil {
			b.refused++
			continue
		}
		p.seen = max(p.seen, o.Seen)
		p.requests++
		p.hits += uint64(max(x.Count, 0))
		p.errors += uint64(max(x.Errors, 0))
		p.witness(h)
		if o.Explore && !o.Unwell {
			p.reference.Add(x.Nanos)
		}
	}
}

func (b *Builder) set(h uint64, o Observation) *set {
	s := b.sets[h]
	if s == nil {
		if b.sets == nil {
			b.sets = make(map[uint64]*set)
		}
		if len(b.sets) >= 2*maxSets { // seldom: Age keeps them below
			b.ageSets(o.Seen)
		}
		s = &set{all: o.Explore}
		if !s.all {
			s.on = slices.Clone(o.On)
		}
		b.sets[h] = s
	}
	return s
}

// place returns what is kept of x's context, nil if the builder is full.
func (b *Builder) place(x *Sighting) *place {
	p := b.places[x.Context]
	if p == nil && len(b.places) < 2*b.limit() {
		if b.places == nil {
			b.places = make(map[trace.Context]*place)
		}
		p = &place{parent: x.Parent, op: x.Op, tp: x.Tracepoint}
		b.places[x.Context] = p
	}
	return p
}

func (p *place) witness(h uint64) {
	at, found := slices.BinarySearch(p.witnesses, h)
	if found || at == maxWitnesses {
		return
	}
	p.witnesses = slices.Insert(p.witnesses, at, h)
	p.witnesses = p.witnesses[:min(len(p.witnesses), maxWitnesses)]
}

// Learn adds what an investigation found of a context, named as it appeared. It does nothing for a context that was never
// observed.
func (b *Builder) Learn(ctx trace.Context, h History) {
	if p := b.places[ctx]; p != nil {
		p.history.Merge(h)
	}
}

// Merge adds everything that c knows. It shares nothing with c afterwards. While neither is full, merging is associative and
// commutative.
func (b *Builder) Merge(c *Builder) {
	b.requests += c.requests
	b.refused += c.refused
	b.pruned += c.pruned
	for _, ctx := range sortedKeys(c.places) {
		b.mergePlace(ctx, c.places[ctx])
	}
	for _, h := range sortedKeys(c.sets) {
		from := c.sets[h]
		to := b.set(h, Observation{On: from.on, Explore: from.all})
		to.requests += from.requests
		to.seen = max(to.seen, from.seen)
	}
	for tp, n := range c.before {
		b.addBefore(tp, n)
	}
}

func (b *Builder) addBefore(tp trace.Symbol, requests uint64) {
	if b.before == nil {
		b.before = make(map[trace.Symbol]uint64)
	}
	b.before[tp] += requests
}

func (b *Builder) mergePlace(ctx trace.Context, from *place) {
	p := b.place(&Sighting{Context: ctx, Parent: from.parent, Op: from.op, Tracepoint: from.tp})
	if p == nil {
		b.refused++
		return
	}
	p.seen = max(p.seen, from.seen)
	p.requests += from.requests
	p.hits += from.hits
	p.errors += from.errors
	for _, h := range from.witnesses {
		p.witness(h)
	}
	p.history.Merge(from.history)
	p.reference.Merge(from.reference)
}

// Age forgets the contexts that no request executed for MaxAge before now, and the oldest of too many sets.
func (b *Builder) Age(now trace.Nanos) {
	for ctx, p := range b.places {
		if now.Sub(p.seen) > MaxAge {
			delete(b.places, ctx)
			b.pruned++
		}
	}
	b.ageSets(now)
}

// ageSets forgets the sets that were not on for MaxAge before now, and the oldest of too many.
func (b *Builder) ageSets(now trace.Nanos) {
	hashes := sortedKeys(b.sets)
	slices.SortStableFunc(hashes, func(x, y uint64) int { return cmp.Compare(b.sets[y].seen, b.sets[x].seen) })
	for i, h := range hashes {
		s := b.sets[h]
		if s.all || i < maxSets && now.Sub(s.seen) <= MaxAge {
			continue
		}
		for _, tp := range s.on {
			b.addBefore(tp, s.requests)
		}
		delete(b.sets, h)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
