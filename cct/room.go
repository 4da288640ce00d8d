package cct

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Room limits the total number of contexts, and the size of the sets of tracepoints, of all builders that have joined
// it; see [Builder.Join]. It is not safe for concurrent use. A nil Room is unlimited.
type Room struct {
	Limit int // maximum number of contexts, at least 1

	used    int // number of contexts
	sets    int // size of the sets, in contexts
	refused int
}

// oneBuilder limits a single builder to 1/oneBuilder of a room, so that one request type can't keep out all others.
const oneBuilder = 4

// Used returns the number of contexts in r.
func (r *Room) Used() int { return r.used }

// Refused returns the number of times that a context was dropped since r was created.
func (r *Room) Refused() int { return r.refused }

// Short reports whether less than a quarter of r is left.
func (r *Room) Short() bool { return r.used+r.sets > r.Limit/4*3 }

// left returns the number of contexts that a builder with the given number of contexts may add. It may be negative.
func (r *Room) left(contexts int) int {
	return min(r.Limit-r.used-r.sets, max(1, r.Limit/oneBuilder)-contexts)
}

// take reserves room for one more context of a builder with the given number of contexts. It returns false if there is
// no room.
func (r *Room) take(contexts int) bool {
	if r == nil {
		return true
	}
	if r.left(contexts) <= 0 {
		return false
	}
	r.used++
	return true
}

// setSize returns the size of a set of the tracepoints in `on`, as a number of contexts.
func setSize(on []trace.Symbol) int { return 1 + len(on)/16 }

// takeSet reserves room for a set of the tracepoints in `on`. It returns false if there is not enough room.
func (r *Room) takeSet(on []trace.Symbol) bool {
	if r == nil {
		return true
	}
	if r.used+r.sets+setSize(on) > r.Limit {
		return false
	}
	r.sets += setSize(on)
	return true
}

func (r *Room) leaveSet(on []trace.Symbol) {
	if r != nil {
		r.sets -= setSize(on)
	}
}

func (r *Room) leave(contexts int) {
	if r != nil {
		r.used -= contexts
	}
}

func (r *Room) refuse() {
	if r != nil {
		r.refused++
	}
}

// Join makes the contexts and sets of b count towards the limit of r. If r has no room for all of them, b forgets sets
// and the least recently seen contexts. b must not have joined another room.
func (b *Builder) Join(r *Room) {
	for _, h := range slices.Sorted(maps.Keys(b.sets)) {
		if s := b.sets[h]; !r.takeSet(s.on) {
			b.addAllBefore(s.on, s.requests)
			delete(b.sets, h)
		}
	}
	if excess := len(b.places) - max(0, r.left(0)); excess > 0 {
		b.forgetOldest(excess)
	}
	r.used += len(b.places)
	b.room = r
}

// Leave frees the room that b takes. b must not be used afterwards.
func (b *Builder) Leave() {
	b.room.leave(len(b.places))
	for _, s := range b.sets {
		b.room.leaveSet(s.on)
	}
}

// forgetOldest forgets the n least recently seen contexts, descendants before their ancestors.
func (b *Builder) forgetOldest(n int) {
	depths := make(map[trace.Context]int, len(b.places))
	for ctx := range b.places {
		for p := b.places[ctx]; p != nil && depths[ctx] < maxDepth; p = b.places[p.parent] {
			depths[ctx]++
		}
	}
	order := sorting.Sorted(maps.Keys(b.places), func(x, y trace.Context) int {
		return cmp.Or(cmp.Compare(b.places[x].seen, b.places[y].seen), cmp.Compare(depths[y], depths[x]),
			cmp.Compare(x, y))
	})
	old := make(map[trace.Context]bool, n)
	for _, ctx := range order[:n] {
		old[ctx] = true
	}
	b.forget(func(ctx trace.Context, _ *place) bool { return old[ctx] })
}
