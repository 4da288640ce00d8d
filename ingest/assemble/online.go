package assemble

import (
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// CloseReason is the reason for closing a trace.
type CloseReason uint8

// Reasons for closing a trace.
const (
	Complete     CloseReason = iota // no span is missing, and none arrived for OnlineOptions.Settle
	Idle                            // a span is missing, but none arrived for OnlineOptions.Idle
	Age                             // it was open for OnlineOptions.MaxAge
	Size                            // it had too many spans or bytes
	Evicted                         // memory ran out, and it was the oldest trace of the services with the most memory
	CloseReasons                    // number of reasons
)

var closeReasonNames = [...]string{"complete", "idle", "age", "size", "evicted"}

// String returns the name of c in metrics and the API.
func (c CloseReason) String() string { return closeReasonNames[c] }

// Settled reports whether the trace closed because no more spans arrived. Other traces were cut off while spans were
// still arriving, so the live engine and backtests don't analyse them.
func (c CloseReason) Settled() bool { return c == Complete || c == Idle }

// OnlineOptions determines when traces close. Start from [DefaultOnlineOptions].
type OnlineOptions struct {
	Settle   time.Duration // how long a trace without missing spans stays open after its last span
	Idle     time.Duration // how long any trace stays open after its last span; more than Settle
	MaxAge   time.Duration // how long any trace stays open; more than Idle
	MaxSpans int           // maximum number of spans of a trace
	MaxBytes int64         // maximum size of a trace in bytes
	Memory   int64         // limit on the bytes of open traces; remembered traces take a quarter of that in addition
	Remember time.Duration // how long late spans do not reopen a closed trace; more than MaxAge
}

// Timeout is the default for OnlineOptions.Idle. SDKs export every five seconds. A trace without missing spans is
// therefore complete after six seconds without a span, which is the default for OnlineOptions.Settle.
const Timeout = 10 * time.Second

// Limits on a trace. Larger traces are rarely a single request. Often they are a job, or a day's requests under one
// trace ID.
const (
	maxSpans = 100_000
	maxBytes = 64 << 20
)

// remember is the minimum of OnlineOptions.Remember. Senders usually give up retrying a request sooner.
const remember = 10 * time.Minute

// NewOnlineOptions returns the options for the given idle timeout. It derives the other times from timeout so that they
// keep their order: complete traces close before incomplete ones, and late spans of a trace that was cut off don't
// start a new trace. memory is the limit on all open traces, in bytes.
func NewOnlineOptions(timeout time.Duration, memory int64) OnlineOptions {
	age := 6 * timeout
	return OnlineOptions{
		Settle:   timeout * 6 / 10,
		Idle:     timeout,
		MaxAge:   age,
		MaxSpans: maxSpans,
		MaxBytes: min(maxBytes, memory),
		Memory:   memory,
		Remember: max(remember, 2*age),
	}
}

// DefaultOnlineOptions returns the options for [Timeout] and 1 GiB of memory.
func DefaultOnlineOptions() OnlineOptions { return NewOnlineOptions(Timeout, 1<<30) }

// Online assembles the traces of an unbounded input. Callers pass the time of arrival, which must not decrease. Unless
// a trace is evicted, the time at which it closes depends only on its spans and their times of arrival. The same input
// therefore closes the same traces at the same times, whether it is live or read from a journal, in one assembler or
// distributed over several by trace.
type Online struct {
	options OnlineOptions
	blocks  blocks
	index   map[trace.ID]int32 // index in open of each open trace
	open    []openTrace        // by index
	unused  []int32            // free indexes in open
	lists   [3]list            // by state
	owners  [ownerShares]owner // shares of the services, by hash
	ready   []ready            // closed traces; Next has already returned the first ones
	closed  remembered
	// returned is the number of traces in ready that Next has returned. It is less than len(ready), or both are 0.
	returned int
	spans    int64 // number of spans in open traces
	held     int64 // memory of open traces in bytes
	// number of spans, since the start, that arrived for traces already closed
	late, duplicates int64
	left             trace.Coverage // the same spans by service, since the last call to Account
	resumed          uint64         // see Resume
	ids              idSet          // scratch
}

// ownerShares is the number of shares that services are divided into, by hash. When memory runs out, the largest share
// loses its oldest trace, so that services that send a lot don't displace the traces of others.
const ownerShares = 64

// owner accounts for the open traces of one share of services.
type owner struct {
	bytes  int64 // memory of the share's open traces in bytes
	traces list  // oldest first
}

// States of open traces. Each list is ordered by deadline, because the time from the last event to the deadline is the
// same for all traces in a list.
const (
	settling = iota // waiting for OnlineOptions.Settle
	idling          // spans were missing after Settle; waiting for OnlineOptions.Idle
	aging           // all open traces, oldest first
	owned           // the open traces of an owner, oldest first
)

type openTrace struct {
	id          trace.ID
	first, last trace.Nanos // arrival of the first and the last span
	record      uint64      // record with its first span
	lastRecord  uint64
	block       int32 // first block of the chain
	tail        tail
	bytes       int64 // size of the entries in bytes
	held        int64 // memory in bytes
	spans       int32
	owner       uint8    // index in Online.owners, by the service of the first span
	idle        bool     // it is in the list idling rather than settling
	links       [3]links // in settling or idling, in aging, and in the owner's list
}

type links struct{ before, after int32 } // indexes of traces, or −1

// list is a doubly linked list of open traces.
type list struct{ first, last int32 }

type ready struct {
	trace  int32
	reason CloseReason
	at     trace.Nanos
}

// NewOnline returns an assembler without open traces.
func NewOnline(options OnlineOptions) *Online {
	o := &Online{options: options, index: make(map[trace.ID]int32)}
	for i := range o.lists {
		o.lists[i] = list{-1, -1}
	}
	for i := range o.owners {
		o.owners[i].traces = list{-1, -1}
	}
	o.closed = newRemembered(options.Remember, options.Memory/4)
	return o
}

// Closed is a closed trace.
type Closed struct {
	trace.Trace
	Reason  CloseReason
	At      trace.Nanos // time at which the trace closed
	Last    trace.Nanos // arrival of the last span
	Records []uint64    // numbers of the records that contain its spans, ascending
}

// Add adds the spans of b in the range r, which arrived at time now in the record with the given number. Records must
// be numbered in order of arrival. Call [Online.Next] with the same time until it returns false, both before and after
// Add.
func (o *Online) Add(now trace.Nanos, record uint64, b *ingest.Batch, r Run) {
	id := b.Traces[r.From]
	held := o.bytes()
	n, ok := o.index[id]
	if !ok {
		if h := id.Hash(); o.closed.has(h) {
			if record > o.resumed {
				o.turnAway(h, b.Spans[r.From:r.To])
			}
			return
		}
		n = o.begin(now, record, id, b.Spans[r.From].Service)
	}
	t := &o.open[n]
	if t.spans < 0 {
		o.late += int64(r.To - r.From) // closed, but not yet returned by Next
		for i := r.From; i < r.To; i++ {
			o.left.Leave(&b.Spans[i], trace.Late)
		}
		return
	}
	if t.lastRecord != record || !ok {
		o.blocks.putRecord(&t.tail, record)
		t.lastRecord = record
	}
	o.put(t, b, r)
	grown := o.bytes() - held
	t.held += grown
	o.owners[t.owner].bytes += grown
	o.held += grown
	o.spans += int64(r.To - r.From)
	t.last = now
	o.wait(n, settling)
	if int(t.spans) >= o.options.MaxSpans || t.bytes >= o.options.MaxBytes {
		o.end(n, Size, now)
	}
	for o.held > o.options.Memory {
		o.end(o.largestOwner().traces.first, Evicted, now)
	}
}

// openTraceBytes is the memory of an open trace without its blocks: its entries in Online.open and Online.index.
const openTraceBytes = 256

// bytes returns the memory of the traces that are open or not yet returned by Next.
func (o *Online) bytes() int64 { return o.blocks.live() + int64(len(o.index))*openTraceBytes }

// turnAway counts each of spans, which belong to the closed trace with hash h, as duplicate or late.
func (o *Online) turnAway(h uint64, spans []trace.Span) {
	for i := range spans {
		if o.closed.hasSpan(h, spans[i].ID) {
			o.duplicates++
			o.left.Leave(&spans[i], trace.Duplicate)
		} else {
			o.late++
			o.left.Leave(&spans[i], trace.Late)
		}
	}
}

// Account adds to c the duplicate and late spans that arrived since the last call.
func (o *Online) Account(c *trace.Coverage) {
	c.Merge(&o.left)
	o.left = trace.Coverage{}
}

// Leave adds t to c as a trace that was cut off. t must not have settled.
func (t *Closed) Leave(c *trace.Coverage) {
	c.Traces++
	for i := range t.Spans {
		c.Leave(&t.Spans[i], trace.Cut)
	}
}

// largestOwner returns the owner whose open traces take the most memory.
func (o *Online) largestOwner() *owner {
	largest := &o.owners[0]
	for i := range o.owners {
		if o.owners[i].bytes > largest.bytes {
			largest = &o.owners[i]
		}
	}
	return largest
}

// Run is a range of consecutive spans in a batch, all of one trace.
type Run struct {
	From, To    int32 // range in Spans, excluding To
	Attrs, Join int32 // index of the run's first attribute and join
}

// Runs splits b into runs and appends each to runs[shard], where shard depends on the hash of the trace ID.
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

// begin opens the trace with the given id and returns its index. Its first span arrived at now, in the given record,
// from service.
func (o *Online) begin(now trace.Nanos, record uint64, id trace.ID, service trace.Symbol) int32 {
	var n int32
	if last := len(o.unused) - 1; last >= 0 {
		n, o.unused = o.unused[last], o.unused[:last]
	} else {
		n = int32(len(o.open))
		o.open = append(o.open, openTrace{})
	}
	end := o.blocks.chain()
	o.open[n] = openTrace{
		id:     id,
		first:  now,
		record: record,
		block:  end.block,
		tail:   end,
		owner:  uint8(service % ownerShares),
	}
	o.index[id] = n
	o.push(n, settling)
	o.push(n, aging)
	o.push(n, owned)
	return n
}

// Next copies the next trace that closed at or before time now into t, replacing its contents. It returns false if
// there is no such trace.
func (o *Online) Next(now trace.Nanos, t *Closed) bool {
	o.closed.forget(now)
	if len(o.ready) == 0 {
		o.expire(now)
	}
	if len(o.ready) == 0 {
		return false
	}
	r := o.ready[o.returned]
	if o.returned++; o.returned == len(o.ready) {
		o.ready, o.returned = o.ready[:0], 0
	}
	x := &o.open[r.trace]
	t.Reset()
	t.ID, t.Reason, t.At, t.Last = x.id, r.reason, r.at, x.last
	t.Records = o.blocks.read(x.block, &t.Trace, t.Records[:0])
	o.blocks.release(x.block)
	h := x.id.Hash()
	o.closed.add(h)
	for i := range t.Spans {
		o.closed.addSpan(h, t.Spans[i].ID)
	}
	delete(o.index, x.id)
	o.spans -= int64(len(t.Spans))
	o.unused = append(o.unused, r.trace)
	return true
}

// expire closes the trace with the earliest deadline if the deadline has passed at time now. If a trace turns out to
// lack spans, it keeps waiting instead, and expire tries the next deadline.
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

// missing returns the number of root spans of open[n] and the number of spans whose parent is missing. enter reports
// whether all spans with a missing parent are entry spans, whose callers may not send spans. A span that is its own
// parent is a root. Consecutive duplicates count once.
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

// end closes open[n], so that it accepts no more spans, and queues it for Next.
func (o *Online) end(n int32, reason CloseReason, at trace.Nanos) {
	t := &o.open[n]
	o.unlink(n, settling)
	o.unlink(n, aging)
	o.unlink(n, owned)
	o.owners[t.owner].bytes -= t.held
	o.held -= t.held
	t.spans = -1
	o.ready = append(o.ready, ready{n, reason, at})
}

// wait moves open[n] to the end of the list for the state waiting, which must be settling or idling.
func (o *Online) wait(n int32, waiting int) {
	o.unlink(n, settling)
	o.open[n].idle = waiting == idling
	o.push(n, waiting)
}

// link returns the list for the state waiting that contains open[n], and the links of open[n] in that list. For both
// settling and idling, it returns whichever of the two lists contains the trace.
func (o *Online) link(n int32, waiting int) (*links, *list) {
	t := &o.open[n]
	switch {
	case waiting == aging:
		return &t.links[1], &o.lists[aging]
	case waiting == owned:
		return &t.links[2], &o.owners[t.owner].traces
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

// unlink removes open[n] from the list returned by link.
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

// OnlineStats describes the contents of an [Online].
type OnlineStats struct {
	Traces, Spans int64  // number of open traces and of their spans
	Bytes         int64  // memory of open traces in bytes
	Late          int64  // number of spans that arrived after their trace was closed, since the start
	Duplicates    int64  // number of spans of closed traces that arrived again, since the start
	Remembered    int64  // number of closed traces that are remembered
	Oldest        uint64 // lowest number of a record that contains a span of an open trace, or math.MaxUint64
}

// Stats returns the current statistics of o.
func (o *Online) Stats() OnlineStats {
	s := OnlineStats{
		Traces: int64(len(o.index)), Spans: o.spans, Bytes: o.bytes(), Late: o.late, Duplicates: o.duplicates,
		Remembered: o.closed.len(), Oldest: ^uint64(0),
	}
	if first := o.lists[aging].first; first >= 0 {
		s.Oldest = o.open[first].record
	}
	return s
}

// NewlyClosed returns the hashes of the IDs of the traces closed since the last call, for [Online.Recall] after a
// restart.
func (o *Online) NewlyClosed() []uint64 { return o.closed.drain() }

// Recall remembers the traces with the given ID hashes as closed at about time at. Call it before any call to Add, with
// ascending times.
func (o *Online) Recall(at trace.Nanos, hashes []uint64) { o.closed.recall(at, hashes) }

// Resume announces that the records up to the given number will be added again. Spans of recalled traces in these
// records are not counted as late or duplicate, because they were counted before the restart.
func (o *Online) Resume(record uint64) { o.resumed = record }
