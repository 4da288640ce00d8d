package observation_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// timed is a span of an operation.
type timed struct {
	op   trace.Op
	took time.Duration
}

type observer interface {
	Observe(*critpath.Path, trace.Nanos)
}

// observeSpans adds a trace of spans that starts at begin.
func observeSpans(t observer, begin trace.Nanos, spans ...timed) {
	x := &trace.Trace{ID: trace.ID{15: 1}}
	for i, s := range spans {
		x.Spans = append(x.Spans, trace.Span{ID: trace.SpanID(i + 1), Op: s.op, Start: begin, End: begin.Add(s.took)})
	}
	t.Observe(critpath.NewExtractor(critpath.DefaultOptions()).Extract(x), 0)
}

// always reports that all spans are healthy.
func always(trace.Op, trace.Nanos, trace.Nanos) bool { return true }

// The same spans are kept in any order and over any number of shards, even with too many operations.
func TestSpanTimesDependOnTheSetOnly(t *testing.T) {
	const operations = 9000
	random := rand.New(rand.NewPCG(1, 1))
	var spans []timed
	for range 3 * operations {
		spans = append(spans,
			timed{trace.Op(trace.Mix(7, random.Uint64N(operations))), time.Duration(random.Int64N(1e9)) - 1000})
	}
	var whole observation.RecentSpans
	observeSpans(&whole, 1000, spans...)
	random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	parts := make([]observation.SpanTally, 3)
	for i := range parts {
		observeSpans(&parts[i], 1000, spans[i*operations:(i+1)*operations]...)
	}
	var merged observation.RecentSpans
	for i := range parts {
		merged.Merge(&parts[i])
	}
	state := whole.AppendBinary(nil)
	if !bytes.Equal(state, merged.AppendBinary(nil)) {
		t.Fatal("the state depends on the order")
	}
	decoded, rest, err := observation.DecodeRecentSpans(state, 0)
	if err != nil || len(rest) > 0 || !bytes.Equal(decoded.AppendBinary(nil), state) {
		t.Fatalf("decoding leaves %d bytes, error %v", len(rest), err)
	}
	kept, among := 0, decoded.Dropped()
	for i := range uint64(operations) {
		if r := decoded.Latest(trace.Op(trace.Mix(7, i)), 0); r.Count() > 0 {
			kept++
			among += r.Count()
		}
	}
	if kept != 8192 || among != uint64(len(spans)) {
		t.Errorf("%d operations with spans, %d spans in all; want 8192 and %d", kept, among, len(spans))
	}
}

// Usual spans are kept for at least one hour and at most two, and each counts once.
func TestRecentSpansForget(t *testing.T) {
	begin := trace.Nanos(1_700_000_040_000_000_000) // a multiple of two minutes
	var r observation.RecentSpans
	r.Rotate(begin.Add(-24*time.Hour), always) // no spans for a day
	r.Rotate(begin, always)
	for minute := range 150 {
		now := begin.Add(time.Duration(minute+1) * time.Minute)
		observeSpans(&r, now-1, timed{5, time.Millisecond})
		r.Rotate(now, always)
		latest, usual := r.Latest(5, 0), r.Usual(5)
		wantLatest := min(minute+1, 10+(minute+1)%2)
		if latest.Count() != uint64(wantLatest) {
			t.Fatalf("after %d minutes: %d latest spans, want %d", minute+1, latest.Count(), wantLatest)
		}
		want := minute + 1 - wantLatest
		if minute+1 >= 120 {
			want -= 50 // spans that became usual in the first hour
		}
		if usual.Count() != uint64(want) {
			t.Fatalf("after %d minutes: %d usual spans, want %d", minute+1, usual.Count(), want)
		}
		since := begin
		if minute+1 >= 120 {
			since = begin.Add(time.Hour)
		}
		if r.Since() != since {
			t.Fatalf("after %d minutes: since %d, want %d", minute+1, r.Since(), since)
		}
	}
	other := r.Usual(6)
	if other.Count() != 0 {
		t.Errorf("%d spans of an unknown operation, want none", other.Count())
	}
}

func FuzzDecodeRecentSpans(f *testing.F) {
	var r observation.RecentSpans
	f.Add(r.AppendBinary(nil))
	observeSpans(&r, 1000, timed{5, time.Millisecond}, timed{7, time.Second})
	r.Rotate(1000, always)
	r.Rotate(trace.Nanos(1000).Add(time.Hour), always)
	observeSpans(&r, trace.Nanos(1000).Add(time.Hour), timed{5, time.Millisecond})
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := observation.DecodeRecentSpans(b, 0)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) || rest != nil || r.Since() != 0 {
				t.Fatalf("error %v with a value", err)
			}
			return
		}
		if again := append(r.AppendBinary(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("in  %x\nout %x", b, again)
		}
	})
}

// BenchmarkSpanTimes adds a trace with 30 spans of distinct operations.
func BenchmarkSpanTimes(b *testing.B) {
	x := &trace.Trace{ID: trace.ID{15: 1}}
	for i := range 30 {
		x.Spans = append(x.Spans, trace.Span{
			ID: trace.SpanID(i + 1), Op: trace.Op(trace.Mix(1, uint64(i))), Start: 1000,
			End: trace.Nanos(1000 + 1000*i*i),
		})
	}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(x)
	var t observation.SpanTally
	b.ReportAllocs()
	for b.Loop() {
		t.Observe(p, 0)
	}
}

// A recorded past arrives at once. Its spans count at their own times, and spans of a wrong clock when they arrive.
func TestSpansCountAtTheirTimes(t *testing.T) {
	now := trace.Nanos(1_700_000_040_000_000_000)
	var tally observation.SpanTally
	for minute := range 30 {
		took := time.Millisecond
		if minute >= 27 {
			took = time.Second
		}
		observeSpans(&tally, now.Add(time.Duration(minute-30)*time.Minute), timed{5, took})
	}
	var r observation.RecentSpans
	r.Merge(&tally)
	r.Rotate(now, always)
	latest, usual := r.Latest(5, 0), r.Usual(5)
	if latest.Count() != 10 || usual.Count() != 20 {
		t.Errorf("%d latest and %d usual spans of 30", latest.Count(), usual.Count())
	}
	if p99 := usual.Quantile(0.99); p99 > 1.04e6 {
		t.Errorf("the usual 99th percentile is %v", p99)
	}
	if p99 := latest.Quantile(0.99); p99 < 0.96e9 {
		t.Errorf("the 99th percentile of the latest spans is %v", p99)
	}
	for _, wrong := range []trace.Nanos{1000, now.Add(time.Hour), now.Add(-3 * time.Hour)} {
		var tally observation.SpanTally
		x := &trace.Trace{ID: trace.ID{15: 1}, Spans: []trace.Span{{ID: 1, Op: 7, Start: wrong, End: wrong + 1}}}
		tally.Observe(critpath.NewExtractor(critpath.DefaultOptions()).Extract(x), now)
		r.Merge(&tally)
	}
	if r.Rotate(now.Add(10*time.Second), always); r.Since() != now.Add(-30*time.Minute) {
		t.Errorf("a wrong clock changes the beginning to %d", r.Since())
	}
	if latest := r.Latest(7, 0); latest.Count() != 3 {
		t.Errorf("%d latest spans of wrong clocks, want 3", latest.Count())
	}
}

// Spans after the onset of an incident never become usual, and the usual ones of an affected operation stay while the
// incident goes on. A restart changes nothing.
func TestUsualSpansAreHealthy(t *testing.T) {
	begin := trace.Nanos(1_700_000_040_000_000_000)
	onset, opened := begin.Add(93*time.Minute), begin.Add(99*time.Minute) // no incident is noticed later
	var r observation.RecentSpans
	healthy := func(now trace.Nanos) observation.Healthy {
		return func(op trace.Op, _, to trace.Nanos) bool { return op != 5 || now < opened || to <= onset }
	}
	for minute := range 300 {
		now, took := begin.Add(time.Duration(minute+1)*time.Minute), time.Millisecond
		if now > onset {
			took = time.Second
		}
		observeSpans(&r, now-1, timed{5, took}, timed{6, took})
		r.Rotate(now, healthy(now))
		if minute%50 == 0 {
			state := r.AppendBinary(nil)
			decoded, rest, err := observation.DecodeRecentSpans(state, 0)
			if err != nil || len(rest) > 0 || !bytes.Equal(decoded.AppendBinary(nil), state) {
				t.Fatalf("decoding leaves %d bytes, error %v", len(rest), err)
			}
			r = decoded
		}
	}
	usual, other := r.Usual(5), r.Usual(6)
	if p99 := usual.Quantile(0.99); usual.Count() < 80 || p99 > 1.04e6 {
		t.Errorf("%d usual spans with a 99th percentile of %v during the incident", usual.Count(), p99)
	}
	if p50 := other.Quantile(0.5); p50 < 0.96e9 {
		t.Errorf("the median of an operation that nothing affects stays at %v", p50)
	}
}
