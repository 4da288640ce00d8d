package file_test

import (
	"bufio"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkRead reads files of at least 64 MiB and all their traces.
func BenchmarkRead(b *testing.B) {
	for name, marshal := range map[string]func(ptrace.Traces) []byte{
		"lines":     func(traces ptrace.Traces) []byte { return append(marshalJSON(traces), '\n') },
		"delimited": func(traces ptrace.Traces) []byte { return delimit(marshalProtobuf(traces)) },
	} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "f")
			spans, size := writeCorpus(b, path, marshal)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				in, err := file.Read(b.Context(), []string{path}, file.Options{})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for tr, err := range in.All() {
					if err != nil {
						b.Fatal(err)
					}
					n += len(tr.Spans)
				}
				if n != spans {
					b.Fatalf("%d spans, want %d", n, spans)
				}
				_ = in.Close()
			}
			b.ReportMetric(float64(b.N)*float64(spans)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}

func delimit(data []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(data))), data...)
}

func writeCorpus(b *testing.B, path string, marshal func(ptrace.Traces) []byte) (spans int, size int64) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for size < 64<<20 {
		traces := ptrace.NewTraces()
		for service := range 4 {
			rs := traces.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", string(rune('a'+service)))
			ss := rs.ScopeSpans().AppendEmpty().Spans()
			for range 64 {
				spans++
				s := ss.AppendEmpty()
				s.SetName("GET /api/things")
				s.SetTraceID(identifier(uint64(spans / 16)))
				s.SetSpanID(pcommon.SpanID(binary.BigEndian.AppendUint64(nil, trace.Mix(uint64(spans), 2))))
				s.SetStartTimestamp(pcommon.Timestamp(1_700_000_000_000_000_000 + spans))
				s.SetEndTimestamp(s.StartTimestamp() + 1000)
				s.Attributes().PutStr("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64)")
				s.Attributes().PutInt("http.response.status_code", 200)
			}
		}
		data := marshal(traces)
		size += int64(len(data))
		_, _ = w.Write(data)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return spans, size
}

func identifier(n uint64) (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:], trace.Mix(n, 1))
	return id
}
