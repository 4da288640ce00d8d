package throughput

import (
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/sibyl-trace/sibyl/trace"
)

// shape is the call tree of a kind of request. Parents precede their children. Traces of the same shape differ only in
// their times.
type shape []call

type call struct {
	parent         int32
	op             trace.Op
	service, host  trace.Symbol
	kind           trace.Kind
	offset, length float64 // as fractions of the parent's duration
}

// shapes returns count shapes of n spans each. About half of the spans belong to calls between services (CLIENT and
// SERVER).
func shapes(r *rand.Rand, table *trace.Table, count, n int) []shape {
	all := make([]shape, count)
	for i := range all {
		all[i] = newShape(r, table, n)
	}
	return all
}

func newShape(r *rand.Rand, table *trace.Table, n int) shape {
	s := make(shape, 0, n)
	s.add(table, 0, r.IntN(40), r.IntN(20), trace.Server, 0, 1)
	for len(s) < n {
		i := r.IntN(len(s))
		service := s.service(i)
		switch {
		case s[i].kind == trace.Client:
			s.add(table, int32(i), r.IntN(40), r.IntN(20), trace.Server, 0.05, 0.9)
		case r.IntN(2) == 0:
			s.add(table, int32(i), service, r.IntN(20), trace.Client, r.Float64()*0.8, r.Float64()*0.4)
		default:
			s.add(table, int32(i), service, 20+r.IntN(20), trace.Internal, r.Float64()*0.8, r.Float64()*0.4)
		}
	}
	return s
}

// service returns the number of the service of call i.
func (s shape) service(i int) int { return int(s[i].host) }

func (s *shape) add(table *trace.Table, parent int32, service, op int, kind trace.Kind, offset, length float64) {
	name := table.Symbol(fmt.Sprintf("service-%d", service))
	*s = append(*s, call{
		parent: parent, kind: kind, service: name, host: trace.Symbol(service), offset: offset, length: length,
		op: table.Op(name, table.Symbol(fmt.Sprintf("Operation.%d", op)), kind),
	})
}

// newTrace returns a trace of shape s that starts at the given time. Its spans are shuffled.
func (s shape) newTrace(r *rand.Rand, begin trace.Nanos) *trace.Trace {
	t := &trace.Trace{Spans: make([]trace.Span, len(s))}
	for i := range t.ID {
		t.ID[i] = byte(r.Uint32())
	}
	for i, c := range s {
		t.Spans[i] = trace.Span{
			ID: trace.SpanID(r.Uint64() | 1), Start: begin, End: begin + 100_000_000 + trace.Nanos(r.ExpFloat64()*2e7),
			Op: c.op, Service: c.service, Host: c.host + 1, Kind: c.kind,
		}
		if i > 0 {
			p := &t.Spans[c.parent]
			t.Spans[i].Parent = p.ID
			t.Spans[i].Start, t.Spans[i].End = c.within(r, p)
		}
	}
	r.Shuffle(len(s), func(i, j int) { t.Spans[i], t.Spans[j] = t.Spans[j], t.Spans[i] })
	return t
}

// within returns a random interval for c within its parent p.
func (c *call) within(r *rand.Rand, p *trace.Span) (start, end trace.Nanos) {
	length := float64(p.End - p.Start)
	start = p.Start + trace.Nanos(length*c.offset*(0.95+0.05*r.Float64()))
	end = start + trace.Nanos(length*c.length*(0.8+0.2*r.Float64()))
	return start, min(end, p.End)
}

// spanBytes is the size of a span in memory.
const spanBytes = int(unsafe.Sizeof(trace.Span{}))

// requestTraces returns traces of n spans each that together fill the given number of bytes. They have the given number
// of shapes.
func requestTraces(seed uint64, table *trace.Table, kinds, n, bytes int) []*trace.Trace {
	r := rand.New(rand.NewPCG(seed, 1))
	all := shapes(r, table, kinds, n)
	traces := make([]*trace.Trace, bytes/(n*spanBytes)+1)
	for i := range traces {
		traces[i] = all[r.IntN(len(all))].newTrace(r, trace.Nanos(1_700_000_000_000_000_000+int64(i)*1_000_000))
	}
	return traces
}

// addAttributes adds n attributes to each span of t, like the instrumentation of an HTTP server.
func addAttributes(r *rand.Rand, table *trace.Table, t *trace.Trace, n int) {
	for i := range t.Spans {
		for k := range n {
			a := trace.Attr{Span: int32(i), Key: table.Symbol(attributeKeys[k%len(attributeKeys)])}
			if k%3 == 0 {
				a.Number, a.Numeric = float64(r.IntN(1<<16)), true
			} else {
				a.Text = table.Symbol(fmt.Sprintf("value-%d-of-%d", r.IntN(2000), k))
			}
			t.Attrs = append(t.Attrs, a)
		}
	}
}

var attributeKeys = []string{
	"http.response.status_code", "http.request.method", "url.path", "server.port", "server.address",
	"user_agent.original",
	"network.peer.port", "network.protocol.version", "client.address", "thread.id",
}
