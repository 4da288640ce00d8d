package critpath

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// spanCopy is one of several spans with the same ID.
type spanCopy struct {
	id         trace.SpanID
	start, end trace.Nanos
	hash       uint64 // of all that the span carries, attributes and joins included
	span       int32
	kind       trace.Kind
}

// resolveCopies indexes the spans by ID and decides which one of those that share an ID is kept: the first by start, then
// the longest, then the smallest hash; of a CLIENT and a SERVER both. The others are gone.
func (x *Extractor) resolveCopies() {
	x.copies = x.index.fill(x.trace.Spans, x.copies[:0])
	x.gone = x.gone[:0]
	if len(x.copies) == 0 {
		return
	}
	x.gone = filled(x.gone, len(x.trace.Spans), false)
	x.hashExtras()
	x.groupCopies()
	for g := x.group; len(g) > 0; {
		n := 1
		for n < len(g) && g[n].id == g[0].id {
			n++
		}
		x.resolveGroup(g[:n])
		g = g[n:]
	}
}

// groupCopies fills x.group with all spans that share their ID with another, by ID, then in the order of preference.
func (x *Extractor) groupCopies() {
	x.group = x.group[:0]
	for _, i := range x.copies {
		first := x.index.find(x.trace.Spans[i].ID).span
		if !x.gone[first] { // until it is decided on, gone says that it is in the group
			x.gone[first] = true
			x.group = append(x.group, x.spanCopy(first))
		}
		x.group = append(x.group, x.spanCopy(i))
	}
	slices.SortFunc(x.group, func(a, b spanCopy) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.hash, b.hash))
	})
}

func (x *Extractor) spanCopy(i int32) spanCopy {
	s := &x.trace.Spans[i]
	return spanCopy{s.ID, s.Start, s.End, contentHash(s, x.extra[i]), i, s.Kind}
}

// contentHash returns a hash of all fields of s but its ID and times, and of extra.
func contentHash(s *trace.Span, extra uint64) uint64 {
	return analysis.HashOf(uint64(s.Parent), uint64(s.Op), uint64(s.Service), uint64(s.Host), uint64(s.Tracepoint),
		uint64(s.Kind), uint64(s.Flags), extra).Lo
}

// hashExtras fills x.extra. The order of a span's attributes and joins does not matter.
func (x *Extractor) hashExtras() {
	x.extra = filled(x.extra, len(x.trace.Spans), 0)
	for _, a := range x.trace.Attrs {
		numeric := uint64(0)
		if a.Numeric {
			numeric = 1
		}
		x.extra[a.Span] += analysis.HashOf(uint64(a.Key), uint64(a.Text), math.Float64bits(a.Number), numeric).Lo
	}
	for _, j := range x.trace.Joins {
		x.extra[j.Span] += analysis.HashOf(uint64(j.Linked)).Lo
	}
}

// resolveGroup decides on the spans g, which have the same ID and are in the order of preference.
func (x *Extractor) resolveGroup(g []spanCopy) {
	client, server := -1, -1
	for i := range slices.Backward(g) {
		switch g[i].kind {
		case trace.Client:
			client = i
		case trace.Server:
			server = i
		case trace.Unspecified, trace.Internal, trace.Producer, trace.Consumer:
		}
	}
	first := 0
	split := client >= 0 && server >= 0
	if split {
		first = client
		x.split(g[client].span, g[server].span)
	}
	x.index.find(g[0].id).span = g[first].span
	for i := range g {
		x.gone[g[i].span] = true
		switch {
		case i == first || split && i == server:
			x.gone[g[i].span] = false
		case i > 0 && x.identical(&g[i-1], &g[i]):
			x.path.Counts.Duplicates++
		default:
			x.path.Counts.Conflicts++
		}
	}
}

func (x *Extractor) identical(a, b *spanCopy) bool {
	return a.hash == b.hash && x.extra[a.span] == x.extra[b.span] && x.trace.Spans[a.span] == x.trace.Spans[b.span]
}

// serverHalf is mixed into a shared ID to derive that of the server half.
const serverHalf = 0x5e72766572

// split makes of two spans that share an ID a parent and a child with an ID of its own.
func (x *Extractor) split(client, server int32) {
	n := len(x.trace.Spans)
	if !x.shared {
		x.shared = true
		x.server = filled(x.server, n, -1)
		x.alias = filled(x.alias, n, 0)
	}
	id := trace.SpanID(trace.Mix(uint64(x.trace.Spans[server].ID), serverHalf))
	for x.index.find(id) != nil {
		id = trace.SpanID(trace.Mix(uint64(id), serverHalf))
	}
	x.server[client] = server
	x.alias[server] = id
	x.path.Flags |= FlagSharedID
}
