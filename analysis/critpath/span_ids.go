package critpath

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// spanIDs resolves the span IDs of a trace, and finds spans by ID. If several spans have the same ID, it selects one of
// them, or splits the ID if it is shared by a CLIENT and a SERVER span or by the attempts of a call.
type spanIDs struct {
	duplicates, conflicts int // spans dropped

	trace   *trace.Trace
	index   spanIndex // spans that were kept; for a shared ID, the first attempt or the client half
	dropped []copied  // by span: whether it was dropped as a copy; empty unless spans have the same ID
	// server holds, by span, the server half that belongs to a client half of a shared ID, or -1. It is empty unless an
	// ID is shared.
	server []int32
	// next holds, by span, the next attempt of a call with the same ID, or -1. It is empty unless an ID is shared.
	next []int32
	// alias holds, by span, the new ID of a server half or of a further attempt, or 0. It is empty unless an ID is
	// shared.
	alias []trace.SpanID

	copies []int32    // scratch: spans with the ID of an earlier span
	group  []spanCopy // scratch
	extras []uint64   // scratch, by span: hash of its attributes and joins; filled if spans have the same ID
}

// copied is the reason for dropping a span as a copy of another.
type copied uint8

const (
	kept      copied = iota
	duplicate        // identical to another span
	conflict         // the same ID as another span, but different content
)

// spanCopy is one of several spans with the same ID.
type spanCopy struct {
	id         trace.SpanID
	start, end trace.Nanos
	hash       uint64 // of the other fields, the attributes and the joins
	span       int32
	kind       trace.Kind
}

// resolve indexes the spans of t. If several spans have the same ID, it keeps only one: the span that starts first,
// then the longest, then the one with the smallest hash. If there are both CLIENT and SERVER spans among them, it keeps
// one of each. It also keeps each CLIENT span that starts after the kept ones have ended. Such a call was retried by an
// instrumentation that gives all attempts the same ID, because it injects the context only once.
func (d *spanIDs) resolve(t *trace.Trace) {
	d.trace, d.duplicates, d.conflicts = t, 0, 0
	d.dropped, d.server, d.next, d.alias = d.dropped[:0], d.server[:0], d.next[:0], d.alias[:0]
	d.copies = d.index.fill(t.Spans, d.copies[:0])
	if len(d.copies) == 0 {
		return
	}
	d.dropped = scratch.Filled(d.dropped, len(t.Spans), kept)
	d.hashExtras()
	d.groupCopies()
	for g := d.group; len(g) > 0; {
		n := 1
		for n < len(g) && g[n].id == g[0].id {
			n++
		}
		d.resolveGroup(g[:n])
		g = g[n:]
	}
}

// kept returns the number of spans, not counting dropped copies.
func (d *spanIDs) kept() int { return len(d.trace.Spans) - d.duplicates - d.conflicts }

// shared reports whether a CLIENT and a SERVER span, or the attempts of a call, shared an ID.
func (d *spanIDs) shared() bool { return len(d.alias) > 0 }

// id returns the ID of a span. The server half of a shared ID has a new ID, and so does a further attempt.
func (d *spanIDs) id(span int32) trace.SpanID {
	if d.shared() && d.alias[span] != 0 {
		return d.alias[span]
	}
	return d.trace.Spans[span].ID
}

// parent returns the parent of s, which is a span of the trace, or the reason why it has no parent: dropped, noParent
// or missing.
func (d *spanIDs) parent(span int32, s *trace.Span) int32 {
	if len(d.dropped) > 0 {
		switch {
		case d.dropped[span] != kept:
			return dropped
		case d.shared() && d.alias[span] != 0 && s.Kind == trace.Server:
			// the server half is the child of the client half
			return d.attempt(d.index.find(s.ID), s)
		case s.Parent == s.ID:
			return span
		}
	}
	if s.Parent == 0 {
		return noParent
	}
	p := d.index.find(s.Parent)
	switch {
	case p < 0:
		return missing
	case d.shared():
		p = d.attempt(p, s)
		if d.server[p] >= 0 {
			return d.server[p]
		}
	}
	return p
}

// attempt returns the attempt that s belongs to: the last attempt that started before s, or else the first attempt,
// which is span first.
func (d *spanIDs) attempt(first int32, s *trace.Span) int32 {
	for next := d.next[first]; next >= 0 && d.trace.Spans[next].Start <= s.Start; next = d.next[next] {
		first = next
	}
	return first
}

// groupCopies fills d.group with the spans that share their ID with another span, by ID and then in order of
// preference.
func (d *spanIDs) groupCopies() {
	d.group = d.group[:0]
	for _, i := range d.copies {
		first := d.index.find(d.trace.Spans[i].ID)
		if d.dropped[first] == kept { // marks members of the group until resolveGroup decides
			d.dropped[first] = duplicate
			d.group = append(d.group, d.spanCopy(first))
		}
		d.group = append(d.group, d.spanCopy(i))
	}
	slices.SortFunc(d.group, func(a, b spanCopy) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end),
			cmp.Compare(a.hash, b.hash))
	})
}

func (d *spanIDs) spanCopy(span int32) spanCopy {
	s := &d.trace.Spans[span]
	return spanCopy{s.ID, s.Start, s.End, contentHash(s, d.extras[span]), span, s.Kind}
}

// contentHash returns a hash of extras and of all fields of s except its ID and times.
func contentHash(s *trace.Span, extras uint64) uint64 {
	return analysis.HashOf(uint64(s.Parent), uint64(s.Op), uint64(s.Service), uint64(s.Host), uint64(s.Tracepoint),
		uint64(s.Peer), uint64(s.Address), uint64(s.Kind), uint64(s.Flags), extras).Lo
}

// hashExtras fills d.extras. The hashes do not depend on the order of a span's attributes and joins.
func (d *spanIDs) hashExtras() {
	d.extras = scratch.Filled(d.extras, len(d.trace.Spans), 0)
	for _, a := range d.trace.Attrs {
		numeric := uint64(0)
		if a.Numeric {
			numeric = 1
		}
		d.extras[a.Span] += analysis.HashOf(uint64(a.Key), uint64(a.Text), math.Float64bits(a.Number), numeric).Lo
	}
	for _, j := range d.trace.Joins {
		d.extras[j.Span] += analysis.HashOf(uint64(j.Linked)).Lo
	}
}

// resolveGroup selects the spans to keep from g, whose spans have the same ID and are in order of preference.
func (d *spanIDs) resolveGroup(g []spanCopy) {
	client := slices.IndexFunc(g, func(c spanCopy) bool { return c.kind == trace.Client })
	server := slices.IndexFunc(g, func(c spanCopy) bool { return c.kind == trace.Server })
	first, split := 0, client >= 0 && server >= 0
	if split {
		first = client
	}
	d.index.replace(g[0].id, g[first].span)
	last := first    // attempt that was kept last
	other := g[0].id // latest new ID
	for i := range g {
		retry := i > first && g[first].kind == trace.Client && g[i].kind == trace.Client && g[i].start >= g[last].end &&
			g[i].start > g[last].start
		keep := i == first || split && i == server || retry
		d.dropped[g[i].span] = kept
		switch {
		case retry:
			d.share()
			d.next[g[last].span] = g[i].span
			other = d.newID(other)
			d.alias[g[i].span], last = other, i
		case keep:
		case i > 0 && d.identical(&g[i-1], &g[i]):
			d.dropped[g[i].span] = duplicate
			d.duplicates++
		default:
			d.dropped[g[i].span] = conflict
			d.conflicts++
		}
	}
	if split {
		d.share()
		half := g[server].span
		d.alias[half] = d.newID(other)
		d.server[d.attempt(g[client].span, &d.trace.Spans[half])] = half
	}
}

func (d *spanIDs) identical(a, b *spanCopy) bool {
	return a.hash == b.hash && d.extras[a.span] == d.extras[b.span] && d.trace.Spans[a.span] == d.trace.Spans[b.span]
}

// otherID is the salt for deriving new IDs from a shared ID.
const otherID = 0x5e72766572

// share allocates server, next and alias if they are not yet allocated. It is called for every shared ID.
func (d *spanIDs) share() {
	if n := len(d.trace.Spans); !d.shared() {
		d.server, d.next = scratch.Filled(d.server, n, -1), scratch.Filled(d.next, n, -1)
		d.alias = scratch.Filled(d.alias, n, 0)
	}
}

// newID returns an ID that no span was sent with. It is derived from last: the shared ID, or the latest new ID derived
// from it.
func (d *spanIDs) newID(last trace.SpanID) trace.SpanID {
	id := trace.SpanID(trace.Mix(uint64(last), otherID))
	for d.index.find(id) >= 0 {
		id = trace.SpanID(trace.Mix(uint64(id), otherID))
	}
	return id
}
