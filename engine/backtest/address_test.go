package backtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// replicas writes traces of an edge service that calls three services, each by the IP addresses of its replicas.
type replicas struct {
	r     *rand.Rand
	fault string // fault of calls to price: empty, or dies, slow, retried
	all   ptrace.Traces
	spans map[string]ptrace.SpanSlice
	ids   uint64
}

func newReplicas() *replicas {
	return &replicas{
		r:   rand.New(rand.NewPCG(1, 2)),
		all: ptrace.NewTraces(), spans: make(map[string]ptrace.SpanSlice),
	}
}

func (a *replicas) add(service, name string, id pcommon.TraceID,
	parent pcommon.SpanID, kind ptrace.SpanKind, from, to time.Time,
) ptrace.Span {
	if _, ok := a.spans[service]; !ok {
		rs := a.all.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", service)
		a.spans[service] = rs.ScopeSpans().AppendEmpty().Spans()
	}
	a.ids++
	s := a.spans[service].AppendEmpty()
	s.SetName(name)
	s.SetTraceID(id)
	s.SetSpanID(pcommon.SpanID{1, 5: byte(a.ids >> 16), 6: byte(a.ids >> 8), 7: byte(a.ids)})
	s.SetParentSpanID(parent)
	s.SetKind(kind)
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(from))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(to))
	return s
}

// call adds a call of the edge and returns when it ends.
func (a *replicas) call(root ptrace.Span, callee, number int,
	at time.Time, took time.Duration, answered bool,
) time.Time {
	service := []string{"cart", "price", "stock"}[callee]
	end := at.Add(took)
	s := a.add("edge", "GET", root.TraceID(), root.SpanID(), ptrace.SpanKindClient, at, end)
	s.Attributes().PutStr("server.address", fmt.Sprintf("10.0.%d.%d", callee, number%3))
	s.Attributes().PutInt("server.port", 8080)
	if answered {
		a.add(service, "GET /"+service, root.TraceID(), s.SpanID(),
			ptrace.SpanKindServer, at.Add(time.Millisecond), end.Add(-time.Millisecond))
	} else {
		s.Status().SetCode(ptrace.StatusCodeError)
		root.Status().SetCode(ptrace.StatusCodeError)
	}
	return end
}

func (a *replicas) request(number int, at time.Time) {
	id := pcommon.TraceID{1, 12: byte(number >> 16), 13: byte(number >> 8), 14: byte(number), 15: 1}
	root := a.add("edge", "GET /", id, pcommon.SpanID{}, ptrace.SpanKindServer, at, at)
	end := at.Add(2 * time.Millisecond)
	for callee := range 3 {
		usual := time.Duration((10 + 5*a.r.Float64()) * float64(time.Millisecond))
		replica := a.r.IntN(3)
		switch {
		case callee != 1 || a.fault == "":
			end = a.call(root, callee, replica, end, usual, true)
		case a.fault == "dies":
			end = a.call(root, callee, replica, end, time.Millisecond, false)
		case a.fault == "times out":
			end = a.call(root, callee, replica, end, 2*time.Second, false)
		case a.fault == "is retried":
			end = a.call(root, callee, replica, end, 300*time.Millisecond, false)
			root.Status().SetCode(ptrace.StatusCodeUnset)
			end = a.call(root, callee, replica+1, end, usual, true)
		}
	}
	root.SetEndTimestamp(pcommon.NewTimestampFromTime(end.Add(2 * time.Millisecond)))
}

// play returns what a backtest reports for the traces.
func (a *replicas) play(t *testing.T) *Result {
	t.Helper()
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(a.all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "traces")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Files(t.Context(), []string{path}, nil, file.Options{},
		Options{Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A callee that is addressed by IP and doesn't answer is named first, thanks to its earlier answers.
func TestSilentAddress(t *testing.T) {
	const healthy, faulty = 1500, 300 // seconds, with one request each
	for _, fault := range []string{"dies", "times out", "is retried"} {
		a := newReplicas()
		from := time.Unix(1_700_000_000, 0)
		for i := range healthy + faulty {
			if i >= healthy {
				a.fault = fault
			}
			a.request(i, from.Add(time.Duration(i)*time.Second))
		}
		r := a.play(t)
		if len(r.Incidents) != 1 || len(r.Incidents[0].Suspects) == 0 ||
			r.Incidents[0].Suspects[0].Service != trace.SymbolOf([]byte("price")) {
			t.Errorf("price %s: %d incidents", fault, len(r.Incidents))
			for _, x := range r.Incidents {
				for _, s := range x.Suspects {
					t.Logf("%s %+v", r.Table.Text(s.Service), s)
				}
			}
		}
	}
}
