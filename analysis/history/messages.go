package history

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on [Messages].
const (
	// maxMessages is the maximum number of messages. They take less than 10 MB.
	maxMessages = 1 << 17
	// longestWait is the maximum age of the messages that we remember.
	longestWait = trace.Nanos(time.Hour)
	// patience is the time that we wait for the sender of a message that was taken: its trace may close later.
	patience = trace.Nanos(10 * time.Minute)
	// mostRare is the maximum of rarity, so that the number of messages in a slice fits into 32 bits. About 150,000
	// messages a second reach it.
	mostRare = 12
)

// Messages measures the time between the span that sent a message and the span of another trace that took it. The
// traces close at different times and in different shards, so either may come first. Whether we keep a message depends
// only on its identity and on the number of all messages, so the result does not depend on the order of arrival.
type Messages struct {
	// rarity is the binary logarithm of the number of messages that each kept message stands for. It rises by 1 each
	// time there are too many messages, and falls again when there are few.
	rarity int
	sent   map[trace.SpanID]sending // by message
	taken  []taking                 // whose sender is not yet known

	joined, lost uint64 // messages taken whose sender is known, and messages taken whose sender stayed unknown
}

// sending is the time when a message was sent, and its queue.
type sending struct {
	at    trace.Nanos // end of the span
	queue trace.Op
}

// taking is a span that took a message.
type taking struct {
	message trace.SpanID
	own     trace.Op // operation of the span
	service trace.Symbol
	at      trace.Nanos // start of the span
	slice   Slice       // of its trace
	within  int64       // logarithm of the duration of its request
}

func (x taking) compare(y taking) int {
	return cmp.Or(cmp.Compare(x.message, y.message), cmp.Compare(x.own, y.own), cmp.Compare(x.at, y.at),
		cmp.Compare(x.service, y.service), cmp.Compare(x.slice, y.slice), cmp.Compare(x.within, y.within))
}

// Joined returns the number of messages that one trace sent and another one took, and the number of messages that were
// taken but whose sender stayed unknown, because it was not sampled or sent the message too long ago. The history has
// counted the time in the queue for joined messages. Both numbers are too low if there are too many messages to keep.
func (m *Messages) Joined() (joined, lost uint64) { return m.joined, m.lost }

func (m *Messages) keeps(message trace.SpanID) bool {
	return bits.TrailingZeros64(uint64(message)) >= m.rarity
}

// send adds a message. If a message was sent twice, for example because a span was repeated, the earlier time counts.
func (m *Messages) send(message trace.SpanID, x sending) {
	if !m.keeps(message) {
		return
	}
	if m.sent == nil {
		m.sent = make(map[trace.SpanID]sending)
	}
	if y, known := m.sent[message]; !known || cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.queue, y.queue)) < 0 {
		m.sent[message] = x
		m.bound()
	}
}

// take adds x, unless its message is not kept.
func (m *Messages) take(x taking) {
	if m.keeps(x.message) {
		m.taken = append(m.taken, x)
		m.bound()
	}
}

// bound deletes messages, about half of them at a time and selected by their identities, until there are few enough.
func (m *Messages) bound() {
	for len(m.sent)+len(m.taken) > maxMessages && m.rarity < 64 {
		m.thin(m.rarity + 1)
	}
}

func (m *Messages) thin(rarity int) {
	m.rarity = rarity
	maps.DeleteFunc(m.sent, func(message trace.SpanID, _ sending) bool { return !m.keeps(message) })
	m.taken = slices.DeleteFunc(m.taken, func(x taking) bool { return !m.keeps(x.message) })
}

// merge adds the messages of o.
func (m *Messages) merge(o *Messages) {
	if o.rarity > m.rarity {
		m.thin(o.rarity)
	}
	for message, x := range o.sent {
		m.send(message, x)
	}
	for _, x := range o.taken {
		m.take(x)
	}
}

// send records that span s of trace id sent a message.
func (t *Tally) send(id trace.ID, s *trace.Span) {
	t.messages.send(trace.MessageID(id, s.ID), sending{max(s.Start, s.End), s.Peer})
}

// take records the messages of other traces that spans of p took. The messages count in slice into.
func (t *Tally) take(p *critpath.Path, into Slice) {
	var nodes map[int32]int32 // by span that took messages
	for _, j := range p.Trace.Joins {
		if j.Message {
			if nodes == nil {
				nodes = make(map[int32]int32)
			}
			nodes[j.Span] = -1
		}
	}
	if nodes == nil {
		return
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if _, takes := nodes[n.Span]; takes && n.Root >= 0 && n.Anchor == int32(i) {
			nodes[n.Span] = int32(i)
		}
	}
	for _, j := range p.Trace.Joins {
		if i := nodes[j.Span]; j.Message && i >= 0 {
			s := p.Span(i)
			duration := p.Duration(&p.Roots[p.Nodes[i].Root])
			t.messages.take(taking{j.Linked, s.Op, s.Service, s.Start, into, logOf(int64(duration))})
		}
	}
}

// join returns a tally of the times that messages waited until a span of another trace took them, for messages whose
// two traces are known. It also forgets old messages.
func (m *Messages) join(now trace.Nanos) *Tally {
	waits := NewTally()
	sorting.Slice(m.taken, taking.compare) // the tally numbers its sites in this order
	m.taken = slices.DeleteFunc(m.taken, func(x taking) bool {
		sent, known := m.sent[x.message]
		if known {
			m.joined++
			waits.within = x.within
			w := critpath.Wait{Queue: sent.queue, Own: x.own, Time: max(0, x.at.Sub(sent.at))}
			waits.observeWait(waits.slice(x.slice), x.service, &w, 1<<min(m.rarity, mostRare))
			return true
		}
		old := now-x.at > patience || x.at-now > patience
		if old {
			m.lost++
		}
		return old
	})
	maps.DeleteFunc(m.sent, func(_ trace.SpanID, x sending) bool {
		return now-x.at > longestWait || x.at-now > longestWait
	})
	if m.rarity > 0 && len(m.sent)+len(m.taken) < maxMessages/4 {
		m.rarity--
	}
	return waits
}

func (m *Messages) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(m.rarity), m.joined, m.lost, uint64(len(m.sent)))
	for _, message := range slices.Sorted(maps.Keys(m.sent)) {
		x := m.sent[message]
		b = codec.AppendWords(b, uint64(message), uint64(x.queue))
		b = codec.AppendUvarints(b, uint64(x.at))
	}
	b = codec.AppendUvarints(b, uint64(len(m.taken)))
	for _, x := range sorting.Sorted(slices.Values(m.taken), taking.compare) {
		b = codec.AppendWords(b, uint64(x.message), uint64(x.own), uint64(x.service))
		b = codec.AppendUvarints(b, uint64(x.at), uint64(x.slice), uint64(x.within))
	}
	return b
}

func (m *Messages) read(r *codec.Reader) {
	const sent, taken = 17, 27 // bytes
	m.rarity, m.joined, m.lost = int(r.Below(65)), r.Uvarint(), r.Uvarint()
	n := r.Count(sent)
	r.Check(n <= maxMessages)
	m.sent = make(map[trace.SpanID]sending)
	last := trace.SpanID(0)
	for i := range n {
		message, queue := trace.SpanID(r.Word()), trace.Op(r.Word())
		r.Check(i == 0 || message > last)
		last = message
		m.sent[message] = sending{trace.Nanos(r.Below(uint64(trace.MaxNanos) + 1)), queue}
	}
	n = r.Count(taken)
	r.Check(n <= maxMessages)
	for range n {
		m.taken = append(m.taken, taking{
			trace.SpanID(r.Word()), trace.Op(r.Word()), trace.Symbol(r.Word()),
			trace.Nanos(r.Below(uint64(trace.MaxNanos) + 1)), readSlice(r), int64(r.Below(1 << 63)),
		})
	}
	r.Check(slices.IsSortedFunc(m.taken, taking.compare))
}
