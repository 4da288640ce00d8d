package live

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// endless creates traces with an endless supply of names. Each has an ID as an attribute value. Some have an ID in an
// operation name, or the name of a pod as the service name.
type endless struct {
	at     trace.Nanos
	traces uint64
}

// request returns an export request with n traces, each with 21 values of an attribute. Every 33rd trace calls an
// operation with an ID in its name, or a service named after a pod.
func (x *endless) request(t testing.TB, n int) []byte {
	t.Helper()
	traces := ptrace.NewTraces()
	shop := service(traces, "shop")
	for range n {
		x.traces++
		id := fmt.Sprintf("u%dx", x.traces*7919)
		x.span(shop, 1, 0, "GET /cart", 20*time.Millisecond).Attributes().PutStr("user.id", id)
		for i := range byte(20) {
			x.span(shop, 3+i, 1, "item", time.Millisecond).Attributes().PutStr("user.id", fmt.Sprint(id, i))
		}
		switch {
		case x.traces%66 == 0:
			x.span(service(traces, "worker-"+id), 2, 1, "work", 5*time.Millisecond)
		case x.traces%33 == 0:
			x.span(shop, 2, 1, "order "+id, 5*time.Millisecond)
		}
	}
	return encoded(t, traces)
}

func service(traces ptrace.Traces, name string) ptrace.SpanSlice {
	rs := traces.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", name)
	return rs.ScopeSpans().AppendEmpty().Spans()
}

func (x *endless) span(into ptrace.SpanSlice, id, parent byte, name string, duration time.Duration) ptrace.Span {
	s := into.AppendEmpty()
	s.SetTraceID(pcommon.TraceID(binary.BigEndian.AppendUint64([]byte{1, 7: 0}, x.traces)))
	s.SetSpanID(pcommon.SpanID{7: id})
	if parent != 0 {
		s.SetParentSpanID(pcommon.SpanID{7: parent})
	}
	s.SetName(name)
	s.SetKind(ptrace.SpanKindServer)
	s.SetStartTimestamp(pcommon.Timestamp(x.at))
	s.SetEndTimestamp(pcommon.Timestamp(x.at.Add(duration)))
	return s
}

func encoded(t testing.TB, traces ptrace.Traces) []byte {
	t.Helper()
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// A day of traffic has a million values of one attribute, 720 operations with an ID in their names, and 720 services
// named after pods. Only these names are lost: services, operations and values of other attributes that appear later
// have names.
func TestNamesNeverRunOut(t *testing.T) {
	const step, traces = 2 * time.Minute, 66
	keys, err := ingest.NewKeys("user.id", "tier")
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) {
		o.Keys, o.Core.Retention, o.Checkpoint = keys, 24*time.Hour, time.Hour
	})
	defer r.end()
	decided, unmentioned := r.decisionAbout(t)
	x := &endless{}
	for played := step; played <= 24*time.Hour; played += step {
		x.at = c.at()
		r.send([][]byte{x.request(t, traces)})
		c.add(step)
		r.settle()
		if played%(4*time.Hour) == 0 {
			t.Logf("after %v: %s", played, r.sizes())
		}
	}
	for range 10 {
		x.at, x.traces = c.at(), x.traces+1
		invoice := ptrace.NewTraces()
		x.span(service(invoice, "billing"), 1, 0, "POST /invoice", time.Second).Attributes().PutStr("tier", "gold")
		r.send([][]byte{x.request(t, traces), encoded(t, invoice)})
		c.add(step)
		r.settle()
	}
	err = r.Ask(t.Context(), func(core *engine.View) {
		table := core.Table
		found := false
		for g := range core.Groups.Each() {
			if g.Level == group.LevelRequestType && table.ServiceName(g.Entry) == "billing" &&
				table.OpName(g.Entry) == "POST /invoice" {
				found = true
			}
		}
		if !found {
			t.Error("no request type is named after the new service and its operation")
		}
		if got := table.OpName(decided); got != "decided" {
			t.Errorf("the operation in a stored decision is named %q", got)
		}
		if got := table.OpName(unmentioned); got != trace.Overflow {
			t.Errorf("an operation that nothing mentions is named %q", got)
		}
		for _, name := range []string{"tier", "gold", "user.id", "shop"} {
			if got := table.Text(trace.SymbolOf([]byte(name))); got != name {
				t.Errorf("%q has the name %q", name, got)
			}
		}
		if n := table.Refused(); n != 0 {
			t.Errorf("%d names refused", n)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("in the end: %s; unnamed values: %v", r.sizes(), r.Counts().Unnamed())
}

// decisionAbout returns an operation that only a stored decision mentions, and an operation that nothing mentions.
func (r *running) decisionAbout(t *testing.T) (decided, unmentioned trace.Op) {
	t.Helper()
	err := r.Ask(t.Context(), func(core *engine.View) {
		table := core.Table
		decided = table.Op(table.Symbol("old"), table.Symbol("decided"), trace.Server)
		unmentioned = table.Op(table.Symbol("old"), table.Symbol("unmentioned"), trace.Server)
	})
	if err == nil {
		err = r.store.Decisions.Put(start, []search.Decision{{At: start, Missing: []trace.Op{decided}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return decided, unmentioned
}

// sizes describes the memory of the service.
func (r *running) sizes() (text string) {
	r.t.Helper()
	err := r.Ask(r.t.Context(), func(core *engine.View) {
		text = fmt.Sprintf("%d names, %d groups, %d sites, %d calls without a site, state of %.1f MB",
			core.Table.Len(), core.Groups.Len(), core.History.Len(), core.History.Refused(),
			float64(len(r.loop.core.AppendState(nil)))/1e6)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("%s, heap of %.0f MB, %d names forgotten",
		text, float64(m.HeapAlloc)/1e6, r.Counts().Names.Load())
}
