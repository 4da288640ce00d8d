package throughput

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestLoadIsOfNow: the spans of a request start now, within the length of a trace. The spans of other requests of the
// same traces move by the same time.
func TestLoadIsOfNow(t *testing.T) {
	l, err := newLoad(Options{Bytes: 1 << 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ingest.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	d := otlp.NewDecoder(&trace.Table{}, keys)
	began := trace.Nanos(time.Now().UnixNano())
	for n := range requestsPerTrace {
		request := l.request(n, 1)
		var b ingest.Batch
		if err := d.Protobuf(request.ReadOnlyData(), &b); err != nil ||
			len(b.Spans) != spansPerRequest || len(l.times[n]) != 2*spansPerRequest {
			t.Fatalf("%v, %d spans, %d times", err, len(b.Spans), len(l.times[n]))
		}
		for _, at := range l.times[n] {
			before, now := binary.LittleEndian.Uint64(l.data[n][at:]),
				binary.LittleEndian.Uint64(request.ReadOnlyData()[at:])
			if by := now - before; by != l.moves.recent[0].by {
				t.Fatalf("a time of request %d moved by %d ns, not like the first", n, by)
			}
		}
		for i := range b.Spans {
			if since := b.Spans[i].Start.Sub(began); since < -time.Second ||
				since > time.Minute || b.Spans[i].End < b.Spans[i].Start {
				t.Fatalf("span %d of request %d begins after %v: %+v", i, n, since, b.Spans[i])
			}
		}
		request.Free()
	}
}

func TestRatioOf(t *testing.T) {
	x := ratioOf([]float64{math.Log(2), math.Log(2), math.Log(2)})
	for _, v := range x[:3] {
		if math.Abs(v.Number-2) > 1e-9 {
			t.Errorf("%s of equal ratios is %g, want 2", v.Key, v.Number)
		}
	}
	x = ratioOf([]float64{math.Log(1), math.Log(4)})
	if math.Abs(x[0].Number-2) > 1e-9 || x[1].Number >= 1 || x[2].Number <= 4 {
		t.Errorf("%v, want about 2, with an interval beyond both values", x)
	}
}
