package otlp

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// AppendTrace appends the same request as pdata after removing all other spans.
func TestAppendTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := ptrace.NewTraces()
		var got []byte
		id := trace.ID{15: 1}
		for range rapid.IntRange(1, 3).Draw(t, "requests") {
			in := ptrace.NewTraces()
			for range rapid.IntRange(0, 3).Draw(t, "resources") {
				rs := in.ResourceSpans().AppendEmpty()
				rs.Resource().Attributes().PutStr("service.name", rapid.StringN(0, 200, -1).Draw(t, "service"))
				for range rapid.IntRange(0, 3).Draw(t, "scopes") {
					ss := rs.ScopeSpans().AppendEmpty()
					ss.Scope().SetName("scope")
					for range rapid.IntRange(0, 3).Draw(t, "spans") {
						s := ss.Spans().AppendEmpty()
						s.SetTraceID([16]byte{15: byte(rapid.IntRange(1, 2).Draw(t, "trace"))})
						s.SetName(rapid.StringN(0, 300, -1).Draw(t, "name"))
						s.Attributes().PutInt("n", 7)
						s.Events().AppendEmpty().SetName("event")
					}
				}
			}
			data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(in)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = AppendTrace(got, data, id); err != nil {
				t.Fatal(err)
			}
			in.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
				rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
					ss.Spans().RemoveIf(func(s ptrace.Span) bool { return trace.ID(s.TraceID()) != id })
					return ss.Spans().Len() == 0
				})
				return rs.ScopeSpans().Len() == 0
			})
			in.ResourceSpans().MoveAndAppendTo(want.ResourceSpans())
		}
		bytes, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(want)
		if err != nil {
			t.Fatal(err)
		}
		read, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(read)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(bytes) {
			t.Fatalf("extracted %x, want %x", again, bytes)
		}
	})
}

func FuzzAppendTrace(f *testing.F) {
	f.Add([]byte{10, 4, 18, 2, 18, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := AppendTrace([]byte("x"), data, trace.ID{15: 1})
		if err != nil && string(out) != "x" || len(out) > len(data)*2+1 {
			t.Fatalf("%d bytes in, %q out, %v", len(data), out, err)
		}
	})
}
