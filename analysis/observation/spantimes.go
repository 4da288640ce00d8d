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

// spanOps is the maximum number of operations in a SpanTimes. Each takes 300 to 1 000 bytes, at most 3.5 KiB.
const spanOps = 8192

// SpanTimes holds the durations of the spans of each step, on the critical path or not. Of more than 8 192
// operations it keeps those with the lowest identities, so that the selection depends neither on the order of the spans
// nor on the period. The zero value is empty.
type SpanTimes struct {
	ops     map[trace.Op]*stats.Ranks
	full    []trace.Op // the keys of ops if there is no room for more, as a heap, the greatest first; otherwise nil
	dropped uint64     // spans of dropped operations
}

// Observe adds the spans of a complete trace.
func (t *SpanTimes) Observe(p *critpath.Path) {
	for i := range p.Nodes {
		if r := t.slot(p.Nodes[i].Step, 1); r != nil {
			r.Add(spanTime(p.Span(int32(i)).Duration()))
		}
	}
}

// spanTime returns the duration d of a span, which may be malformed, limited to the range of statistics.
func spanTime(d time.Duration) int64 { return min(max(0, int64(d)), stats.MaxNanos-1) }

// slot returns the durations of the spans of an operation, to add to. It drops the last operation if there is one too
// many. If that is op itself, it counts the given number of spans as dropped and returns nil.
func (t *SpanTimes) slot(op trace.Op, spans uint64) *stats.Ranks {
	if r := t.ops[op]; r != nil {
		return r
	}
	if t.full != nil && op > t.full[0] {
		t.dropped += spans
		return nil
	}
	if t.ops == nil {
		t.ops = make(map[trace.Op]*stats.Ranks)
	}
	r := new(stats.Ranks)
	t.ops[op] = r
	switch {
	case t.full != nil:
		t.replaceLast(op)
	case len(t.ops) == spanOps:
		t.full = slices.Sorted(maps.Keys(t.ops))
		slices.Reverse(t.full)
	}
	return r
}

// replaceLast drops the last operation for another.
func (t *SpanTimes) replaceLast(op trace.Op) {
	t.dropped += t.ops[t.full[0]].Count()
	delete(t.ops, t.full[0])
	i := 0
	for next := 1; next < len(t.full); next = 2*i + 1 {
		if next+1 < len(t.full) && t.full[next+1] > t.full[next] {
			next++
		}
		if t.full[next] < op {
			break
		}
		t.full[i], i = t.full[next], next
	}
	t.full[i] = op
}

// Merge adds the spans of o, which it does not change.
func (t *SpanTimes) Merge(o *SpanTimes) {
	t.dropped += o.dropped
	for op, spans := range o.ops {
		if r := t.slot(op, spans.Count()); r != nil {
			r.Merge(spans)
		}
	}
}

// spanPeriod is the period over which spans are collected, and after which they are dropped, together.
const spanPeriod = time.Hour

// latestPeriod is the period over which the latest spans are collected. They are kept for one to two of them.
const latestPeriod = 5 * time.Minute

// RecentSpans holds the durations of the spans of the last one to two hours and, apart, those of the last five to ten
// minutes. The zero value is empty.
type RecentSpans struct {
	current, before SpanTimes
	began, rotated  trace.Nanos // start of before and of current; 0: none yet
	// latest holds the latest spans of current and before once more, the newest in the second. They are not saved: a
	// restart begins with none.
	latest        [2]SpanTimes
	latestRotated trace.Nanos // start of the second of latest; 0: none yet
}

// Observe adds the spans of a complete trace.
func (r *RecentSpans) Observe(p *critpath.Path) {
	r.current.Observe(p)
	r.latest[1].Observe(p)
}

// Merge adds the spans of t, which it does not change.
func (r *RecentSpans) Merge(t *SpanTimes) {
	r.current.Merge(t)
	r.latest[1].Merge(t)
}

// Rotate ends an epoch at time now. It drops the spans of the period before the last.
func (r *RecentSpans) Rotate(now trace.Nanos) {
	if now.Sub(r.latestRotated) >= latestPeriod {
		r.latest = [2]SpanTimes{r.latest[1], {}}
		r.latestRotated = now
	}
	switch {
	case r.rotated == 0 || len(r.current.ops)+len(r.before.ops) == 0:
		r.began, r.rotated = now, now
	case now.Sub(r.rotated) >= spanPeriod:
		r.before, r.current = r.current, SpanTimes{}
		r.began, r.rotated = r.rotated, now
	}
}

// TakeAsEarlier takes all spans so far as earlier ones: those of a recorded past arrive at once.
func (r *RecentSpans) TakeAsEarlier() { r.latest = [2]SpanTimes{} }

// Since returns the start of the earliest period; 0 if there are no spans.
func (r *RecentSpans) Since() trace.Nanos { return r.began }

// Dropped returns the number of spans of dropped operations.
func (r *RecentSpans) Dropped() uint64 { return r.before.dropped + r.current.dropped }

// Of returns the durations of the spans of an operation. They share no memory with r.
func (r *RecentSpans) Of(op trace.Op) (spans stats.Ranks) {
	for _, t := range []*SpanTimes{&r.before, &r.current} {
		if x := t.ops[op]; x != nil {
			spans.Merge(x)
		}
	}
	return spans
}

// Latest returns the durations of the spans of an operation in the last five to ten minutes, and those of earlier ones.
// They share no memory with r.
func (r *RecentSpans) Latest(op trace.Op) (latest, earlier stats.Ranks) {
	earlier = r.Of(op)
	for i := range r.latest {
		if x := r.latest[i].ops[op]; x != nil {
			latest.Merge(x)
		}
	}
	earlier.Subtract(&latest)
	return latest, earlier
}

const recentSpansVersion = 1

// AppendBinary appends r to b.
func (r *RecentSpans) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, recentSpansVersion))
	e.Times(r.began, r.rotated)
	writeSpanTimes(e, &r.before)
	writeSpanTimes(e, &r.current)
	return e.B
}

func writeSpanTimes(e *codec.Writer, t *SpanTimes) {
	e.Uvarints(t.dropped, uint64(len(t.ops)))
	for _, op := range slices.Sorted(maps.Keys(t.ops)) {
		e.Words(uint64(op))
		e.B = t.ops[op].AppendBinary(e.B)
	}
}

// DecodeRecentSpans returns the RecentSpans that AppendBinary encoded, and the bytes behind them. An error wraps
// [codec.ErrCorrupt].
func DecodeRecentSpans(b []byte) (RecentSpans, []byte, error) {
	d := codec.NewReader(b)
	d.Version(recentSpansVersion)
	r := RecentSpans{began: d.Time(), rotated: d.Time(), before: readSpanTimes(d), current: readSpanTimes(d)}
	if d.Bad() {
		return RecentSpans{}, nil, codec.ErrCorrupt
	}
	return r, d.Rest(), nil
}

func readSpanTimes(d *codec.Reader) (t SpanTimes) {
	t.dropped = d.Uvarint()
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
		before, *t.slot(op, 0) = op, spans
	}
	if t.full == nil && t.dropped > 0 {
		d.Fail() // nothing is dropped while there is room
	}
	return t
}
