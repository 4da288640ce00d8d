package otlp_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// corpusBytes is the number of distinct bytes that the benchmarks decode, far more than any cache holds.
const corpusBytes = 64 << 20

// benchKeys is a realistic list of requested keys. Two of them occur in the corpus.
var benchKeys = []string{
	"http.route", "http.response.status_code", "db.system", "db.collection.name", "messaging.destination.name",
	"rpc.method", "enduser.id", "feature_flag.key",
}

// corpus contains requests of 512 spans, 64 per resource.
type corpus struct {
	requests [][]byte
	spans    int
	bytes    int64
}

// pdata, and so the collector, writes the fields of messages backwards; most SDKs write them in order.
var (
	protobufCorpus = sync.OnceValue(func() corpus { return newCorpus((&ptrace.ProtoMarshaler{}).MarshalTraces) })
	orderedCorpus  = sync.OnceValue(func() corpus {
		return newCorpus(func(traces ptrace.Traces) ([]byte, error) {
			data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
			return ascending(data), err
		})
	})
	jsonCorpus = sync.OnceValue(func() corpus { return newCorpus((&ptrace.JSONMarshaler{}).MarshalTraces) })
)

func newCorpus(marshal func(ptrace.Traces) ([]byte, error)) corpus {
	var c corpus
	for c.bytes < corpusBytes {
		data, err := marshal(request(uint64(len(c.requests)), 512, 64))
		if err != nil {
			panic(err)
		}
		c.requests = append(c.requests, data)
		c.spans += 512
		c.bytes += int64(len(data))
	}
	return c
}

// run decodes the whole corpus once per iteration.
func (c corpus) run(b *testing.B, decode func([]byte, *ingest.Batch) error) {
	b.ReportAllocs()
	b.SetBytes(c.bytes)
	var batch ingest.Batch
	before := cpuTime(b)
	for b.Loop() {
		for _, data := range c.requests {
			batch.Reset()
			if err := decode(data, &batch); err != nil || len(batch.Spans) != 512 {
				b.Fatalf("%d spans, error %v", len(batch.Spans), err)
			}
		}
	}
	spans := float64(b.N) * float64(c.spans)
	b.ReportMetric(spans/b.Elapsed().Seconds(), "spans/s")
	b.ReportMetric(float64(cpuTime(b)-before)/spans, "cpu-ns/span") // less noisy than time on a shared machine
}

// cpuTime returns the processor time used by this process, garbage collection included.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func wanted(b testing.TB, names ...string) *ingest.Keys {
	keys, err := ingest.NewKeys(names...)
	if err != nil {
		b.Fatal(err)
	}
	return keys
}

func BenchmarkProtobuf(b *testing.B) {
	b.Run("lean", func(b *testing.B) {
		protobufCorpus().run(b, otlp.NewDecoder(&trace.Table{}, wanted(b, benchKeys...)).Protobuf)
	})
	b.Run("lean-ordered", func(b *testing.B) {
		orderedCorpus().run(b, otlp.NewDecoder(&trace.Table{}, wanted(b, benchKeys...)).Protobuf)
	})
	b.Run("lean-no-keys", func(b *testing.B) {
		protobufCorpus().run(b, otlp.NewDecoder(&trace.Table{}, wanted(b)).Protobuf)
	})
	b.Run("lean-all-keys", func(b *testing.B) {
		protobufCorpus().run(b, otlp.NewDecoder(&trace.Table{}, ingest.AllKeys()).Protobuf)
	})
	b.Run("pdata", func(b *testing.B) { // pdata alone, without conversion to spans
		protobufCorpus().run(b, func(data []byte, into *ingest.Batch) error {
			traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
			into.Spans = make([]trace.Span, traces.SpanCount())
			into.Traces = make([]trace.ID, traces.SpanCount())
			return err
		})
	})
	b.Run("reference", func(b *testing.B) {
		protobufCorpus().run(b, newReference(&trace.Table{}, false, benchKeys...).Protobuf)
	})
}

func BenchmarkJSON(b *testing.B) {
	b.Run("lean", func(b *testing.B) {
		jsonCorpus().run(b, otlp.NewDecoder(&trace.Table{}, wanted(b, benchKeys...)).JSON)
	})
	b.Run("lean-all-keys", func(b *testing.B) {
		jsonCorpus().run(b, otlp.NewDecoder(&trace.Table{}, ingest.AllKeys()).JSON)
	})
	b.Run("reference", func(b *testing.B) {
		jsonCorpus().run(b, newReference(&trace.Table{}, false, benchKeys...).JSON)
	})
}
