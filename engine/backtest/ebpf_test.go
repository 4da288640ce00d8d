package backtest

import (
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// observed writes traces as OBI does, OpenTelemetry's eBPF instrumentation: each server span is divided into the time
// "in queue" and the time of "processing", which makes the calls. There are no other internal spans.
type observed struct{ *replicas }

// serve adds what OBI sees of a server and returns the span that makes its calls.
func (o observed) serve(service, name string, id pcommon.TraceID, caller pcommon.SpanID,
	arrived, taken, end time.Time,
) pcommon.SpanID {
	s := o.add(service, name, id, caller, ptrace.SpanKindServer, arrived, end)
	o.add(service, "in queue", id, s.SpanID(), ptrace.SpanKindInternal, arrived, taken)
	return o.add(service, "processing", id, s.SpanID(), ptrace.SpanKindInternal, taken, end).SpanID()
}

func (o observed) request(number int, at time.Time) {
	after := func(d time.Duration) time.Time {
		at = at.Add(d + time.Duration(o.r.Int64N(int64(d))))
		return at
	}
	slow := func(fault string, usual time.Duration) time.Duration {
		if o.fault == fault {
			return 20 * usual
		}
		return usual
	}
	id := pcommon.TraceID{1, 12: byte(number >> 16), 13: byte(number >> 8), 14: byte(number), 15: 1}
	arrived := at
	called, callee := after(time.Millisecond), after(50*time.Microsecond)
	taken := after(slow("queue", 500*time.Microsecond))
	asked := after(slow("processing", time.Millisecond))
	answered := after(slow("database", 2*time.Millisecond))
	done := after(50 * time.Microsecond)
	end := after(time.Millisecond)

	edge := o.serve("edge", "GET /users/*", id, pcommon.SpanID{}, arrived, arrived.Add(time.Microsecond), end)
	call := o.add("edge", "/users.Users/Get", id, edge, ptrace.SpanKindClient, called, end.Add(-time.Microsecond))
	call.Attributes().PutStr("rpc.system", "grpc")
	call.Attributes().PutStr("rpc.method", "/users.Users/Get")
	call.Attributes().PutStr("peer.service", "users")
	users := o.serve("users", "/users.Users/Get", id, call.SpanID(), callee, taken, done)
	query := o.add("users", "SELECT users", id, users, ptrace.SpanKindClient, asked, answered)
	query.Attributes().PutStr("db.system.name", "postgresql")
	query.Attributes().PutStr("db.operation.name", "SELECT")
	query.Attributes().PutStr("peer.service", "postgres")
}

// Traces of OBI show the place of a fault: before a service takes a request up, in its own work, or in a database.
func TestOBI(t *testing.T) {
	const healthy, faulty = 1500, 300 // seconds, with one request each
	for fault, place := range map[string][2]string{
		"queue": {"users", "in queue"}, "processing": {"users", "processing"}, "database": {"postgres", ""},
	} {
		o := observed{newReplicas()}
		from := time.Unix(1_700_000_000, 0)
		for i := range healthy + faulty {
			if i >= healthy {
				o.fault = fault
			}
			o.request(i, from.Add(time.Duration(i)*time.Second))
		}
		r := o.play(t)
		if len(r.Incidents) != 1 {
			t.Errorf("%s: %d incidents", fault, len(r.Incidents))
			continue
		}
		suspects := r.Incidents[0].Suspects
		found := slices.ContainsFunc(suspects, func(s compare.Suspect) bool {
			return s.Score == suspects[0].Score && // callers share the time of a database
				s.Service == trace.SymbolOf([]byte(place[0])) &&
				len(s.Operations) > 0 &&
				(place[1] == "" || r.Table.OpName(s.Operations[0].Op) == place[1])
		})
		if !found {
			t.Errorf("%s: want %s first, got %+v", fault, place, suspects)
		}
	}
}
