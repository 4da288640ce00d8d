package engine_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// shop is an application without agents on two hosts with kernel agents. Each request of service orders waits for a
// lock, then for the disk, then for a CPU.
type shop struct {
	core    *engine.Core
	table   trace.Table
	rng     *rand.Rand
	now     trace.Nanos
	count   uint64
	faulty  bool // syncs take long on host b
	losing  bool // the kernel agents lose all syncs
	emitted map[string]int
}

const waitScope = "/kernel/"

// classes are the wait classes that the kernel agents offer. Only the first three occur.
var classes = []string{"futex", "sync", "runqueue", "file", "net", "dns", "preempted", "fault"}

func newShop() *shop {
	s := &shop{
		rng:     rand.New(rand.NewPCG(1, 2)),
		now:     trace.Nanos(1_700_000_000 * time.Second),
		emitted: make(map[string]int),
	}
	options := engine.DefaultOptions()
	options.Learning = 2 * time.Minute
	s.core = engine.NewCore(&s.table, options)
	catalogue := search.Catalogue{Service: "orders"}
	for _, c := range classes {
		catalogue.Tracepoints = append(catalogue.Tracepoints, search.Announced{
			ID:    "orders" + waitScope + c,
			Name:  "wait " + c,
			Span:  trace.Internal,
			Layer: cct.Kernel,
			Kind:  cct.ProbePoint,
			Cost:  1500,
			Bytes: 350,
		})
	}
	s.core.Apply(&engine.Change{Feedback: &search.Feedback{At: s.now, Catalogues: []search.Catalogue{catalogue}}})
	return s
}

// enabled reports whether the kernel agents send waits of class for the request with the given id under the current
// plan.
func (s *shop) enabled(class string, id trace.ID) bool {
	from := s.core.View().Searches.Plan()
	var p protocol.Plan
	for i := range from.Arms {
		p.Arms = append(p.Arms, protocol.Arm{Share: from.Arms[i].Share})
	}
	arm := protocol.RandomnessOf(id).Arm(&p)
	for _, l := range from.Leases {
		if int(l.Arm) == arm && s.table.Text(l.Tracepoint) == "orders"+waitScope+class {
			return true
		}
	}
	return false
}

// request ingests the trace of a request that starts at time t.
func (s *shop) request(t trace.Nanos) {
	s.count++
	host := []string{"a", "b"}[s.count%2]
	vary := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * (0.8 + 0.4*s.rng.Float64()))
	}
	took := map[string]time.Duration{
		"futex": vary(2 * time.Millisecond), "sync": vary(3 * time.Millisecond), "runqueue": vary(time.Millisecond),
	}
	if s.faulty && host == "b" {
		took["sync"] = vary(90 * time.Millisecond)
	}
	service, name := s.table.Symbol("orders"), s.table.Symbol(host)
	x := trace.Trace{Spans: []trace.Span{{
		ID:      1,
		Start:   t,
		Op:      s.table.Op(service, s.table.Symbol("POST /order"), trace.Server),
		Service: service,
		Host:    name,
		Kind:    trace.Server,
	}}}
	binary.BigEndian.PutUint64(x.ID[:8], s.rng.Uint64())
	binary.BigEndian.PutUint64(x.ID[8:], s.count)
	x.Attrs = []trace.Attr{{Key: s.table.Symbol("host.name"), Text: name}}
	at := t.Add(vary(4 * time.Millisecond))
	for _, class := range classes[:3] {
		end := at.Add(took[class])
		if s.enabled(class, x.ID) {
			s.emitted[class]++
			if s.losing && class == "sync" {
				at = end.Add(vary(time.Millisecond))
				continue
			}
			x.Spans = append(x.Spans, trace.Span{
				ID:         trace.SpanID(1 + len(x.Spans)),
				Parent:     1,
				Start:      at,
				End:        end,
				Service:    service,
				Host:       name,
				Kind:       trace.Internal,
				Op:         s.table.Op(service, s.table.Symbol("wait "+class), trace.Internal),
				Tracepoint: s.table.Symbol("orders" + waitScope + class),
			})
		}
		at = end.Add(vary(time.Millisecond))
	}
	x.Spans[0].End = at
	s.core.Ingest(&x)
}

// epochs plays n epochs with 20 requests per second.
func (s *shop) epochs(n int) {
	const epoch, rate = 10 * time.Second, 20
	for range n {
		for i := range int(epoch.Seconds()) * rate {
			s.request(s.now.Add(time.Duration(i) * time.Second / rate))
		}
		s.now = s.now.Add(epoch)
		if s.losing && s.emitted["sync"] > 0 {
			f := &search.Feedback{
				At:          s.now,
				Unavailable: []search.Unavailable{{ID: "orders" + waitScope + "sync", For: 2 * time.Minute}},
			}
			s.core.Apply(&engine.Change{Feedback: f})
			s.emitted["sync"] = 0
		}
		s.core.Epoch(s.now)
	}
}

// Kernel waits explain a problem in an application without agents, down to the class, the service and the host.
func TestWaitsExplainWithoutApplicationAgents(t *testing.T) {
	s := newShop()
	s.epochs(20)
	if len(s.emitted) > 0 || len(s.core.View().Searches.Plan().Leases) > 0 {
		t.Fatalf("waits without a problem: %v", s.emitted)
	}
	s.faulty = true
	s.explain(t, 40)
}

// Waits that the agents lose and report as missing don't prove that nothing waited. The class is judged again once it's
// complete.
func TestLostWaitsProveNothing(t *testing.T) {
	s := newShop()
	s.epochs(20)
	s.faulty, s.losing = true, true
	for range 14 {
		s.epochs(1)
		for i := range s.core.View().Searches.State().Investigations {
			v := &s.core.View().Searches.State().Investigations[i]
			for k := range v.Evidence {
				if s.table.Text(v.Evidence[k].Tracepoint) == "orders"+waitScope+"sync" {
					t.Fatalf("evidence of lost waits: %+v", v.Evidence[k])
				}
			}
		}
	}
	if s.emitted["sync"] > 0 || s.emitted["futex"] == 0 {
		t.Errorf("waits %v", s.emitted)
	}
	s.losing = false
	s.explain(t, 60)
}

// explain plays epochs until the syncs are the explanation.
func (s *shop) explain(t *testing.T, epochs int) {
	t.Helper()
	var reasons []string
	for range epochs {
		s.epochs(1)
		for i := range s.core.View().Searches.State().Investigations {
			v := &s.core.View().Searches.State().Investigations[i]
			reasons = append(reasons, v.Status.String()+": "+v.Reason)
			if v.Status == search.Explained &&
				strings.Contains(v.Reason, "waiting for the disk (fsync) in orders, on host b") {
				if s.emitted["sync"] == 0 {
					t.Error("no waits were needed")
				}
				return
			}
		}
	}
	t.Errorf("not explained; waits %v, investigations %q", s.emitted, reasons[max(0, len(reasons)-8):])
}
