package tracetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Fleet is a gateway and the instances of a cart that it calls. Instance i runs on host i in zone i % 2.
type Fleet struct {
	Table *trace.Table
	Rand  *rand.Rand
	next  uint64
}

// Instance is the behaviour of one instance of a [Fleet].
type Instance struct {
	Version string
	Slower  float64 // factor on the usual duration
	Fails   float64 // share of the calls that fail
}

// NewFleet returns a fleet with its own table.
func NewFleet(seed uint64) *Fleet {
	return &Fleet{Table: &trace.Table{}, Rand: rand.New(rand.NewPCG(seed, 4))}
}

// Instances returns n normal instances of version 1.
func Instances(n int) []Instance {
	all := make([]Instance, n)
	for i := range all {
		all[i] = Instance{"1", 1, 0}
	}
	return all
}

// Play yields two requests per second in [from, to), each answered by a random instance.
func (f *Fleet) Play(from, to time.Duration, all []Instance, yield func(*trace.Trace)) {
	for at := from; at < to; at += time.Second / 2 {
		i := f.Rand.IntN(len(all))
		yield(f.Request(trace.Nanos(at), i, all[i]))
	}
}

// Request returns a request that arrives at start and is answered by the instance with the given number. i is the
// behaviour of that instance.
func (f *Fleet) Request(start trace.Nanos, number int, i Instance) *trace.Trace {
	f.next++
	work := trace.Nanos(i.Slower * (50e6 + 50e6*f.Rand.ExpFloat64()))
	span := func(id, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos) trace.Span {
		symbol := f.Table.Symbol(service)
		return trace.Span{
			ID: id, Parent: parent,
			Op: f.Table.Op(symbol, f.Table.Symbol(name), kind), Service: symbol, Kind: kind,
			Start: start + from, End: start + to,
		}
	}
	const wire = trace.Nanos(time.Millisecond)
	tr := &trace.Trace{ID: trace.ID{byte(f.next), byte(f.next >> 8), byte(f.next >> 16)}, Spans: []trace.Span{
		span(1, 0, "gateway", "GET /cart", trace.Server, 0, work+4*wire),
		span(2, 1, "gateway", "GET", trace.Client, wire, work+3*wire),
		span(3, 2, "cart", "GET /cart", trace.Server, 2*wire, work+2*wire),
	}}
	if f.Rand.Float64() < i.Fails {
		tr.Spans[2].Flags |= trace.Error
	}
	for _, attr := range [][2]string{
		{"k8s.pod.name", fmt.Sprintf("cart-%d", number)},
		{"host.name", fmt.Sprintf("host-%d", number)},
		{"service.version", i.Version},
		{"cloud.availability_zone", fmt.Sprintf("zone-%d", number%2)},
		{"http.route", "/cart"},
	} {
		tr.Attrs = append(tr.Attrs, trace.Attr{Key: f.Table.Symbol(attr[0]), Text: f.Table.Symbol(attr[1]), Span: 2})
	}
	return tr
}

// Checkout returns a request of a shop that spends nanos in its checkout.
func Checkout(table *trace.Table, start time.Duration, nanos int64) *trace.Trace {
	shop := table.Symbol("shop")
	return &trace.Trace{ID: trace.ID{15: byte(start / time.Second)}, Spans: []trace.Span{{
		ID: 1, Op: table.Op(shop, table.Symbol("checkout"), trace.Server), Service: shop, Kind: trace.Server,
		Start: trace.Nanos(start), End: trace.Nanos(start) + trace.Nanos(nanos),
	}}}
}
