package critpath_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// benchTraces returns count traces of n spans that resemble requests across services. About half of the spans are calls
// (CLIENT and SERVER) that end before their parents. If tracepoints is true, about half of the INTERNAL spans are
// tracepoint spans.
func benchTraces(count, n int, tracepoints bool) []trace.Trace {
	r := rand.New(rand.NewPCG(1, 2))
	traces := make([]trace.Trace, count)
	ops := make([]trace.Symbol, 400)
	for i := range ops {
		ops[i] = trace.Symbol(r.Uint64())
	}
	for i := range traces {
		traces[i] = benchTrace(r, n, ops, tracepoints)
	}
	return traces
}

func benchTrace(r *rand.Rand, n int, names []trace.Symbol, tracepoints bool) trace.Trace {
	t := trace.Trace{Spans: make([]trace.Span, 0, n)}
	begin := trace.Nanos(1_700_000_000_000_000_000 + r.Int64N(1e15))
	add := func(parent int, kind trace.Kind, start, end trace.Nanos) {
		s := trace.Span{
			ID:      trace.SpanID(r.Uint64()),
			Start:   start,
			End:     end,
			Kind:    kind,
			Service: names[0],
			Host:    names[10],
		}
		if parent >= 0 {
			p := &t.Spans[parent]
			s.Parent, s.Service, s.Host = p.ID, p.Service, p.Host
			if kind == trace.Server {
				s.Service, s.Host = names[1+r.IntN(9)], names[11+r.IntN(9)]
			}
		}
		if tracepoints && kind == trace.Internal && r.IntN(2) == 0 {
			s.Tracepoint = 1
		}
		s.Op = trace.OpOf(s.Service, names[20+r.IntN(20)], kind)
		t.Spans = append(t.Spans, s)
	}
	add(-1, trace.Server, begin, begin+100_000_000)
	for len(t.Spans) < n {
		i := r.IntN(len(t.Spans))
		p := t.Spans[i]
		length := max(2, int64(p.End-p.Start))
		start := p.Start + trace.Nanos(r.Int64N(length))
		end := start + trace.Nanos(r.Int64N(max(1, int64(p.End-start))))
		switch {
		case p.Kind == trace.Client:
			add(i, trace.Server, p.Start+trace.Nanos(length/10), p.End-trace.Nanos(length/10))
		case r.IntN(2) == 0:
			add(i, trace.Client, start, end)
		default:
			add(i, trace.Internal, start, end)
		}
	}
	r.Shuffle(n, func(i, j int) { t.Spans[i], t.Spans[j] = t.Spans[j], t.Spans[i] })
	return t
}

// reportSpans reports spans per second.
func reportSpans(b *testing.B, spans int) {
	b.ReportMetric(float64(b.N)*float64(spans)/b.Elapsed().Seconds(), "spans/s")
}

// manyTraces is a number of traces of 50 spans that exceeds the caches: they take 96 MiB.
const manyTraces = (96 << 20) / (50 * 72)

func BenchmarkExtract50(b *testing.B) {
	for name, tracepoints := range map[string]bool{"baseline": false, "tracepoints": true} {
		b.Run(name, func(b *testing.B) {
			traces := benchTraces(manyTraces, 50, tracepoints)
			x := critpath.NewExtractor(critpath.DefaultOptions())
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.Extract(&traces[i])
				if i++; i == len(traces) {
					i = 0
				}
			}
			reportSpans(b, 50)
		})
	}
}

func BenchmarkObserve50(b *testing.B) {
	for name, tracepoints := range map[string]bool{"baseline": false, "tracepoints": true} {
		b.Run(name, func(b *testing.B) {
			traces := benchTraces(manyTraces, 50, tracepoints)
			x := critpath.NewExtractor(critpath.DefaultOptions())
			var o observation.Observer
			var into observation.Observation
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o.Observe(x.Extract(&traces[i]), 0, &into)
				if i++; i == len(traces) {
					i = 0
				}
			}
			reportSpans(b, 50)
		})
	}
}

// largeTraces build traces of n spans. Each is hard in one way.
var largeTraces = map[string]func(n int) *trace.Trace{
	"sequential": func(n int) *trace.Trace {
		return rootedTrace(n, func(i int, end trace.Nanos) trace.Span {
			return largeSpan(i, 0, nanos(10*i-8), nanos(10*i))
		})
	},
	"overlapping": func(n int) *trace.Trace { // all children overlap
		return rootedTrace(n, func(i int, end trace.Nanos) trace.Span {
			return largeSpan(i, 0, nanos(i), end-nanos(n-i))
		})
	},
	"nested": func(n int) *trace.Trace { // each child lies within the previous one
		return rootedTrace(n, func(i int, end trace.Nanos) trace.Span {
			return largeSpan(i, 0, nanos(i), end-nanos(i))
		})
	},
	"same": func(n int) *trace.Trace { // all children have the same interval
		return rootedTrace(n, func(i int, end trace.Nanos) trace.Span { return largeSpan(i, 0, 0, end) })
	},
	"deep": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			return largeSpan(i, i-1, nanos(i), end-nanos(i))
		})
	},
	"random": func(n int) *trace.Trace {
		r := rand.New(rand.NewPCG(5, 6))
		return rootedTrace(n, func(i int, _ trace.Nanos) trace.Span {
			start := nanos(r.IntN(10 * n))
			return largeSpan(i, r.IntN(i), start, start+nanos(r.IntN(n)))
		})
	},
	"roots": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span { return largeSpan(i, -1, nanos(i), end) })
	},
	"cycle": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span { return largeSpan(i, (i+1)%n, 0, end) })
	},
	"orphans": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span { return largeSpan(i, 2*n+i, nanos(i), end) })
	},
	"copies": func(n int) *trace.Trace { // two spans of each ID
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span { return largeSpan(i/2, i/2-1, nanos(i%3), end) })
	},
	"colliding": func(n int) *trace.Trace { // IDs with the same hash
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			const inverse = 0xf1de83e19937733d
			s := largeSpan(i, i/2-1, nanos(i), end)
			s.ID *= inverse
			s.Parent *= inverse
			return s
		})
	},
	"consumers": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			s := largeSpan(i, i-1, nanos(i), end)
			s.Kind, s.Service = trace.Consumer, trace.Symbol(i%2)
			return s
		})
	},
	"skewed": func(n int) *trace.Trace {
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			s := largeSpan(i, i-1, end-nanos(i/2*10), end-nanos(i/2*10)+nanos(n-i))
			s.Kind, s.Host = []trace.Kind{trace.Server, trace.Client}[i%2], trace.Symbol(1+(i+1)/2)
			return s
		})
	},
	"alternating": func(n int) *trace.Trace { // a chain of alternately baseline and tracepoint spans
		return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			s := largeSpan(i, i-1, nanos(i), end-nanos(i))
			s.Tracepoint = trace.Symbol(i % 2)
			return s
		})
	},
	"refined": func(n int) *trace.Trace { // a chain of n/2 tracepoint spans with baseline children of the last one
		return rootedTrace(n, func(i int, _ trace.Nanos) trace.Span {
			if i >= n/2 {
				return largeSpan(i, n/2-1, nanos(10*i-5), nanos(10*i))
			}
			s := largeSpan(i, i-1, 0, 1)
			s.Tracepoint = 1
			return s
		})
	},
	"wrapped": func(n int) *trace.Trace { // a chain of n/2 long tracepoint spans with baseline children of all
		r := rand.New(rand.NewPCG(5, 6))
		return rootedTrace(n, func(i int, end trace.Nanos) trace.Span {
			if i >= n/2 {
				return largeSpan(i, 1+r.IntN(n/2-1), nanos(10*i-5), nanos(10*i))
			}
			s := largeSpan(i, i-1, nanos(i), end-nanos(i))
			s.Tracepoint = 1
			return s
		})
	},
	"siblings": func(n int) *trace.Trace { // children of one span, half of them tracepoint spans
		return rootedTrace(n, func(i int, _ trace.Nanos) trace.Span {
			s := largeSpan(i, 0, nanos(10*i-8), nanos(10*i))
			if i%2 == 1 {
				s.Tracepoint = 1
				s.Start -= nanos(i)
			}
			return s
		})
	},
	"joined": func(n int) *trace.Trace { // every span joins the first of a chain and a random span
		r := rand.New(rand.NewPCG(5, 6))
		t := largeTrace(n, func(i int, end trace.Nanos) trace.Span {
			if i < n/2 {
				return largeSpan(i, i-1, 0, end)
			}
			return largeSpan(i, -1, 0, end)
		})
		for i := range t.Spans {
			t.Joins = append(t.Joins, trace.Join{Span: int32(i), Linked: 1},
				trace.Join{Span: int32(i), Linked: trace.SpanID(1 + r.IntN(n))})
		}
		return t
	},
}

// rootedTrace is largeTrace with a root as span 0.
func rootedTrace(n int, span func(i int, end trace.Nanos) trace.Span) *trace.Trace {
	return largeTrace(n, func(i int, end trace.Nanos) trace.Span {
		if i == 0 {
			return largeSpan(0, -1, 0, end)
		}
		return span(i, end)
	})
}

// largeTrace returns a trace of the spans 0 to n−1, shuffled. end leaves 10 ns for each.
func largeTrace(n int, span func(i int, end trace.Nanos) trace.Span) *trace.Trace {
	t := &trace.Trace{Spans: make([]trace.Span, n)}
	for i := range t.Spans {
		t.Spans[i] = span(i, nanos(10*n))
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(n, func(i, j int) { t.Spans[i], t.Spans[j] = t.Spans[j], t.Spans[i] })
	return t
}

// largeSpan returns span number i below span number parent, or a root if parent is -1.
func largeSpan(i, parent int, start, end trace.Nanos) trace.Span {
	return trace.Span{
		ID: trace.SpanID(i + 1), Parent: trace.SpanID(parent + 1), Start: start, End: end,
		Op: trace.Op(1 + i%50), Kind: trace.Internal, Service: 1,
	}
}

func nanos(n int) trace.Nanos { return trace.Nanos(n) }

func BenchmarkExtractLarge(b *testing.B) {
	for size, n := range map[string]int{"100k": 100_000, "1M": 1_000_000} {
		for name, build := range largeTraces {
			b.Run(name+"/"+size, func(b *testing.B) {
				t := build(n)
				x := critpath.NewExtractor(critpath.DefaultOptions())
				b.ReportAllocs()
				for b.Loop() {
					x.Extract(t)
				}
				reportSpans(b, n)
			})
		}
	}
}

func BenchmarkObserveLarge(b *testing.B) {
	const n = 100_000
	for name, build := range largeTraces {
		b.Run(name, func(b *testing.B) {
			x := critpath.NewExtractor(critpath.DefaultOptions())
			p := x.Extract(build(n))
			var o observation.Observer
			var into observation.Observation
			b.ReportAllocs()
			for b.Loop() {
				for i := range p.Roots {
					o.Observe(p, i, &into)
				}
			}
			reportSpans(b, n)
		})
	}
}
