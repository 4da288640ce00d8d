package assemble

import (
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Closing says why a trace was closed.
type Closing uint8

// Why traces close. Only complete ones may enter statistics: of the others something is missing.
const (
	Complete Closing = iota // nothing is missing, and nothing more came for a while
	Idle                    // something is missing, and nothing more came
	Age                     // it was open for too long
	Size                    // it had too many spans, or bytes
	Evicted                 // it was the oldest when memory ran out
	Closings                // how many reasons there are
)

var closingNames = [...]string{"complete", "idle", "age", "size", "evicted"}

// String returns the reason as metrics and the API name it.
func (c Closing) String() string { return closingNames[c] }

// OnlineOptions say when traces close. Use [DefaultOnlineOptions] and change what you need.
type OnlineOptions struct {
	Settle   time.Duration // a trace that lacks nothing closes when nothing came for so long
	Idle     time.Duration // any trace does after this; more than Settle
	MaxAge   time.Duration // and any, whatever comes, after this; more than Idle
	MaxSpans int           // of one trace
	MaxBytes int64         // of one trace
	Memory   int64         // bytes of all open traces
	Remember time.Duration // how long closed traces are known, so that late spans do not open them again; more than MaxAge
}

// DefaultOnlineOptions returns the options of design: SDKs export every five seconds, so that six without a span say something.
func DefaultOnlineOptions() OnlineOptions {
	return OnlineOptions{
		Settle: 6 * time.Second, Idle: 10 * time.Second, MaxAge: time.Minute, MaxSpans: 100_000, MaxBytes: 64 << 20,
		Memory: 1 << 30, Remember: 10 * time.Minute,
	}
}

// Online assembles the traces of an input that does not end. Time is an argument: that of arrival, in nanoseconds since the epoch,
// which never goes back. What closes when is decided by the spans and their times of arrival alone (but for evictions), so that the same
// input closes the same traces at the same times, live or read again from a journal, whole or spread over assemblers by trace.
type Online struct {
	options OnlineOptions
	blocks  blocks
	index   map[trace.ID]int32 // of open traces
	open    []openTrace        // by number
	unused  []int32            // numbers of no open trace
	lists   [3]list            // by what is waited for
	ready   []ready            // closed, to be returned by Next
	closed  remembered
	spans   int64 // of open traces
	late    int64
	ids     idSet // scratch
}

// What a trace is waited for. Each of the lists is in the order of its deadlines, because the time from what begins the waiting
// to its end is the same for all.
const (
	settling = iota // its last span came not long ago
	idling          // it settled and lacked something
	aging           // all open traces, the oldest first
)

type openTrace struct {
	id          trace.ID
	first, last trace.Nanos // arrival of spans
	record      uint64      // the record with its first span
	lastRecord  uint64
	block       int32 // first of its chain
	tail        tail
	bytes       int64 // of its chain's entries
	spans       int32
	idle        bool     // in list idling, not settling
	links       [2]links // in settling or idling, in aging
}

type links struct{ before, after int32 } // numbers of traces; −1: none

// list is a doubly linked list of open traces.
type list struct{ first, last int32 }

type ready struct {
	trace  int32
	reason Closing
	at     trace.Nanos
}

// NewOnline returns an assembler without open traces.
func NewOnline(options OnlineOptions) *Online {
	o := &Online{options: options, index: make(map[trace.ID]int32)}
	for i := range o.lists {
		o.lists[i] = list{-1, -1}
	}
	o.closed.window = options.Remember
	return o
}

// Closed is a closed trace.
type Closed struct {
	trace.Trace
	Reason  Closing
	At      trace.Nanos // when
	Records []uint64    // numbers of the records that its spans came with, ascending
}

// Add adds the spans [from, to) of b, which belong to one trace, and came with the given record at time now. Records are numbered in the
// order of their arrival. Call [Online.Next] with the same time until there is nothing left, before and after.
func (o *Online) Add(now trace.Nanos, record uint64, b *ingest.Batch, r Run) {
	id := b.Traces[r.From]
	n, ok := o.index[id]
	if !ok {
		if o.closed.has(id.Hash()) {
			o.late += int64(r.To - r.From)
			return
		}
		n = o.begin(now, record, id)
	}
	t := &o.open[n]
	if t.spans < 0 {
		o.late += int64(r.To - r.From) // closed, and not yet taken
		return
	}
	if t.lastRecord != record || !ok {
		o.blocks.putRecord(&t.tail, record)
		t.lastRecord = record
	}
	o.put(t, b, r)
	o.spans += int64(r.To - r.From)
	t.last = now
	o.wait(n, settling)
	switch {
	case int(t.spans) >= o.options.MaxSpans || t.bytes >= o.options.MaxBytes:
		o.end(n, Size, now)
	case o.blocks.live() > o.options.Memory && o.lists[aging].first >= 0:
		o.end(o.lists[aging].first, Evicted, now)
	}
}

// Run is a piece of a batch whose spans are of one trace.
type Run struct {
	From, To    int32 // in Spans
	Attrs, Join int32 // the first of the run's attributes and joins
}

// Runs appends the runs of b to runs[shard] for each of them, by the hash of the trace.
func Runs(b *ingest.Batch, runs [][]Run) {
	attr, join := int32(0), int32(0)
	for i := int32(0); int(i) < len(b.Spans); {
		r := Run{From: i, To: i + 1, Attrs: attr, Join: join}
		for int(r.To) < len(b.Spans) && b.Traces[r.To] == b.Traces[i] {
			r.To++
		}
		for int(attr) < len(b.Attrs) && b.Attrs[attr].Span < r.To {
			attr++
		}
		for int(join) < len(b.Joins) && b.Joins[join].Span < r.To {
			join++
		}
		shard := b.Traces[i].Hash() % uint64(len(runs))
		runs[shard] = append(runs[shard], r)
		i = r.To
	}
}

func (o *Online) put(t *openTrace, b *ingest.Batch, r Run) {
	attrs, joins := b.Attrs[r.Attrs:], b.Joins[r.Join:]
	for i := r.From; i < r.To; i++ {
		o.blocks.putSpan(&t.tail, &b.Spans[i])
		t.bytes += spanEntry
		for ; len(attrs) > 0 && attrs[0].Span == i; attrs = attrs[1:] {
			o.blocks.putAttr(&t.tail, &attrs[0])
			t.bytes += attrEntry
		}
		for ; len(joins) > 0 && joins[0].Span == i; joins = joins[1:] {
			o.blocks.putJoin(&t.tail, &joins[0])
			t.bytes += joinEntry
		}
	}
	t.spans += r.To - r.From
}

// begin opens a trace and returns its number.
func (o *Online) begin(now trace.Nanos, record uint64, id trace.ID) int32 {
	var n int32
	if last := len(o.unused) - 1; last >= 0 {
		n, o.unused = o.unused[last], o.unused[:last]
	} else {
		n = int32(len(o.open))
		o.open = append(o.open, openTrace{})
	}
	end := o.blocks.chain()
	o.open[n] = openTrace{id: id, first: now, record: record, block: end.block, tail: end}
	o.index[id] = n
	o.push(n, settling)
	o.push(n, aging)
	return n
}

// Next moves the next trace that is to be closed at time now or before to t, in place of what t held. It returns false if there is none.
func (o *Online) Next(now trace.Nanos, t *Closed) bool {
	o.closed.forget(now)
	if len(o.ready) == 0 {
		o.expire(now)
	}
	if len(o.ready) == 0 {
		return false
	}
	r := o.ready[0]
	o.ready = o.ready[:copy(o.ready, o.ready[1:])]
	x := &o.open[r.trace]
	t.Reset()
	t.ID, t.Reason, t.At = x.id, r.reason, r.at
	t.Records = o.blocks.read(x.block, &t.Trace, t.Records[:0])
	o.blocks.release(x.block)
	o.closed.add(x.id.Hash())
	delete(o.index, x.id)
	o.spans -= int64(len(t.Spans))
	o.unused = append(o.unused, r.trace)
	return true
}

// expire ends the trace whose time is up first, if it is up.
func (o *Online) expire(now trace.Nanos) {
	for len(o.ready) == 0 {
		n, waiting := int32(-1), 0
		var deadline trace.Nanos
		for i, l := range o.lists {
			if l.first < 0 {
				continue
			}
			if d := o.deadline(l.first, i); d <= now && (n < 0 || d < deadline) {
				n, waiting, deadline = l.first, i, d
			}
		}
		if n < 0 {
			return
		}
		switch waiting {
		case settling:
			if roots, orphans, _ := o.missing(n); roots > 0 && orphans == 0 {
				o.end(n, Complete, deadline)
			} else {
				o.wait(n, idling)
			}
		case idling:
			if roots, orphans, enter := o.missing(n); orphans == 0 || roots == 0 && orphans == 1 && enter {
				o.end(n, Complete, deadline)
			} else {
				o.end(n, Idle, deadline)
			}
		case aging:
			o.end(n, Age, deadline)
		}
	}
}

func (o *Online) deadline(n int32, waiting int) trace.Nanos {
	t := &o.open[n]
	switch waiting {
	case settling:
		return t.last.Add(o.options.Settle)
	case idling:
		return t.last.Add(o.options.Idle)
	default:
		return t.first.Add(o.options.MaxAge)
	}
}

// missing returns how many spans of a trace are roots, how many have a parent that is missing, and whether all of these are where requests
// enter from somebody who sends no spans. A span that is its own parent is a root; copies count once.
func (o *Online) missing(n int32) (roots, orphans int, enter bool) {
	t := &o.open[n]
	o.ids.reset(int(t.spans))
	o.blocks.walk(t.block, func(kind entry, e []byte) {
		if kind == entrySpan {
			o.ids.add(uint64(spanID(e)))
		}
	})
	var orphan trace.SpanID
	enter = true
	o.blocks.walk(t.block, func(kind entry, e []byte) {
		if kind != entrySpan {
			return
		}
		id, parent := spanID(e), spanParent(e)
		switch {
		case parent == 0 || parent == id:
			roots++
		case !o.ids.has(uint64(parent)):
			if id != orphan {
				orphans++
				orphan = id
			}
			s := getSpan(e)
			enter = enter && (s.Kind == trace.Server || s.Kind == trace.Consumer || s.Flags&trace.RemoteParent != 0)
		}
	})
	return roots, orphans, enter
}

// end puts a trace among those that are ready. Nothing more is added to it.
func (o *Online) end(n int32, reason Closing, at trace.Nanos) {
	t := &o.open[n]
	o.unlink(n, settling)
	o.unlink(n, aging)
	t.spans = -1
	o.ready = append(o.ready, ready{n, reason, at})
}

// wait moves a trace to the end of the list settling or idling.
func (o *Online) wait(n int32, waiting int) {
	o.unlink(n, settling)
	o.open[n].idle = waiting == idling
	o.push(n, waiting)
}

// link returns the links of trace n in a list, and the list.
func (o *Online) link(n int32, waiting int) (*links, *list) {
	t := &o.open[n]
	switch {
	case waiting == aging:
		return &t.links[1], &o.lists[aging]
	case t.idle:
		return &t.links[0], &o.lists[idling]
	default:
		return &t.links[0], &o.lists[settling]
	}
}

func (o *Online) push(n int32, waiting int) {
	at, l := o.link(n, waiting)
	*at = links{before: l.last, after: -1}
	if l.last >= 0 {
		before, _ := o.link(l.last, waiting)
		before.after = n
	} else {
		l.first = n
	}
	l.last = n
}

// unlink takes a trace from the list that it waits in, or ages in.
func (o *Online) unlink(n int32, waiting int) {
	at, l := o.link(n, waiting)
	if at.before >= 0 {
		before, _ := o.link(at.before, waiting)
		before.after = at.after
	} else {
		l.first = at.after
	}
	if at.after >= 0 {
		after, _ := o.link(at.after, waiting)
		after.before = at.before
	} else {
		l.last = at.before
	}
}

// OnlineStats says how much an assembler holds.
type OnlineStats struct {
	Traces, Spans int64  // open
	Bytes         int64  // that they take
	Late          int64  // spans that came after their trace was closed, since the start
	Remembered    int64  // closed traces that are known
	Oldest        uint64 // the first record that an open trace has a span of; math.MaxUint64: none
}

// Stats returns how much o holds.
func (o *Online) Stats() OnlineStats {
	s := OnlineStats{
		Traces: int64(len(o.index)), Spans: o.spans, Bytes: o.blocks.live(), Late: o.late, Remembered: o.closed.len(), Oldest: ^uint64(0),
	}
	if first := o.lists[aging].first; first >= 0 {
		s.Oldest = o.open[first].record
	}
	return s
}

// NewlyClosed returns the hashes of the IDs of the traces closed since the last call, for [Online.Recall] after a restart.
func (o *Online) NewlyClosed() []uint64 { return o.closed.drain() }

// Recall makes traces known as closed that were closed about the given time. Call it before any Add, older ones first.
func (o *Online) Recall(at trace.Nanos, hashes []uint64) { o.closed.recall(at, hashes) }
