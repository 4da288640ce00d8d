package observation

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// spanOps bounds the operations whose spans' durations are kept: at 300 to 1 000 bytes each, and 3.5 KiB at most.
const spanOps = 8192

// SpanTimes holds how long the spans of each operation took, on the critical path or not. Of more than 8 192 operations it keeps those with
// the lowest identities: they are the same whatever the order, and those of one stretch of time are those of the next. The zero value holds
// none.
type SpanTimes struct {
	ops    map[trace.Op]*stats.Ranks
	last   trace.Op // of ops, when there is room for no more; else 0
	beyond uint64   // spans of the operations that are not kept
}

// Observe adds the spans of a complete trace.
func (t *SpanTimes) Observe(p *critpath.Path) {
	for i := range p.Nodes {
		s := p.Span(int32(i))
		if r := t.room(s.Op, 1); r != nil {
			r.Add(spanTime(s.Duration()))
		}
		t.trim()
	}
}

// spanTime returns how long a span took that may be malformed, as statistics take it.
func spanTime(d time.Duration) int64 { return min(max(0, int64(d)), stats.MaxNanos-1) }

// room returns where durations of spans of an operation are added; nil, after counting so many as beyond, if that is not kept.
func (t *SpanTimes) room(op trace.Op, spans uint64) *stats.Ranks {
	if r := t.ops[op]; r != nil {
		return r
	}
	if t.last != 0 && op > t.last {
		t.beyond += spans
		return nil
	}
	if t.ops == nil {
		t.ops = make(map[trace.Op]*stats.Ranks)
	}
	r := new(stats.Ranks)
	t.ops[op] = r
	return r
}

// trim forgets the last operation if there is one too many.
func (t *SpanTimes) trim() {
	if len(t.ops) < spanOps || len(t.ops) == spanOps && t.last != 0 {
		return
	}
	if len(t.ops) > spanOps {
		t.beyond += t.ops[t.last].Count()
		delete(t.ops, t.last)
	}
	t.last = 0
	for op := range t.ops {
		t.last = max(t.last, op)
	}
}

// Merge adds the spans of o, which stays as it is.
func (t *SpanTimes) Merge(o *SpanTimes) {
	t.beyond += o.beyond
	for op, spans := range o.ops {
		if r := t.room(op, spans.Count()); r != nil {
			r.Merge(spans)
		}
		t.trim()
	}
}

// spanTurn is how long the spans are collected that are forgotten together.
const spanTurn = time.Hour

// RecentSpans holds how long spans took over the last one to two hours. The zero value holds none.
type RecentSpans struct {
	present, before SpanTimes
	began, turned   trace.Nanos // when before, and present, began; 0: not yet
}

// Present returns where spans are added.
func (r *RecentSpans) Present() *SpanTimes { return &r.present }

// Turn says that an epoch ended. What is too old is forgotten.
func (r *RecentSpans) Turn(now trace.Nanos) {
	switch {
	case r.turned == 0 || len(r.present.ops)+len(r.before.ops) == 0:
		r.began, r.turned = now, now
	case now.Sub(r.turned) >= spanTurn:
		r.before, r.present = r.present, SpanTimes{}
		r.began, r.turned = r.turned, now
	}
}

// Since returns from when on spans are held; 0: there are none.
func (r *RecentSpans) Since() trace.Nanos { return r.began }

// Beyond returns how many of the spans are of operations that are not kept.
func (r *RecentSpans) Beyond() uint64 { return r.before.beyond + r.present.beyond }

// Of returns how long the spans of an operation took. It shares no memory with r.
func (r *RecentSpans) Of(op trace.Op) (spans stats.Ranks) {
	for _, t := range []*SpanTimes{&r.before, &r.present} {
		if x := t.ops[op]; x != nil {
			spans.Merge(x)
		}
	}
	return spans
}

const recentSpansVersion = 1

// AppendBinary appends r to b.
func (r *RecentSpans) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, recentSpansVersion))
	e.Times(r.began, r.turned)
	writeSpanTimes(e, &r.before)
	writeSpanTimes(e, &r.present)
	return e.B
}

func writeSpanTimes(e *codec.Writer, t *SpanTimes) {
	e.Uvarints(t.beyond, uint64(len(t.ops)))
	for _, op := range slices.Sorted(maps.Keys(t.ops)) {
		e.Words(uint64(op))
		e.B = t.ops[op].AppendBinary(e.B)
	}
}

// DecodeRecentSpans reads what AppendBinary wrote and returns the bytes behind it. An error wraps [codec.ErrCorrupt].
func DecodeRecentSpans(b []byte) (RecentSpans, []byte, error) {
	d := codec.NewReader(b)
	d.Version(recentSpansVersion)
	r := RecentSpans{began: d.Time(), turned: d.Time(), before: readSpanTimes(d), present: readSpanTimes(d)}
	if d.Bad() {
		return RecentSpans{}, nil, codec.ErrCorrupt
	}
	return r, d.Rest(), nil
}

func readSpanTimes(d *codec.Reader) (t SpanTimes) {
	t.beyond = d.Uvarint()
	n := d.Below(spanOps + 1)
	before := trace.Op(0)
	for i := range n {
		op := trace.Op(d.Word())
		d.Ascending(int(i), op > before)
		spans := codec.Decode(d, stats.DecodeRanks)
		if d.Bad() || spans.Count() == 0 {
			d.Fail()
			return SpanTimes{}
		}
		before, *t.room(op, 0) = op, spans
	}
	if t.trim(); t.last == 0 && t.beyond > 0 {
		d.Fail() // none are beyond while there is room
	}
	return t
}
