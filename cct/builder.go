package cct

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on a [Builder].
const (
	// DefaultLimit is the default maximum number of nodes in a tree: 100,000 tracepoints with two contexts each.
	DefaultLimit = 200_000
	// MaxAge is the maximum time that a context is kept after the last request that executed it.
	MaxAge = 7 * 24 * time.Hour
	// maxSets is the maximum number of sets of enabled tracepoints that Age keeps. It is enough for half a day if the
	// plan changes in every epoch of ten seconds.
	maxSets = 4096
	// maxWitnesses is the maximum number of sets remembered per context. We keep the smallest hashes, so that merging
	// is exact.
	maxWitnesses = 8
	// maxDepth is the maximum length of walks along hints, which may be wrong and form cycles.
	maxDepth = 256
)

// Observation holds the calling contexts that one request executed.
type Observation struct {
	Seen trace.Nanos
	// On holds the tracepoints enabled by the request's plan and arm, ascending.
	On       []trace.Symbol
	Contexts []ContextCount // includes all ancestors of every context
}

// ContextCount is one calling context of a request, as it appears with the request's tracepoints enabled.
type ContextCount struct {
	Context, Parent trace.Context
	Op              trace.Op
	Tracepoint      trace.Symbol // 0 for the baseline
	Count, Errors   int32        // spans, and spans with an error status
	Unanswered      int32        // calls without their usual answer
}

// Builder collects the calling contexts of requests of one type. It stores contexts as they appeared, with the sets of
// enabled tracepoints. Only Build reconciles them, so builders can be merged in any order with the same result, byte
// for byte. The zero Builder is empty and ready to use. It is not safe for concurrent use.
type Builder struct {
	Limit int   // maximum number of nodes in a tree; 0 means DefaultLimit
	room  *Room // nil: only Limit applies

	requests uint64
	places   map[trace.Context]*place
	sets     map[uint64]*set
	before   map[trace.Symbol]uint64 // requests in forgotten sets, by enabled tracepoint
	refused  uint64                  // occurrences of contexts dropped because the builder was full
	pruned   uint64                  // contexts forgotten by Age
}

// place holds the statistics of a context as it appeared.
type place struct {
	parent     trace.Context
	op         trace.Op
	tp         trace.Symbol
	seen       trace.Nanos
	requests   uint64 // requests that executed it
	hits       uint64
	errors     uint64
	unanswered uint64   // calls without their usual answer
	witnesses  []uint64 // hashes of the sets enabled when it appeared, ascending: the smallest maxWitnesses
	history    History
}

// set is a set of tracepoints that were enabled together.
type set struct {
	on       []trace.Symbol // ascending
	seen     trace.Nanos
	requests uint64
}

func (s *set) has(tp trace.Symbol) bool {
	_, found := slices.BinarySearch(s.on, tp)
	return found
}

func setHash(on []trace.Symbol) uint64 {
	h := uint64(2)
	for _, tp := range on {
		h = trace.Mix(h, uint64(tp))
	}
	return h
}

func (b *Builder) limit() int { return cmp.Or(b.Limit, DefaultLimit) }

// Observe adds o. Once b holds twice its limit, or its share of the room, it drops and counts new contexts.
func (b *Builder) Observe(o Observation) {
	b.requests++
	h := setHash(o.On)
	if s := b.set(h, o.On, o.Seen); s != nil {
		s.requests++
		s.seen = max(s.seen, o.Seen)
	} else {
		b.addAllBefore(o.On, 1)
	}
	for i := range o.Contexts {
		x := &o.Contexts[i]
		p := b.place(x)
		if p == nil {
			b.refused++
			b.room.refuse()
			continue
		}
		p.seen = max(p.seen, o.Seen)
		p.requests++
		p.hits += uint64(max(x.Count, 0))
		p.errors += uint64(max(x.Errors, 0))
		p.unanswered += uint64(max(x.Unanswered, 0))
		p.witness(h)
	}
}

// set returns the set of the tracepoints in `on`, whose hash is h, adding it if necessary. It returns nil if there is
// no room for it.
func (b *Builder) set(h uint64, on []trace.Symbol, now trace.Nanos) *set {
	s := b.sets[h]
	if s == nil {
		if b.sets == nil {
			b.sets = make(map[uint64]*set)
		}
		if len(b.sets) >= 2*maxSets { // rare, because Age keeps fewer
			b.ageSets(now, MaxAge)
		}
		if !b.room.takeSet(on) {
			return nil
		}
		s = &set{on: slices.Clone(on)}
		b.sets[h] = s
	}
	return s
}

// place returns the statistics of x.Context, adding them if necessary. It returns nil if the builder is full.
func (b *Builder) place(x *ContextCount) *place {
	p := b.places[x.Context]
	if p == nil && len(b.places) < 2*b.limit() && b.room.take(len(b.places)) {
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

// Learn adds h, the result of an investigation, to the history of ctx, a context as it appeared. It ignores contexts
// that b has not observed.
func (b *Builder) Learn(ctx trace.Context, h History) {
	if p := b.places[ctx]; p != nil {
		p.history.Merge(h)
	}
}

// Merge adds the contents of c to b. Afterwards they share no memory. Merging is associative and commutative until a
// builder is full.
func (b *Builder) Merge(c *Builder) {
	b.requests += c.requests
	b.refused += c.refused
	b.pruned += c.pruned
	for _, ctx := range slices.Sorted(maps.Keys(c.places)) {
		b.mergePlace(ctx, c.places[ctx])
	}
	for _, h := range slices.Sorted(maps.Keys(c.sets)) {
		from := c.sets[h]
		if to := b.set(h, from.on, 0); to != nil {
			to.requests += from.requests
			to.seen = max(to.seen, from.seen)
		} else {
			b.addAllBefore(from.on, from.requests)
		}
	}
	for tp, n := range c.before {
		b.addBefore(tp, n)
	}
}

func (b *Builder) addAllBefore(on []trace.Symbol, requests uint64) {
	for _, tp := range on {
		b.addBefore(tp, requests)
	}
}

func (b *Builder) addBefore(tp trace.Symbol, requests uint64) {
	if b.before == nil {
		b.before = make(map[trace.Symbol]uint64)
	}
	b.before[tp] += requests
}

func (b *Builder) mergePlace(ctx trace.Context, from *place) {
	p := b.place(&ContextCount{Context: ctx, Parent: from.parent, Op: from.op, Tracepoint: from.tp})
	if p == nil {
		b.refused++
		return
	}
	p.seen = max(p.seen, from.seen)
	p.requests += from.requests
	p.hits += from.hits
	p.errors += from.errors
	p.unanswered += from.unanswered
	for _, h := range from.witnesses {
		p.witness(h)
	}
	p.history.Merge(from.history)
}

// Age forgets the contexts and the sets of tracepoints that no request has used for longer than idle. It also forgets
// the oldest sets beyond maxSets.
func (b *Builder) Age(now trace.Nanos, idle time.Duration) {
	b.forget(func(_ trace.Context, p *place) bool { return now.Sub(p.seen) > idle })
	b.ageSets(now, idle)
}

// forget deletes each context for which old returns true.
func (b *Builder) forget(old func(trace.Context, *place) bool) {
	before := len(b.places)
	maps.DeleteFunc(b.places, old)
	forgotten := before - len(b.places)
	b.pruned += uint64(forgotten)
	b.room.leave(forgotten)
	if forgotten > len(b.places) { // shrink the map
		places := make(map[trace.Context]*place, len(b.places))
		maps.Copy(places, b.places)
		b.places = places
	}
}

// ageSets forgets the sets that have not been enabled for longer than idle, and the oldest sets beyond maxSets. It
// moves their request counts to b.before.
func (b *Builder) ageSets(now trace.Nanos, idle time.Duration) {
	hashes := slices.Sorted(maps.Keys(b.sets))
	sorting.SliceStable(hashes, func(x, y uint64) int { return cmp.Compare(b.sets[y].seen, b.sets[x].seen) })
	for i, h := range hashes {
		s := b.sets[h]
		if i < maxSets && now.Sub(s.seen) <= idle {
			continue
		}
		b.addAllBefore(s.on, s.requests)
		b.room.leaveSet(s.on)
		delete(b.sets, h)
	}
}
