package history

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// innerTrace is a trace of web, which calls shop through CLIENT spans. Both contain chains of INTERNAL spans with
// random lengths, which change no other span.
type innerTrace struct {
	table *trace.Table
	rng   *rand.Rand
	spans []trace.Span
}

func (t *innerTrace) span(parent trace.SpanID, service, name string,
	kind trace.Kind, start, end trace.Nanos,
) trace.SpanID {
	symbol := t.table.Symbol(service)
	id := trace.SpanID(len(t.spans) + 1)
	op := t.table.Op(symbol, t.table.Symbol(name), kind)
	t.spans = append(t.spans,
		trace.Span{ID: id, Parent: parent, Op: op, Service: symbol, Kind: kind, Start: start, End: end})
	return id
}

// chain adds INTERNAL spans inside a span of a service, and returns the innermost.
func (t *innerTrace) chain(parent trace.SpanID, service string, length int, start, end trace.Nanos) trace.SpanID {
	for i := range length {
		start, end = start+trace.Nanos(t.rng.IntN(2000)), end-trace.Nanos(t.rng.IntN(2000))
		parent = t.span(parent, service, string(rune('a'+i)), trace.Internal, start, end)
	}
	return parent
}

// innerTraceOf returns the trace of a number. most is the maximum length of its chains. Its other spans depend only on
// the number.
func innerTraceOf(table *trace.Table, number uint64, most int) *trace.Trace {
	t := &innerTrace{table: table, rng: rand.New(rand.NewPCG(number, uint64(most)))}
	work := rand.New(rand.NewPCG(number, 1))
	length := func() int { return t.rng.IntN(most + 1) }
	start := trace.Nanos(work.IntN(1e12))
	end := start + 1e6
	root := t.span(0, "web", "GET /", trace.Server, start, end)
	caller := t.chain(root, "web", length(), start, end)
	for at := start + 20e3; at < end-400e3; at += 420e3 {
		call := t.span(caller, "web", "GET", trace.Client, at, at+400e3)
		from, to := at+trace.Nanos(work.IntN(20e3)), at+trace.Nanos(300e3+work.IntN(90e3))
		serve := t.span(call, "shop", "GET /", trace.Server, from, to)
		t.span(t.chain(serve, "shop", length(), from, to), "shop", "SELECT", trace.Client, from+100e3, to-50e3)
		t.chain(serve, "shop", length(), from+20e3, from+90e3)
	}
	return &trace.Trace{ID: trace.ID{byte(number), byte(number >> 8), 1}, Spans: t.spans}
}

// TestLocalTimes adds INTERNAL spans to all services, or removes them. No local time changes, in any order of tallies
// and with restarts between them. Without such spans there are only own times.
func TestLocalTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		x := critpath.NewExtractor(critpath.DefaultOptions())
		histories := make([]*Sites, 4)
		numbers := rapid.SliceOfN(rapid.Uint64Range(0, 1<<16), 1, 30).Draw(t, "traces")
		for i := range histories {
			h := NewSites(table)
			if i%2 > 0 {
				slices.Reverse(numbers)
			}
			for _, number := range numbers {
				tally := NewTally()
				tally.Observe(x.Extract(innerTraceOf(table, number, i/2*3)))
				h.Merge(tally)
				encoded := h.AppendBinary(nil)
				var err error
				if h, err = DecodeSites(encoded, table); err != nil {
					t.Fatal(err)
				} else if !bytes.Equal(encoded, h.AppendBinary(nil)) {
					t.Fatal("a restart changes the content")
				}
			}
			histories[i] = h
		}
		for i := range histories {
			if !bytes.Equal(histories[i].AppendBinary(nil), histories[i^1].AppendBinary(nil)) {
				t.Fatal("the content depends on the order of tallies")
			}
		}
		without, with := histories[0], histories[2]
		for op, want := range localTimes(without, table) {
			if got := localTimes(with, table)[op]; !slices.Equal(got, want) {
				t.Fatalf("%s: local times %v\nwant %v", table.Text(table.Operation(op).Name), got, want)
			}
		}
		for i := range without.series {
			if without.series[i].Local != nil {
				t.Fatalf("site %d has local times without inner spans", i)
			}
		}
		for i := range with.series {
			s := &with.series[i]
			if s.Local != nil && (with.sites[i].Inner || s.Local.Calls != s.Calls) {
				t.Fatalf("%d calls with local times, %d with own times", s.Local.Calls, s.Calls)
			}
		}
	})
}

// localTimes returns the local times of all sites except the inner ones, by operation.
func localTimes(h *Sites, table *trace.Table) map[trace.Op]Cells {
	times := make(map[trace.Op]Cells)
	for i := 1; i < len(h.sites); i++ {
		if s := &h.sites[i]; !s.Inner {
			into := times[s.Op]
			for _, x := range h.series[i].LocalTimes().Unpack(nil) {
				into.Add(x)
			}
			times[s.Op] = into
		}
	}
	return times
}

// TestLocalTimesAge removes the inner spans of a service. Its local times are kept as long as the history has calls
// with such spans, and no longer.
func TestLocalTimesAge(t *testing.T) {
	table := &trace.Table{}
	x := critpath.NewExtractor(critpath.DefaultOptions())
	h := NewSites(table)
	site := func() *Series {
		return &h.series[h.numbers[SiteKey{Op: table.Op(table.Symbol("web"), table.Symbol("GET /"), trace.Server)}]]
	}
	minute := SlicesPerMinute
	for at := Slice(0); at < 200*minute; at += 3 {
		most := 3
		if at >= 30*minute {
			most = 0
		}
		request := innerTraceOf(table, uint64(at), most)
		shift := trace.Nanos(at)*trace.Nanos(SliceLength) - request.Spans[0].Start
		for i := range request.Spans {
			request.Spans[i].Start, request.Spans[i].End = request.Spans[i].Start+shift, request.Spans[i].End+shift
		}
		tally := NewTally()
		tally.Observe(x.Extract(request))
		h.Merge(tally)
		h.Age(trace.Nanos(at) * trace.Nanos(SliceLength))
		s := site()
		if s.Local != nil && s.Local.First() != s.First() {
			t.Fatalf("minute %d: local times since slice %d, own times since %d", at/minute, s.Local.First(), s.First())
		}
		if known := s.Local != nil; known && at > 160*minute || !known && at > minute && at < 140*minute {
			t.Fatalf("minute %d: local times known: %t", at/minute, known)
		}
	}
}
