package history

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// mail generates traces that send messages, and others that take them and only link to the sender.
type mail struct {
	table         *trace.Table
	shop, billing trace.Symbol
	queue         trace.Op
	send, process trace.Op
}

func newMail() *mail {
	m := &mail{table: &trace.Table{}}
	m.shop, m.billing = m.table.Symbol("shop"), m.table.Symbol("billing")
	m.queue = m.table.Op(m.table.Symbol("broker"), m.table.Symbol("orders"), trace.External)
	m.send = m.table.Op(m.shop, m.table.Symbol("send orders"), trace.Producer)
	m.process = m.table.Op(m.billing, m.table.Symbol("process orders"), trace.Consumer)
	return m
}

const (
	second = trace.Nanos(time.Second)
	// mailFrom is the start of an epoch.
	mailFrom = 1_700_000_000 * second
)

// sent returns the trace of message n. The message is sent at time at.
func (m *mail) sent(n int, at trace.Nanos) *trace.Trace {
	return &trace.Trace{ID: trace.ID{1, byte(n >> 8), byte(n), 1}, Spans: []trace.Span{{
		ID:      trace.SpanID(n + 1),
		Op:      m.send,
		Service: m.shop,
		Kind:    trace.Producer,
		Peer:    m.queue,
		Start:   at - 1e6,
		End:     at,
	}}}
}

// taken returns the trace of a span that takes messages at a time.
func (m *mail) taken(n int, at trace.Nanos, messages ...int) *trace.Trace {
	t := &trace.Trace{ID: trace.ID{2, byte(n >> 8), byte(n), 1}, Spans: []trace.Span{{
		ID: 1, Op: m.process, Service: m.billing, Kind: trace.Consumer, Start: at, End: at + 1e6,
	}}}
	for _, n := range messages {
		s := m.sent(n, 0)
		t.Joins = append(t.Joins, trace.Join{Message: true, Linked: trace.MessageID(s.ID, s.Spans[0].ID)})
	}
	return t
}

func tallyTraces(traces ...*trace.Trace) *Tally {
	tally, extractor := NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for _, t := range traces {
		tally.Observe(extractor.Extract(t))
	}
	return tally
}

// waits returns the calls at the site of the queue.
func (m *mail) waits(h *Sites) Cells {
	number, known := h.numbers[SiteKey{Op: m.queue, Parent: m.process}]
	if !known || !h.sites[number].Queue || h.Services.names[h.sites[number].Service] != m.billing {
		return nil
	}
	return h.series[number].Unpack(nil)
}

// TestMessages counts the time in a queue at a site of the consumer, whichever trace comes first.
func TestMessages(t *testing.T) {
	m := newMail()
	at := mailFrom
	sent, taken := m.sent(1, at), m.taken(1, at+30*second, 1)
	early := m.taken(2, at-second, 1) // from a host whose clock is slow
	tooLate := append([][]*trace.Trace{{sent}}, make([][]*trace.Trace, 361)...)
	tooLate = append(tooLate, []*trace.Trace{m.taken(1, at+3630*second, 1)})
	batch := m.taken(3, at+2*second, 1, 2)
	for name, test := range map[string]struct {
		epochs       [][]*trace.Trace // ten seconds each
		calls        uint64
		nanos        trace.Nanos
		joined, lost uint64
	}{
		"in one epoch":              {[][]*trace.Trace{{taken, sent}}, 1, 30 * second, 1, 0},
		"sent first":                {[][]*trace.Trace{{sent}, {}, {}, {taken}}, 1, 30 * second, 1, 0},
		"sent later":                {[][]*trace.Trace{{taken}, {}, {sent}}, 1, 30 * second, 1, 0},
		"clock behind":              {[][]*trace.Trace{{sent, early}}, 1, 0, 1, 0},
		"two consumers":             {[][]*trace.Trace{{sent}, {taken}, {early}}, 2, 30 * second, 2, 0},
		"a batch":                   {[][]*trace.Trace{{batch}, {sent, m.sent(2, at+second)}}, 2, 3 * second, 2, 0},
		"not sampled":               {append([][]*trace.Trace{{taken}}, make([][]*trace.Trace, 65)...), 0, 0, 0, 1},
		"waited longer than known":  {tooLate, 0, 0, 0, 0},
		"taken twice, sent by both": {[][]*trace.Trace{{sent, sent}, {taken}}, 1, 30 * second, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewSites(m.table)
			for i, traces := range test.epochs {
				h.Merge(tallyTraces(traces...))
				h.JoinMessages(at + trace.Nanos(i+1)*10*second)
			}
			got := m.waits(h)
			if got.Calls() != test.calls || got.Time() != int64(test.nanos) {
				t.Errorf("%d waits of %v, want %d of %v",
					got.Calls(), time.Duration(got.Time()), test.calls, time.Duration(test.nanos))
			}
			if joined, lost := h.Messages.Joined(); joined != test.joined || lost != test.lost {
				t.Errorf("%d joined, %d lost, want %d and %d", joined, lost, test.joined, test.lost)
			}
			checkRestored(t, h)
		})
	}
}

// TestMessagesInAnyOrder spreads the same traces over shards and epochs at random, with a restart between two of them.
// The history is the same.
func TestMessagesInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMail()
		var traces []*trace.Trace
		for i := range rapid.IntRange(1, 20).Draw(t, "messages") {
			at := mailFrom + trace.Nanos(i)*second
			if rapid.Bool().Draw(t, "sampled") {
				traces = append(traces, m.sent(i, at))
			}
			for k := range rapid.IntRange(0, 2).Draw(t, "consumers") {
				wait := trace.Nanos(rapid.IntRange(-2, 60).Draw(t, "wait")) * second
				traces = append(traces, m.taken(2*i+k, at+wait, i, rapid.IntRange(0, 20).Draw(t, "other")))
			}
		}
		const epochs, shards = 4, 3
		play := func(place func(i int) (epoch, shard int), restart int) []byte {
			h := NewSites(m.table)
			var tallies [epochs][shards]*Tally
			extractor := critpath.NewExtractor(critpath.DefaultOptions())
			for i, x := range traces {
				e, s := place(i)
				if tallies[e][s] == nil {
					tallies[e][s] = NewTally()
				}
				tallies[e][s].Observe(extractor.Extract(x))
			}
			for e := range tallies {
				for _, tally := range tallies[e] {
					if tally != nil {
						h.Merge(tally)
					}
				}
				if e == restart {
					restored, err := DecodeSites(h.AppendBinary(nil), m.table)
					if err != nil {
						t.Fatal(err)
					}
					h = restored
				}
				h.JoinMessages(mailFrom + trace.Nanos(e+9)*10*second)
			}
			return h.AppendBinary(nil)
		}
		want := play(func(int) (int, int) { return 0, 0 }, -1)
		places := rapid.SliceOfN(rapid.IntRange(0, epochs*shards-1), len(traces), len(traces)).Draw(t, "places")
		restart := rapid.IntRange(-1, epochs-1).Draw(t, "restart")
		got := play(func(i int) (int, int) { return places[i] / shards, places[i] % shards }, restart)
		if !bytes.Equal(got, want) {
			t.Error("the history depends on the order of the traces")
		}
	})
}

// TestTooManyMessages keeps a sample of many messages, the same on all shards. It stands for all of them.
func TestTooManyMessages(t *testing.T) {
	const n = 3 * maxMessages
	r := rand.New(rand.NewPCG(1, 1))
	var sent []trace.SpanID
	for range n {
		sent = append(sent, trace.SpanID(r.Uint64()))
	}
	m := newMail()
	play := func(shards int) *Sites {
		h := NewSites(m.table)
		tallies := make([]*Tally, shards)
		for i := range tallies {
			tallies[i] = NewTally()
		}
		for i, x := range sent {
			tallies[i%shards].messages.send(x, sending{mailFrom, m.queue})
			tallies[(i+1)%shards].messages.take(taking{
				message: x,
				own:     m.process,
				service: m.billing,
				at:      mailFrom + second,
				slice:   SliceOf(mailFrom),
			})
		}
		for _, x := range tallies {
			if got := len(x.messages.sent) + len(x.messages.taken); got > maxMessages {
				t.Errorf("%d messages in a tally, at most %d expected", got, maxMessages)
			}
			h.Merge(x)
		}
		if got := len(h.Messages.sent) + len(h.Messages.taken); got > maxMessages {
			t.Errorf("%d messages, at most %d expected", got, maxMessages)
		}
		h.JoinMessages(mailFrom + 2*second)
		return h
	}
	h := play(1)
	got := m.waits(h)
	if got.Calls() < n*95/100 || got.Calls() > n*105/100 || got.Time() != int64(got.Calls())*int64(second) {
		t.Errorf("%d waits of %v, want about %d of 1 s", got.Calls(), time.Duration(got.Time()), n)
	}
	slices.Reverse(sent)
	if !bytes.Equal(play(5).AppendBinary(nil), h.AppendBinary(nil)) {
		t.Error("the history depends on the number of shards")
	}
	checkRestored(t, h)
	h.JoinMessages(mailFrom + 2*longestWait)
	for h.Messages.rarity > 0 {
		before := h.Messages.rarity
		if h.JoinMessages(mailFrom + 2*longestWait); h.Messages.rarity != before-1 {
			t.Fatalf("one in 2^%d messages is kept without any messages", h.Messages.rarity)
		}
	}
}
