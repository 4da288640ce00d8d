package observation

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// MaxSpanOps is the default limit on the number of operations in a SpanTimes. An operation takes 300 to 1,000 bytes,
// and at most 3.5 KiB.
const MaxSpanOps = 8192

// SpanTimes holds the durations of the spans of each step, whether or not they are on the critical path. If there are
// too many steps, it keeps the steps with the lowest identities, so that the selection depends neither on the order of
// the spans nor on the period. The zero value is empty.
type SpanTimes struct {
	limit   int // maximum number of operations; 0 means MaxSpanOps
	ops     map[trace.Op]*stats.Ranks
	full    []trace.Op // the keys of ops as a heap, the greatest first, once the limit is reached; otherwise nil
	dropped uint64     // spans of dropped operations
}

// Observe adds the spans of p.
func (t *SpanTimes) Observe(p *critpath.Path) {
	for i := range p.Nodes {
		if r := t.slot(p.Nodes[i].Step, 1); r != nil {
			r.Add(spanTime(p.Span(int32(i)).Duration()))
		}
	}
}

// spanTime returns the duration d of a span, limited to the range of the statistics, because the span may be malformed.
func spanTime(d time.Duration) int64 { return min(max(0, int64(d)), stats.MaxNanos-1) }

// slot returns the Ranks of op, to add durations to. If there are too many operations, it drops the greatest one. If
// that is op itself, slot counts spans as dropped and returns nil.
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
	case len(t.ops) >= cmp.Or(t.limit, MaxSpanOps):
		t.full = slices.Sorted(maps.Keys(t.ops))
		slices.Reverse(t.full)
	}
	return r
}

// replaceLast drops the greatest operation in favour of op.
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

// Merge adds the spans of o. It doesn't change o.
func (t *SpanTimes) Merge(o *SpanTimes) { t.mergeIf(o, func(trace.Op) bool { return true }) }

// mergeIf is like Merge, but skips the operations for which add returns false.
func (t *SpanTimes) mergeIf(o *SpanTimes, add func(trace.Op) bool) {
	for op, spans := range o.ops {
		if !add(op) {
			continue
		}
		if r := t.slot(op, spans.Count()); r != nil {
			r.Merge(spans)
		}
	}
	if t.full != nil {
		t.dropped += o.dropped
	}
}

const (
	// spanPeriod is the length of the periods that usual spans are collected in. A period is dropped as a whole.
	spanPeriod = time.Hour
	// LatestSpans is the maximum age of the latest spans. An incident opens less than this time after its onset, so
	// spans after the onset never become usual.
	LatestSpans = 10 * time.Minute
	// spanTick is the length of the ticks that spans are collected in before they become usual. LatestSpans is a
	// multiple of it.
	spanTick = 2 * time.Minute
)

// SpanTally holds the durations of the spans of closed traces, by the tick that contains the start of the trace. The
// zero value is empty.
type SpanTally struct {
	Limit int // maximum number of operations in each tick; 0 means MaxSpanOps

	ticks map[int64]*SpanTimes
}

// Observe adds the spans of p. closed is the time when the trace was closed, or 0 if it is unknown. If the trace claims
// to have started after closed, or more than two hours before it, its clock is wrong, and the trace counts at closed.
func (t *SpanTally) Observe(p *critpath.Path, closed trace.Nanos) {
	if len(p.Nodes) == 0 {
		return
	}
	begin := p.Nodes[0].Start
	if len(p.Roots) > 0 {
		begin = p.Nodes[p.Roots[0].Node].Start
	}
	if closed != 0 && (begin > closed || begin < closed.Add(-2*spanPeriod)) {
		begin = closed
	}
	t.at(int64(begin) / int64(spanTick)).Observe(p)
}

func (t *SpanTally) at(tick int64) *SpanTimes {
	s := t.ticks[tick]
	if s == nil {
		if t.ticks == nil {
			t.ticks = make(map[int64]*SpanTimes)
		}
		s = &SpanTimes{limit: t.Limit}
		t.ticks[tick] = s
	}
	return s
}

// Merge adds the spans of o. It doesn't change o.
func (t *SpanTally) Merge(o *SpanTally) {
	for tick, spans := range o.ticks {
		t.at(tick).Merge(spans)
	}
}

// RecentSpans holds the durations of the latest spans and of the usual spans, which are spans from healthy times in the
// one to two hours before. The zero value is empty.
type RecentSpans struct {
	SpanTally
	current, before SpanTimes
	began, rotated  trace.Nanos // start of the periods before and current, or 0
}

// Healthy reports whether op was healthy in [from, to), so that its spans from that time count as usual.
type Healthy func(op trace.Op, from, to trace.Nanos) bool

// Rotate ends an epoch at time now. Spans that are no longer among the latest become usual if they are healthy. At the
// end of a period, Rotate drops the usual spans of the previous period, except for operations that are not healthy now,
// because these may have no newer spans.
func (r *RecentSpans) Rotate(now trace.Nanos, healthy Healthy) {
	if r.rotated == 0 || len(r.ticks)+len(r.current.ops)+len(r.before.ops) == 0 {
		r.began, r.rotated = now, now
	}
	r.current.limit, r.before.limit = r.Limit, r.Limit
	present := int64(now) / int64(spanTick)
	for _, tick := range slices.Sorted(maps.Keys(r.ticks)) {
		spans, from, to := r.ticks[tick], trace.Nanos(tick*int64(spanTick)), trace.Nanos((tick+1)*int64(spanTick))
		switch {
		case tick > present: // a wrong clock
			r.at(present).Merge(spans)
		case to > now.Add(-LatestSpans):
			r.began = min(r.began, from)
			continue
		default:
			r.began = min(r.began, max(from, now.Add(-2*spanPeriod)))
			r.current.mergeIf(spans, func(op trace.Op) bool { return healthy(op, from, to) })
		}
		delete(r.ticks, tick)
	}
	if now.Sub(r.rotated) < spanPeriod {
		return
	}
	before := r.before
	r.before, r.current = r.current, SpanTimes{limit: r.Limit}
	r.before.mergeIf(&before, func(op trace.Op) bool { return !healthy(op, now.Add(-spanTick), now) })
	r.began, r.rotated = r.rotated, now
}

// Since returns the start of the earliest period, or 0 before the first call of Rotate.
func (r *RecentSpans) Since() trace.Nanos { return r.began }

// Dropped returns the number of spans dropped because there were too many operations.
func (r *RecentSpans) Dropped() uint64 {
	n := r.before.dropped + r.current.dropped
	for _, spans := range r.ticks {
		n += spans.dropped
	}
	return n
}

// Latest returns the durations of the spans of op in the last ten to twelve minutes, ignoring ticks that start before
// `from`. The result shares no memory with r.
func (r *RecentSpans) Latest(op trace.Op, from trace.Nanos) (latest stats.Ranks) {
	for tick, spans := range r.ticks {
		if x := spans.ops[op]; x != nil && tick*int64(spanTick) >= int64(from) {
			latest.Merge(x)
		}
	}
	return latest
}

// LatestOps yields the steps with spans in the last ten to twelve minutes, in no particular order.
func (r *RecentSpans) LatestOps() iter.Seq[trace.Op] {
	return func(yield func(trace.Op) bool) {
		seen := make(map[trace.Op]bool)
		for _, spans := range r.ticks {
			for op := range spans.ops {
				if !seen[op] && !yield(op) {
					return
				}
				seen[op] = true
			}
		}
	}
}

// Measured returns the time that the result of Latest(op, from) covers, in whole ticks, or 0, 0 if there are no spans.
func (r *RecentSpans) Measured(op trace.Op, from trace.Nanos) (first, last trace.Nanos) {
	for tick, spans := range r.ticks {
		start := trace.Nanos(tick * int64(spanTick))
		if spans.ops[op] == nil || start < from {
			continue
		}
		if first == 0 || start < first {
			first = start
		}
		last = max(last, start.Add(spanTick))
	}
	return first, last
}

// Usual returns the durations of the usual spans of op. The result shares no memory with r.
func (r *RecentSpans) Usual(op trace.Op) (usual stats.Ranks) {
	for _, t := range []*SpanTimes{&r.before, &r.current} {
		if x := t.ops[op]; x != nil {
			usual.Merge(x)
		}
	}
	return usual
}

// recentSpansVersion is the first byte of encoded RecentSpans.
const recentSpansVersion = 1

// AppendBinary appends r to b.
func (r *RecentSpans) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, recentSpansVersion))
	e.Times(r.began, r.rotated)
	writeSpanTimes(e, &r.before)
	writeSpanTimes(e, &r.current)
	e.Uvarints(uint64(len(r.ticks)))
	for _, tick := range slices.Sorted(maps.Keys(r.ticks)) {
		e.Times(trace.Nanos(tick))
		writeSpanTimes(e, r.ticks[tick])
	}
	return e.B
}

func writeSpanTimes(e *codec.Writer, t *SpanTimes) {
	e.Uvarints(t.dropped, uint64(len(t.ops)))
	for _, op := range slices.Sorted(maps.Keys(t.ops)) {
		e.Words(uint64(op))
		e.B = t.ops[op].AppendBinary(e.B)
	}
}

// DecodeRecentSpans returns the RecentSpans that AppendBinary encoded, with the given limit, and the bytes after them.
// Errors wrap [codec.ErrCorrupt].
func DecodeRecentSpans(b []byte, limit int) (RecentSpans, []byte, error) {
	d := codec.NewReader(b)
	d.Version(recentSpansVersion)
	r := RecentSpans{
		SpanTally: SpanTally{Limit: limit},
		began:     d.Time(),
		rotated:   d.Time(),
		before:    readSpanTimes(d, limit),
		current:   readSpanTimes(d, limit),
	}
	last := int64(math.MinInt64)
	for i := range d.Count(4) {
		tick := int64(d.Time())
		d.Ascending(i, tick > last)
		last = tick
		spans := readSpanTimes(d, limit)
		if d.Bad() {
			break
		}
		*r.at(tick) = spans
	}
	if d.Bad() {
		return RecentSpans{}, nil, codec.ErrCorrupt
	}
	return r, d.Rest(), nil
}

// readSpanTimes reads a SpanTimes, which may have been written with a higher limit.
func readSpanTimes(d *codec.Reader, limit int) (t SpanTimes) {
	t.limit, t.dropped = limit, d.Uvarint()
	n := d.Below(MaxSpanOps + 1)
	before := trace.Op(0)
	for i := range n {
		op := trace.Op(d.Word())
		d.Ascending(int(i), op > before)
		spans := codec.Decode(d, stats.DecodeRanks)
		if d.Bad() || spans.Count() == 0 {
			d.Fail()
			return SpanTimes{}
		}
		before = op
		if r := t.slot(op, spans.Count()); r != nil {
			*r = spans
		}
	}
	return t
}
