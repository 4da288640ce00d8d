package critpath_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// benchTraces returns count traces of n spans like those of a request that crosses services: about half of the spans are calls
// (CLIENT and SERVER), ended before their parents, in the order in which they ended.
func benchTraces(count, n int, switched bool) []trace.Trace {
	r := rand.New(rand.NewPCG(1, 2))
	traces := make([]trace.Trace, count)
	ops := make([]trace.Symbol, 400)
	for i := range ops {
		ops[i] = trace.Symbol(r.Uint64())
	}
	for i := range traces {
		traces[i] = benchTrace(r, n, ops, switched)
	}
	return traces
}

func benchTrace(r *rand.Rand, n int, names []trace.Symbol, switched bool) trace.Trace {
	t := trace.Trace{Spans: make([]trace.Span, 0, n)}
	begin := trace.Nanos(1_700_000_000_000_000_000 + r.Int64N(1e15))
	add := func(parent int, kind trace.Kind, start, end trace.Nanos) {
		s := trace.Span{ID: trace.SpanID(r.Uint64()), Start: start, End: end, Kind: kind, Service: names[0], Host: names[10]}
		if parent >= 0 {
			p := &t.Spans[parent]
			s.Parent, s.Service, s.Host = p.ID, p.Service, p.Host
			if kind == trace.Server {
				s.Service, s.Host = names[1+r.IntN(9)], names[11+r.IntN(9)]
			}
		}
		if switched && kind == trace.Internal && r.IntN(2) == 0 {
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

// perSpan reports spans per second.
func perSpan(b *testing.B, spans int) {
	b.ReportMetric(float64(b.N)*float64(spans)/b.Elapsed().Seconds(), "spans/s")
}

// manyTraces is so many traces of 50 spans that they fill far more than 64 MiB.
const manyTraces = (96 << 20) / (50 * 72)

func BenchmarkExtract50(b *testing.B) {
	for _, c := range []struct {
		name     string
		switched bool
	}{{"baseline", false}, {"switched", true}} {
		b.Run(c.name, func(b *testing.B) {
			traces := benchTraces(manyTraces, 50, c.switched)
			x := critpath.NewExtractor(critpath.DefaultOptions())
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.Extract(&traces[i])
				if i++; i == len(traces) {
					i = 0
				}
			}
			perSpan(b, 50)
		})
	}
}

func BenchmarkObserve50(b *testing.B) {
	for _, c := range []struct {
		name     string
		switched bool
	}{{"baseline", false}, {"switched", true}} {
		b.Run(c.name, func(b *testing.B) {
			traces := benchTraces(manyTraces, 50, c.switched)
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
			perSpan(b, 50)
		})
	}
}

// largeTraces are traces of n spans that are hard in one way each.
func largeTraces(n int) map[string]*trace.Trace {
	child := func(i, parent int, start, end trace.Nanos) trace.Span {
		return trace.Span{ID: trace.SpanID(i + 1), Parent: trace.SpanID(parent + 1), Start: start, End: end, Op: trace.Op(1 + i%50), Kind: trace.Internal, Service: 1}
	}
	build := func(span func(i int) trace.Span) *trace.Trace {
		t := &trace.Trace{Spans: make([]trace.Span, n)}
		for i := range t.Spans {
			t.Spans[i] = span(i)
		}
		rand.New(rand.NewPCG(3, 4)).Shuffle(n, func(i, j int) { t.Spans[i], t.Spans[j] = t.Spans[j], t.Spans[i] })
		return t
	}
	end := trace.Nanos(10 * n)
	at := func(i int) trace.Nanos { return trace.Nanos(i) }
	r := rand.New(rand.NewPCG(5, 6))
	m := map[string]*trace.Trace{
		"sequential": build(func(i int) trace.Span {
			if i == 0 {
				return child(0, -1, 0, end)
			}
			return child(i, 0, at(10*i-8), at(10*i))
		}),
		"overlapping": build(func(i int) trace.Span { // all children overlap
			if i == 0 {
				return child(0, -1, 0, end)
			}
			return child(i, 0, at(i), end-at(n-i))
		}),
		"nested": build(func(i int) trace.Span { // children of one span, each within the next
			if i == 0 {
				return child(0, -1, 0, end)
			}
			return child(i, 0, at(i), end-at(i))
		}),
		"same": build(func(i int) trace.Span { // all equal
			return child(i, min(i, 1)-1, 0, end)
		}),
		"deep": build(func(i int) trace.Span { return child(i, i-1, at(i), end-at(i)) }),
		"random": build(func(i int) trace.Span {
			if i == 0 {
				return child(0, -1, 0, end)
			}
			s := at(r.IntN(10 * n))
			return child(i, r.IntN(i), s, s+at(r.IntN(n)))
		}),
		"roots":   build(func(i int) trace.Span { return child(i, -1, at(i), end) }),
		"cycle":   build(func(i int) trace.Span { return child(i, (i+1)%n, 0, end) }),
		"orphans": build(func(i int) trace.Span { return child(i, 2*n+i, at(i), end) }),
		"copies":  build(func(i int) trace.Span { return child(i/2, i/2-1, at(i%3), end) }),
		"colliding": build(func(i int) trace.Span { // IDs that hash alike
			s := child(i, i/2-1, at(i), end)
			const inverse = 0xf1de83e19937733d
			s.ID *= inverse
			s.Parent *= inverse
			return s
		}),
		"consumers": build(func(i int) trace.Span {
			s := child(i, i-1, at(i), end)
			s.Kind, s.Service = trace.Consumer, trace.Symbol(i%2)
			return s
		}),
		"skewed": build(func(i int) trace.Span {
			s := child(i, i-1, end-at(i/2*10), end-at(i/2*10)+at(n-i))
			s.Kind, s.Host = []trace.Kind{trace.Server, trace.Client}[i%2], trace.Symbol(1+(i+1)/2)
			return s
		}),
		"switched": build(func(i int) trace.Span { // alternately baseline
			s := child(i, i-1, at(i), end-at(i))
			s.Tracepoint = trace.Symbol(i % 2)
			return s
		}),
		"refined": build(func(i int) trace.Span { // half a chain of switched-on spans, and baseline children of the last of them
			switch s := child(i, i-1, 0, at(1)); {
			case i == 0:
				return child(0, -1, 0, end)
			case i < n/2:
				s.Tracepoint = 1
				return s
			default:
				return child(i, n/2-1, at(10*i-5), at(10*i))
			}
		}),
		"wrapped": build(func(i int) trace.Span { // the same, but the chain is open all the time
			switch s := child(i, i-1, at(i), end-at(i)); {
			case i == 0:
				return child(0, -1, 0, end)
			case i < n/2:
				s.Tracepoint = 1
				return s
			default:
				return child(i, 1+r.IntN(n/2-1), at(10*i-5), at(10*i))
			}
		}),
		"many refined": build(func(i int) trace.Span { // half baseline, half switched-on children of one span
			if i == 0 {
				return child(0, -1, 0, end)
			}
			s := child(i, 0, at(10*i-8), at(10*i))
			if i%2 == 1 {
				s.Tracepoint = 1
				s.Start -= at(i)
			}
			return s
		}),
	}
	joined := build(func(i int) trace.Span { // every span joins the first of a chain, and those of a chain join each other
		if i < n/2 {
			return child(i, i-1, 0, end)
		}
		return child(i, -1, 0, end)
	})
	for i := range joined.Spans {
		joined.Joins = append(joined.Joins, trace.Join{Span: int32(i), Linked: 1}, trace.Join{Span: int32(i), Linked: trace.SpanID(1 + r.IntN(n))})
	}
	m["joined"] = joined
	return m
}

func BenchmarkExtractLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		for name, t := range largeTraces(n) {
			b.Run(name+map[int]string{100_000: "/100k", 1_000_000: "/1M"}[n], func(b *testing.B) {
				x := critpath.NewExtractor(critpath.DefaultOptions())
				b.ReportAllocs()
				for b.Loop() {
					x.Extract(t)
				}
				perSpan(b, n)
			})
		}
	}
}

func BenchmarkObserveLarge(b *testing.B) {
	const n = 100_000
	for name, t := range largeTraces(n) {
		b.Run(name, func(b *testing.B) {
			x := critpath.NewExtractor(critpath.Options{MaxSkew: time.Second})
			p := x.Extract(t)
			var o observation.Observer
			var into observation.Observation
			b.ReportAllocs()
			for b.Loop() {
				for i := range p.Roots {
					o.Observe(p, i, &into)
				}
			}
			perSpan(b, n)
		})
	}
}
