package throughput

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Path measures the extraction of critical paths from decoded traces: many small ones, and single large ones.
func Path(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	var table trace.Table
	traces := requestTraces(o.Seed, &table, 200, spansPerTrace, o.Bytes)
	result := &Result{Benchmark: "path", Input: mebibytes(len(traces)*spansPerTrace*spanBytes) + " of distinct traces"}
	if err := o.measurePaths(ctx, result, units.Plural(spansPerTrace, "span")+" per trace", traces...); err != nil {
		return nil, err
	}
	sizes := []int{100_000, 1_000_000}
	if o.Small {
		sizes = []int{1000}
	}
	for _, n := range sizes {
		for _, l := range []struct {
			name  string
			trace *trace.Trace
		}{{"wide", wide(n)}, {"deep", deep(n)}, {"mixed", requestTraces(o.Seed, &table, 1, n, 1)[0]}} {
			err := o.measurePaths(ctx, result, "one trace of "+units.Plural(n, "span")+", "+l.name, l.trace)
			if err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

// spansPerTrace is the size of a small trace.
const spansPerTrace = 50

func (o Options) measurePaths(ctx context.Context, result *Result, name string, traces ...*trace.Trace) error {
	x := critpath.NewExtractor(critpath.DefaultOptions())
	spans := 0
	for _, t := range traces {
		spans += len(t.Spans)
	}
	c, err := o.measure(ctx, func() error {
		for _, t := range traces {
			x.Extract(t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	result.add(name, c.rate(spans, "spans_per_second", "spans"), c.each(len(traces), "ns_per_trace", "trace"),
		c.allocated(len(traces), "allocations_per_trace", "trace"))
	return nil
}

// wide returns a trace of n spans whose root calls all others, one after the other.
func wide(n int) *trace.Trace {
	t := &trace.Trace{Spans: make([]trace.Span, n)}
	for i := range t.Spans {
		t.Spans[i] = trace.Span{
			ID:      trace.SpanID(i + 1),
			Parent:  1,
			Start:   trace.Nanos(i * 10),
			End:     trace.Nanos(i*10 + 10),
			Op:      2,
			Kind:    trace.Client,
			Service: 1,
		}
	}
	t.Spans[0] = trace.Span{ID: 1, End: trace.Nanos(n * 10), Op: 1, Kind: trace.Server, Service: 1}
	return t
}

// deep returns a trace of n spans, each of which calls the next.
func deep(n int) *trace.Trace {
	t := &trace.Trace{Spans: make([]trace.Span, n)}
	for i := range t.Spans {
		t.Spans[i] = trace.Span{
			ID:      trace.SpanID(i + 1),
			Parent:  trace.SpanID(i),
			Start:   trace.Nanos(i),
			End:     trace.Nanos(4*n - i),
			Op:      trace.Op(1 + i%7),
			Kind:    trace.Internal,
			Service: 1,
		}
	}
	return t
}
