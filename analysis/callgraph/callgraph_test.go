package callgraph

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestOwnTimesBeside runs two calls in parallel. The own times below the first one don't change, whichever takes
// longer, and each is on the critical path or off it. Own times on the path add up to the duration of the request.
func TestOwnTimesBeside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		length := trace.Nanos(rapid.Int64Range(100e3, 10e6).Draw(t, "length"))
		other := trace.Nanos(rapid.Int64Range(100e3, 10e6).Draw(t, "other"))
		build := func(calls ...trace.Nanos) *trace.Trace {
			x := builder{table: table}
			end := 10e3 + max(length, other)
			root := x.span(0, "web", "GET /", trace.Server, 0, end+5e3)
			for i, length := range calls {
				service := []string{"shop", "cart"}[i]
				call := x.span(root, "web", service, trace.Client, 10e3, 10e3+length)
				serve := x.span(call, service, "GET /", trace.Server, 12e3, 8e3+length)
				work := x.span(serve, service, "work", trace.Internal, 20e3, length)
				x.span(work, service, "SELECT", trace.Client, 30e3, length/2)
			}
			return &trace.Trace{ID: trace.ID{1}, Spans: x.spans}
		}
		alone, both := measure(build(length)), measure(build(length, other))
		for op, want := range alone {
			o := table.Operation(op)
			if got := both[op]; o.Service == table.Symbol("shop") && got.sum() != want.sum() {
				t.Fatalf("%s: own time %d ns, want %d ns", table.Text(o.Name), got.sum(), want.sum())
			}
		}
		onPath := int64(0)
		for op, x := range both {
			if onPath += x.nanos; x.nanos != 0 && x.beside != 0 {
				name := table.Text(table.Operation(op).Name)
				t.Fatalf("%s: %d ns on the path and %d ns beside it", name, x.nanos, x.beside)
			}
		}
		if want := int64(15e3 + max(length, other)); onPath != want {
			t.Fatalf("%d ns on the path, want %d ns", onPath, want)
		}
	})
}

// spent is the own time of a span on the critical path and off it.
type spent struct{ nanos, beside int64 }

func (s spent) sum() int64 { return s.nanos + s.beside }

// measure returns the own times by operation of a trace where each operation occurs once.
func measure(t *trace.Trace) map[trace.Op]spent {
	var r Reader
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(t)
	r.Measure(p)
	own := make(map[trace.Op]spent)
	for i := range p.Nodes {
		own[p.Span(int32(i)).Op] = spent{r.Nanos[i], r.Off.Nanos[i]}
	}
	return own
}

// builder builds the spans of a trace.
type builder struct {
	table *trace.Table
	spans []trace.Span
}

func (b *builder) span(parent trace.SpanID, service, name string,
	kind trace.Kind, start, end trace.Nanos,
) trace.SpanID {
	id, symbol := trace.SpanID(len(b.spans)+1), b.table.Symbol(service)
	op := b.table.Op(symbol, b.table.Symbol(name), kind)
	b.spans = append(b.spans,
		trace.Span{ID: id, Parent: parent, Op: op, Service: symbol, Kind: kind, Start: start, End: end})
	return id
}
