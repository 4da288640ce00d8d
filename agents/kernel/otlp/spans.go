package otlp

import (
	"encoding/binary"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Keys of attributes.
const (
	keyTracepoint = "sibyl.tracepoint.id"
	keyClass      = "sibyl.wait.class"
	keySyscall    = "sibyl.wait.syscall"
	keyRunqueue   = "sibyl.wait.runqueue_ns"
	keyQuality    = "sibyl.wait.quality"
	keyCount      = "sibyl.wait.count"
	keyThread     = "thread.id"
	keyStack      = "code.stacktrace"
)

// traces converts waits to spans, by service. offset is the offset from the monotonic clock to Unix time.
func traces(list []join.Wait, offset time.Duration, syscall func(int32) string) ptrace.Traces {
	all := ptrace.NewTraces()
	services := make(map[*join.Service]ptrace.SpanSlice)
	for i := range list {
		w := &list[i]
		spans, ok := services[w.Service]
		if !ok {
			r := all.ResourceSpans().AppendEmpty()
			for _, a := range w.Service.Attributes {
				r.Resource().Attributes().PutStr(a.Key, a.Value)
			}
			s := r.ScopeSpans().AppendEmpty()
			s.Scope().SetName(waits.Scope)
			spans = s.Spans()
			services[w.Service] = spans
		}
		fill(spans.AppendEmpty(), w, offset, syscall)
	}
	return all
}

// fill sets the fields of s to describe the wait w.
func fill(s ptrace.Span, w *join.Wait, offset time.Duration, syscall func(int32) string) {
	s.SetTraceID(w.Trace)
	s.SetParentSpanID(w.Parent)
	s.SetSpanID(spanID(w))
	s.SetName(waits.SpanName(w.Part.Class))
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(w.Part.Start + uint64(offset)))
	s.SetEndTimestamp(pcommon.Timestamp(w.Part.End + uint64(offset)))
	a := s.Attributes()
	a.PutStr(keyTracepoint, waits.TracepointID(w.Service.Name, w.Part.Class))
	a.PutStr(keyClass, w.Part.Class.String())
	if name := syscall(w.Part.Syscall); name != "" {
		a.PutStr(keySyscall, name)
	}
	a.PutInt(keyRunqueue, int64(w.Part.RunqNs))
	a.PutStr(keyQuality, string(w.Quality))
	if w.More > 0 {
		a.PutInt(keyCount, int64(w.More)+1)
	}
	a.PutInt(keyThread, int64(w.TID))
	if len(w.Frames) > 0 {
		a.PutStr(keyStack, strings.Join(w.Frames, "\n"))
	}
}

// spanID returns a span ID that is the same each time the wait is sent. It is unique, because a thread waits for only
// one thing at a time.
func spanID(w *join.Wait) (id pcommon.SpanID) {
	const prime = 0x9e3779b97f4a7c15
	x := (w.Part.End ^ uint64(w.TID)<<40 ^ uint64(w.Part.Class)<<32) * prime
	x ^= x >> 29
	x = (x ^ binary.LittleEndian.Uint64(w.Parent[:])) * prime
	x ^= x >> 32
	binary.LittleEndian.PutUint64(id[:], max(x, 1))
	return id
}
