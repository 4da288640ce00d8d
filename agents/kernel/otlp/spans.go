package otlp

import (
	"encoding/binary"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
)

// scope is the name of the instrumentation scope of waits.
const scope = "github.com/sibyl-trace/sibyl/agents/kernel"

// Keys of attributes.
const (
	keyClass    = "sibyl.wait.class"
	keySyscall  = "sibyl.wait.syscall"
	keyRunqueue = "sibyl.wait.runqueue_ns"
	keyQuality  = "sibyl.wait.quality"
	keyThread   = "thread.id"
)

// traces returns waits as spans, by service. offset is the time between the beginnings of the clocks.
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
			s.Scope().SetName(scope)
			spans = s.Spans()
			services[w.Service] = spans
		}
		fill(spans.AppendEmpty(), w, offset, syscall)
	}
	return all
}

// fill makes s the span of a wait, which ends with its run-queue part.
func fill(s ptrace.Span, w *join.Wait, offset time.Duration, syscall func(int32) string) {
	s.SetTraceID(w.Trace)
	s.SetParentSpanID(w.Parent)
	s.SetSpanID(spanID(w))
	s.SetName("wait " + w.Class.String())
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(w.End - w.WaitNs - w.RunqNs + uint64(offset)))
	s.SetEndTimestamp(pcommon.Timestamp(w.End + uint64(offset)))
	a := s.Attributes()
	a.PutStr(keyClass, w.Class.String())
	if name := syscall(w.Syscall); name != "" {
		a.PutStr(keySyscall, name)
	}
	a.PutInt(keyRunqueue, int64(w.RunqNs))
	a.PutStr(keyQuality, string(w.Quality))
	a.PutInt(keyThread, int64(w.TID))
}

// spanID returns an identity that the wait has every time it is sent: a thread has one wait at a time.
func spanID(w *join.Wait) (id pcommon.SpanID) {
	const prime = 0x9e3779b97f4a7c15
	x := (w.End ^ uint64(w.TID)<<40) * prime
	x ^= x >> 29
	x = (x ^ binary.LittleEndian.Uint64(w.Parent[:])) * prime
	x ^= x >> 32
	binary.LittleEndian.PutUint64(id[:], max(x, 1))
	return id
}
