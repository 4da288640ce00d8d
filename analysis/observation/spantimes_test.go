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

// observeSpans adds a trace of the given spans.
func observeSpans(t interface{ Observe(*critpath.Path) }, spans ...timed) {
	x := &trace.Trace{ID: trace.ID{15: 1}}
	for i, s := range spans {
		x.Spans = append(x.Spans, trace.Span{ID: trace.SpanID(i + 1), Op: s.op, Start: 1000, End: trace.Nanos(1000).Add(s.took)})
	}
	t.Observe(critpath.NewExtractor(critpath.DefaultOptions()).Extract(x))
}

// The same spans are kept in any order and over any number of shards, even with too many operations.
func TestSpanTimesDependOnTheSetOnly(t *testing.T) {
	const operations = 9000
	random := rand.New(rand.NewPCG(1, 1))
	var spans []timed
	for range 3 * operations {
		spans = append(spans, timed{trace.Op(trace.Mix(7, random.Uint64N(operations))), time.Duration(random.Int64N(1e9)) - 1000})
	}
	var whole observation.RecentSpans
	observeSpans(&whole, spans...)
	random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	parts := make([]observation.SpanTimes, 3)
	for i := range parts {
		observeSpans(&parts[i], spans[i*operations:(i+1)*operations]...)
	}
	var merged observation.RecentSpans
	for i := range parts {
		merged.Merge(&parts[i])
	}
	state := whole.AppendBinary(nil)
	if !bytes.Equal(state, merged.AppendBinary(nil)) {
		t.Fatal("the state depends on the order")
	}
	decoded, rest, err := observation.DecodeRecentSpans(state)
	if err != nil || len(rest) > 0 || !bytes.Equal(decoded.AppendBinary(nil), state) {
		t.Fatalf("decoding leaves %d bytes, error %v", len(rest), err)
	}
	kept, among := 0, decoded.Dropped()
	for i := range uint64(operations) {
		if r := decoded.Of(trace.Op(trace.Mix(7, i))); r.Count() > 0 {
			kept++
			among += r.Count()
		}
	}
	if kept != 8192 || among != uint64(len(spans)) {
		t.Errorf("%d operations with spans, %d spans in all; want 8192 and %d", kept, among, len(spans))
	}
}

// Spans are kept for at least one hour and at most two.
func TestRecentSpansForget(t *testing.T) {
	begin := trace.Nanos(1_700_000_000_000_000_000)
	var r observation.RecentSpans
	r.Rotate(begin.Add(-24 * time.Hour)) // no spans for a day
	r.Rotate(begin)
	for minute := range 150 {
		observeSpans(&r, timed{5, time.Millisecond})
		r.Rotate(begin.Add(time.Duration(minute+1) * time.Minute))
		want := minute + 1
		if minute+1 >= 120 {
			want -= 60
		}
		spans := r.Of(5)
		if spans.Count() != uint64(want) {
			t.Fatalf("after %d minutes: %d spans, want %d", minute+1, spans.Count(), want)
		}
		if since := begin.Add(time.Duration(minute+1-want) * time.Minute); r.Since() != since {
			t.Fatalf("after %d minutes: since %d, want %d", minute+1, r.Since(), since)
		}
	}
	other := r.Of(6)
	if other.Count() != 0 {
		t.Errorf("%d spans of an unknown operation, want none", other.Count())
	}
}

func FuzzDecodeRecentSpans(f *testing.F) {
	var r observation.RecentSpans
	f.Add(r.AppendBinary(nil))
	observeSpans(&r, timed{5, time.Millisecond}, timed{7, time.Second})
	r.Rotate(1000)
	r.Rotate(trace.Nanos(1000).Add(time.Hour))
	observeSpans(&r, timed{5, time.Millisecond})
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := observation.DecodeRecentSpans(b)
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

// BenchmarkSpanTimes adds the spans of a trace of 30 spans of distinct operations.
func BenchmarkSpanTimes(b *testing.B) {
	x := &trace.Trace{ID: trace.ID{15: 1}}
	for i := range 30 {
		x.Spans = append(x.Spans, trace.Span{ID: trace.SpanID(i + 1), Op: trace.Op(trace.Mix(1, uint64(i))), Start: 1000, End: trace.Nanos(1000 + 1000*i*i)})
	}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(x)
	var t observation.SpanTimes
	b.ReportAllocs()
	for b.Loop() {
		t.Observe(p)
	}
}

// The latest spans are those of the last five to ten minutes, and are not among the earlier ones.
func TestLatestSpans(t *testing.T) {
	begin := trace.Nanos(1_700_000_000_000_000_000)
	var r observation.RecentSpans
	r.Rotate(begin)
	for minute := range 100 {
		took := time.Millisecond
		if minute >= 90 {
			took = time.Second
		}
		observeSpans(&r, timed{5, took})
		if minute == 95 {
			latest, earlier := r.Latest(5)
			if n := latest.Count(); n < 6 || n > 10 || n+earlier.Count() != 96 {
				t.Errorf("%d latest and %d earlier spans of 96", n, earlier.Count())
			}
			if p50 := earlier.Quantile(0.5); p50 < 0.96e6 || p50 > 1.04e6 {
				t.Errorf("the median of earlier spans is %v", p50)
			}
			if p99 := latest.Quantile(0.99); p99 < 0.96e9 || p99 > 1.04e9 {
				t.Errorf("the 99th percentile of the latest spans is %v", p99)
			}
		}
		r.Rotate(begin.Add(time.Duration(minute+1) * time.Minute))
	}
	decoded, _, err := observation.DecodeRecentSpans(r.AppendBinary(nil))
	if err != nil {
		t.Fatal(err)
	}
	if latest, earlier := decoded.Latest(5); latest.Count() != 0 || earlier.Count() != 100 {
		t.Errorf("after a restart: %d latest and %d earlier spans", latest.Count(), earlier.Count())
	}
}
