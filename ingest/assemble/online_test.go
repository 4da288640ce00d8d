package assemble

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// arrival is the arrival of a span.
type arrival struct {
	at    trace.Nanos
	trace byte
	span  trace.Span
}

// closing is a closed trace for comparison: its spans, and the reason and time of closing.
type closing struct {
	Trace   byte
	Reason  string
	At      trace.Nanos
	Spans   []trace.SpanID
	Records []uint64
}

var quick = OnlineOptions{
	Settle:   6,
	Idle:     10,
	MaxAge:   60,
	MaxSpans: 1000,
	MaxBytes: 1 << 20,
	Memory:   1 << 30,
	Remember: 10_000,
}

func idOf(n byte) trace.ID { return trace.ID{0: n, 15: 1} }

// drawArrivals draws spans of a few traces with present, missing or no parents. The steps between them often fall on
// deadlines.
func drawArrivals(t *rapid.T) []arrival {
	now := trace.Nanos(1000)
	var all []arrival
	for range rapid.IntRange(1, 40).Draw(t, "arrivals") {
		now += trace.Nanos(rapid.SampledFrom([]int{0, 0, 1, 2, 4, 6, 10, 25}).Draw(t, "step"))
		all = append(all, arrival{now, byte(rapid.IntRange(1, 4).Draw(t, "trace")), trace.Span{
			ID:     trace.SpanID(rapid.IntRange(1, 6).Draw(t, "id")),
			Parent: trace.SpanID(rapid.IntRange(0, 6).Draw(t, "parent")),
			Kind:   rapid.SampledFrom([]trace.Kind{trace.Internal, trace.Server}).Draw(t, "kind"),
		}})
	}
	return all
}

// oracle returns the expected closings of all. It treats each trace separately, looking back from each of its arrivals
// and from the end.
func oracle(all []arrival, o OnlineOptions) []closing {
	var out []closing
	for n := byte(1); n <= 4; n++ {
		var x *closing // open
		var spans []trace.Span
		var first, last trace.Nanos
		closed := false
		deadline := func() (trace.Nanos, string) {
			at, reason := last.Add(o.Settle), Complete
			roots, orphans, enter := 0, map[trace.SpanID]bool{}, true
			for _, s := range spans {
				switch {
				case s.Parent == 0 || s.Parent == s.ID:
					roots++
				case !slices.ContainsFunc(spans, func(p trace.Span) bool { return p.ID == s.Parent }):
					orphans[s.ID] = true
					enter = enter && s.Kind == trace.Server
				}
			}
			if roots == 0 || len(orphans) > 0 {
				at, reason = last.Add(o.Idle), Idle
				if len(orphans) == 0 || roots == 0 && len(orphans) == 1 && enter {
					reason = Complete
				}
			}
			if age := first.Add(o.MaxAge); age < at {
				return age, Age.String()
			}
			return at, reason.String()
		}
		for i, a := range append(slices.Clone(all), arrival{at: 1 << 40, trace: n}) {
			if a.trace != n || closed {
				continue
			}
			if x != nil {
				if at, reason := deadline(); at <= a.at {
					x.At, x.Reason = at, reason
					out, closed = append(out, *x), true
					continue
				}
			}
			if i == len(all) {
				continue
			}
			if x == nil {
				x, first = &closing{Trace: n}, a.at
			}
			last = a.at
			spans = append(spans, a.span)
			x.Spans = append(x.Spans, a.span.ID)
			x.Records = append(x.Records, uint64(i))
		}
	}
	sortClosed(out)
	return out
}

func sortClosed(c []closing) {
	slices.SortFunc(c, func(a, b closing) int { return cmp.Compare(a.Trace, b.Trace) })
}

// play adds all to one assembler per shard, with ticks between the arrivals, and returns the closings.
func play(all []arrival, options OnlineOptions, shards int, tick trace.Nanos) []closing {
	on := make([]*Online, shards)
	for i := range on {
		on[i] = NewOnline(options)
	}
	var out []closing
	take := func(now trace.Nanos) {
		for _, o := range on {
			var c Closed
			for o.Next(now, &c) {
				x := closing{Trace: c.ID[0], Reason: c.Reason.String(), At: c.At, Records: slices.Clone(c.Records)}
				for _, s := range c.Spans {
					x.Spans = append(x.Spans, s.ID)
				}
				out = append(out, x)
			}
		}
	}
	now := trace.Nanos(1000)
	for i, a := range all {
		for ; tick > 0 && now < a.at; now += tick {
			take(now)
		}
		take(a.at)
		b := ingest.Batch{Traces: []trace.ID{idOf(a.trace)}, Spans: []trace.Span{a.span}}
		runs := make([][]Run, shards)
		Runs(&b, runs)
		for s := range runs {
			for _, r := range runs[s] {
				on[s].Add(a.at, uint64(i), &b, r)
			}
		}
		take(a.at)
	}
	take(1 << 40)
	sortClosed(out)
	return out
}

// A trace closes at the time given by the oracle, regardless of other traces, ticks, and the number of shards.
func TestOnlineClosesAsAnOracleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawArrivals(t)
		want := fmt.Sprint(oracle(all, quick))
		for _, c := range []struct {
			shards int
			tick   trace.Nanos
		}{{1, 0}, {1, 1}, {1, 7}, {3, 0}, {8, 3}} {
			if got := fmt.Sprint(play(all, quick, c.shards, c.tick)); got != want {
				t.Fatalf("%d shards, ticks of %d:\n got %s\nwant %s", c.shards, c.tick, got, want)
			}
		}
	})
}

// Memory is bounded for any input, and only spans counted as late are lost.
func TestOnlineIsBounded(t *testing.T) {
	options := quick
	options.MaxSpans, options.Memory = 5, 3*blockSize
	rapid.Check(t, func(t *rapid.T) {
		o := NewOnline(options)
		out, in := 0, 0
		var c Closed
		for i, a := range drawArrivals(t) {
			for o.Next(a.at, &c) {
				out += len(c.Spans)
			}
			b := ingest.Batch{Traces: []trace.ID{idOf(a.trace)}, Spans: []trace.Span{a.span}}
			o.Add(a.at, uint64(i), &b, Run{To: 1})
			in++
			for o.Next(a.at, &c) {
				if len(c.Spans) > options.MaxSpans {
					t.Fatalf("%d spans in a trace", len(c.Spans))
				}
				out += len(c.Spans)
			}
			s := o.Stats()
			if s.Bytes > options.Memory {
				t.Fatalf("%d bytes held, %d allowed", s.Bytes, options.Memory)
			}
			if int64(in) != int64(out)+s.Spans+s.Late+s.Duplicates {
				t.Fatalf("%d spans in, %d out, %d held, %d late, %d duplicates", in, out, s.Spans, s.Late, s.Duplicates)
			}
		}
	})
}

// Traces that close at once are returned in the order in which they closed.
func TestOnlineReturnsTracesInOrder(t *testing.T) {
	options := quick
	options.MaxSpans = 1
	o := NewOnline(options)
	for round := range 2 {
		for i := range uint64(3) {
			b := ingest.Batch{
				Traces: []trace.ID{{0: byte(round + 1), 15: byte(i)}},
				Spans:  []trace.Span{{ID: 1, Start: 0, End: 1}},
			}
			o.Add(0, i, &b, Run{To: 1})
		}
		var c Closed
		for i := range byte(3) {
			if !o.Next(0, &c) || c.ID[0] != byte(round+1) || c.ID[15] != i || c.Reason != Size {
				t.Errorf("round %d, trace %d: %v closed by %v", round, i, c.ID, c.Reason)
			}
		}
		if o.Next(0, &c) {
			t.Errorf("round %d: %v is returned again", round, c.ID)
		}
	}
}

// A span with attributes and joins is unchanged, in any number of blocks.
func TestOnlineKeepsEverything(t *testing.T) {
	var b ingest.Batch
	for i := range 100 {
		b.Traces = append(b.Traces, idOf(1))
		b.Spans = append(b.Spans, trace.Span{
			ID:         trace.SpanID(i + 1),
			Parent:     trace.SpanID(i),
			Start:      5,
			End:        trace.Nanos(7 + i),
			Op:         11,
			Service:    13,
			Host:       17,
			Tracepoint: 19,
			Kind:       trace.Client,
			Flags:      trace.Error,
		})
		for k := range i % 4 {
			b.Attrs = append(b.Attrs, trace.Attr{
				Key:     trace.Symbol(k),
				Text:    23,
				Number:  1.5,
				Span:    int32(i),
				Numeric: k == 1,
			})
			b.Joins = append(b.Joins, trace.Join{Span: int32(i), Linked: trace.SpanID(k)})
		}
	}
	o := NewOnline(quick)
	runs := make([][]Run, 1)
	Runs(&b, runs)
	var c Closed
	blocks := int32(0)
	for i := range 3 {
		b.Traces[0][1]++
		for i := range b.Traces {
			b.Traces[i] = b.Traces[0]
		}
		for _, r := range runs[0] {
			o.Add(1, 42, &b, r)
		}
		if !o.Next(100, &c) || o.Next(100, &c) {
			t.Fatal("not one trace was closed")
		}
		if !slices.Equal(c.Spans, b.Spans) || !slices.Equal(c.Attrs, b.Attrs) || !slices.Equal(c.Joins, b.Joins) ||
			!slices.Equal(c.Records, []uint64{42}) {
			t.Fatal("spans, attributes, joins or records differ")
		}
		if i == 0 {
			blocks = o.blocks.used
		} else if o.blocks.used != blocks {
			t.Errorf("%d blocks after %d traces of equal size, want the %d of the first", o.blocks.used, i+1, blocks)
		}
	}
	if s := o.Stats(); s.Bytes != 0 || s.Spans != 0 || s.Remembered != 3 {
		t.Errorf("after all was closed: %+v", s)
	}
}

// A closed trace is remembered for the configured time, even in a new assembler.
func TestOnlineRecalls(t *testing.T) {
	options := quick
	options.Remember = time.Duration(100)
	b := ingest.Batch{Traces: []trace.ID{idOf(1)}, Spans: []trace.Span{{ID: 1}}}
	o := NewOnline(options)
	var c Closed
	o.Next(1, &c)
	o.Add(1, 1, &b, Run{To: 1})
	o.Next(50, &c)
	known := o.NewlyClosed()
	if len(known) != 1 || len(o.NewlyClosed()) != 0 {
		t.Fatalf("%d newly closed, want 1, then none", len(known))
	}
	again := NewOnline(options)
	again.Recall(50, known)
	if n := len(again.NewlyClosed()); n != 0 {
		t.Errorf("%d recalled traces are newly closed", n)
	}
	for _, c := range []struct {
		at   trace.Nanos
		late int64
	}{{60, 1}, {149, 2}, {251, 3}, {360, 3}} {
		for again.Next(c.at, &Closed{}) {
		}
		again.Add(c.at, 2, &b, Run{To: 1})
		if late := again.Stats().Late; late != c.late {
			t.Errorf("at %d: %d late spans, want %d", c.at, late, c.late)
		}
	}
}

func BenchmarkOnline(b *testing.B) {
	const spans = 20
	var batch ingest.Batch
	for i := range 512 {
		batch.Traces = append(batch.Traces, trace.ID{})
		batch.Spans = append(batch.Spans, trace.Span{ID: trace.SpanID(i%spans + 1), Parent: trace.SpanID(i % spans)})
	}
	runs := make([][]Run, 1)
	for i := int32(0); i+spans <= 512; i += spans {
		runs[0] = append(runs[0], Run{From: i, To: i + spans})
	}
	o := NewOnline(DefaultOnlineOptions())
	now, n := trace.Nanos(1), uint64(0)
	var c Closed
	b.ReportAllocs()
	closed := 0
	for b.Loop() {
		now += trace.Nanos(time.Millisecond)
		for o.Next(now, &c) {
			closed += len(c.Spans)
		}
		for _, r := range runs[0] {
			n++
			for i := r.From; i < r.To; i++ {
				batch.Traces[i] = trace.ID{0: byte(n), 1: byte(n >> 8), 2: byte(n >> 16), 3: byte(n >> 24), 4: 1}
			}
			o.Add(now, n, &batch, r)
		}
	}
	b.ReportMetric(float64(n*spans)/b.Elapsed().Seconds()/1e6, "Mspans/s")
	b.ReportMetric(float64(o.Stats().Bytes)/float64(max(1, o.Stats().Spans)), "B/span")
}

// When memory runs out, a service that sends a lot loses its own traces, not the traces of other services.
func TestOnlineIsFair(t *testing.T) {
	options := quick
	options.Memory = 100 * (blockSize + openTraceBytes)
	o := NewOnline(options)
	const quiet, flood = trace.Symbol(1), trace.Symbol(2)
	reasons := map[CloseReason]int{} // of the quiet service
	evicted := 0
	var c Closed
	drain := func(now trace.Nanos) {
		for o.Next(now, &c) {
			switch {
			case c.Spans[0].Service == quiet:
				reasons[c.Reason]++
			case c.Reason == Evicted:
				evicted++
			}
			if held := o.largestOwner().bytes; held > options.Memory {
				t.Fatalf("an owner holds %d bytes", held)
			}
		}
	}
	record := uint64(0)
	add := func(service trace.Symbol) {
		record++
		id := trace.ID{15: 1}
		binary.BigEndian.PutUint64(id[:], record)
		b := ingest.Batch{Traces: []trace.ID{id}, Spans: []trace.Span{{ID: 1, Service: service, Kind: trace.Server}}}
		o.Add(1000, record, &b, Run{To: 1})
		drain(1000)
	}
	for range 10 {
		add(quiet)
	}
	for range 1000 {
		add(flood)
	}
	drain(2000)
	if reasons[Complete] != 10 || evicted != 910 {
		t.Errorf("traces of the quiet service: %v, want 10 complete; %d of the other evicted, want 910",
			reasons, evicted)
	}
	for i := range o.owners {
		if o.owners[i].bytes != 0 || o.owners[i].traces != (list{-1, -1}) {
			t.Errorf("owner %d after the end: %+v", i, o.owners[i])
		}
	}
}
