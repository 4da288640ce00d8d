// Package tracetest generates small traces for tests, from random numbers or from the bytes of a fuzzer. Unusual
// properties (equal times, equal IDs, cycles, skew) are frequent in these traces. The package also has transformations
// of traces for metamorphic tests.
package tracetest

import (
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// Shape selects the unusual properties of generated traces. The zero Shape gives a complete request with spans of
// tracepoints.
type Shape struct {
	Spans    int  // maximum number of spans, not counting copies; 12 if 0
	Broken   bool // copies, shared IDs, cycles, missing parents, several roots
	Distinct bool // no copies, even if Broken
	Skewed   bool // children at any time, different hosts
	Joins    bool
	Attrs    bool
}

// Everything is the shape with all unusual properties.
var Everything = Shape{Broken: true, Skewed: true, Joins: true, Attrs: true}

// Draw returns a number in [0, n) for the choice named label. 0 is the simplest choice.
type Draw func(label string, n int) int

// Traces generates traces of the given shape.
func Traces(shape Shape) *rapid.Generator[*trace.Trace] {
	return rapid.Custom(func(t *rapid.T) *trace.Trace {
		return Build(shape, func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) })
	})
}

// FromBytes returns a trace of the given shape that depends on data. Any data is valid; missing bytes count as 0.
func FromBytes(shape Shape, data []byte) *trace.Trace {
	return Build(shape, func(_ string, n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	})
}

// Build builds a trace of the given shape from the numbers that draw returns.
func Build(shape Shape, draw Draw) *trace.Trace {
	most := shape.Spans
	if most == 0 {
		most = 12
	}
	b := builder{shape: shape, draw: draw, t: &trace.Trace{ID: trace.ID{15: 7}}}
	for range 1 + draw("spans", most) {
		b.span()
	}
	if shape.Broken && !shape.Distinct {
		for range draw("copies", 4) {
			b.copy()
		}
	}
	if shape.Joins {
		for range draw("joins", 4) {
			b.t.Joins = append(b.t.Joins,
				trace.Join{Span: b.index(), Linked: b.t.Spans[b.index()].ID, Message: b.rarely("message", 4)})
		}
	}
	if shape.Attrs {
		for range draw("attrs", 6) {
			b.attr()
		}
	}
	return b.t
}

type builder struct {
	shape Shape
	draw  Draw
	t     *trace.Trace
}

// index returns the index of a random span.
func (b *builder) index() int32 { return int32(b.draw("span", len(b.t.Spans))) }

// rarely returns true with probability 1/n.
func (b *builder) rarely(label string, n int) bool { return b.draw(label, n) == n-1 }

// Range of times, small enough that many are equal.
const (
	span0 = 1000 // start of the first span
	width = 60
)

func (b *builder) span() {
	n := len(b.t.Spans)
	s := trace.Span{ID: trace.SpanID(n + 1), Start: span0, End: span0 + width}
	s.Service = trace.Symbol(1 + b.draw("service", 3))
	s.Kind = trace.Kind(b.draw("kind", 6))
	if !b.shape.Broken && n == 0 {
		s.Kind = trace.Server
	}
	if n > 0 {
		p := &b.t.Spans[b.draw("parent", n)]
		s.Parent = p.ID
		b.interval(&s, p)
		if b.rarely("has tracepoint", 3) {
			s.Tracepoint = trace.Symbol(1 + b.draw("tracepoint", 2))
		}
	}
	if b.shape.Broken {
		b.breakParent(&s)
	}
	if b.shape.Skewed {
		s.Host = trace.Symbol(b.draw("host", 3))
	}
	if b.rarely("error", 4) {
		s.Flags |= trace.Error
	}
	s.Op = trace.OpOf(s.Service, trace.Symbol(1+b.draw("name", 3)), s.Kind)
	if s.Kind == trace.Client && b.rarely("has peer", 3) {
		s.Peer = trace.OpOf(trace.Symbol(1+b.draw("peer", 2)), 0, trace.External)
	}
	b.t.Spans = append(b.t.Spans, s)
}

// interval sets the interval of s to one within the interval of p or, in skewed shapes, sometimes anywhere.
func (b *builder) interval(s, p *trace.Span) {
	if b.shape.Skewed && b.rarely("anywhere", 3) {
		s.Start = span0 - 20 + trace.Nanos(b.draw("start", width+40))
		s.End = s.Start - 5 + trace.Nanos(b.draw("length", width))
		return
	}
	length := max(0, int(p.End-p.Start))
	s.Start = p.Start + trace.Nanos(b.draw("offset", length+1))
	s.End = s.Start + trace.Nanos(b.draw("duration", int(max(p.End, s.Start)-s.Start)+1))
}

// breakParent sometimes makes s a root, an orphan, its own parent, or a child of a later span.
func (b *builder) breakParent(s *trace.Span) {
	switch b.draw("broken", 24) {
	case 23:
		s.Parent = 0
	case 22:
		s.Parent = 999
	case 21:
		s.Parent = s.ID
	case 20:
		s.Parent = s.ID + 1 + trace.SpanID(b.draw("later", 2))
	case 19:
		s.Flags |= trace.RemoteParent
	case 18:
		s.Tracepoint = 1
	}
}

// copy adds a copy of a span with the same ID, identical or with one difference.
func (b *builder) copy() {
	s := b.t.Spans[b.index()]
	switch b.draw("difference", 9) {
	case 1:
		s.Kind = trace.Server
	case 2:
		s.Kind = trace.Client
	case 3:
		s.Start++
	case 4:
		s.End++
	case 5:
		s.Parent = b.t.Spans[b.index()].ID
	case 6:
		s.Op++
	case 7:
		s.Kind, s.Start, s.End = trace.Server, s.Start+1, s.End-1
	case 8:
		s.Address++
	}
	b.t.Spans = append(b.t.Spans, s)
}

func (b *builder) attr() {
	a := trace.Attr{Key: trace.Symbol(1 + b.draw("key", 2)), Span: b.index()}
	if b.draw("numeric", 2) == 1 {
		a.Numeric, a.Number = true, float64(b.draw("number", 3))
	} else {
		a.Text = trace.Symbol(1 + b.draw("text", 3))
	}
	switch b.draw("protocol", 9) {
	case 8: // the first span names a plan and an arm
		b.t.Attrs = append(b.t.Attrs, trace.Attr{Key: trace.SymbolOf([]byte(trace.KeyPlan)), Numeric: true, Number: 1})
		a = trace.Attr{Key: trace.SymbolOf([]byte(trace.KeyArm)), Text: 1}
	case 7:
		a.Key = trace.SymbolOf([]byte(trace.KeyPlan))
	case 6:
		a.Key = trace.SymbolOf([]byte(trace.KeyArm))
	}
	b.t.Attrs = append(b.t.Attrs, a)
}

// Permute returns t with span i at index order[i]. order must be a permutation.
func Permute(t *trace.Trace, order []int) *trace.Trace {
	u := &trace.Trace{ID: t.ID, Spans: make([]trace.Span, len(t.Spans))}
	for i, to := range order {
		u.Spans[to] = t.Spans[i]
	}
	for _, a := range t.Attrs {
		a.Span = int32(order[a.Span])
		u.Attrs = append(u.Attrs, a)
	}
	for _, j := range t.Joins {
		j.Span = int32(order[j.Span])
		u.Joins = append(u.Joins, j)
	}
	return u
}

// Move appends span i of from to t, with its attributes and joins.
func Move(t, from *trace.Trace, i int32) {
	to := int32(len(t.Spans))
	t.Spans = append(t.Spans, from.Spans[i])
	for _, a := range from.Attrs {
		if a.Span == i {
			a.Span = to
			t.Attrs = append(t.Attrs, a)
		}
	}
	for _, j := range from.Joins {
		if j.Span == i {
			j.Span = to
			t.Joins = append(t.Joins, j)
		}
	}
}

// Shift returns t with d added to all times.
func Shift(t *trace.Trace, d trace.Nanos) *trace.Trace {
	u := &trace.Trace{ID: t.ID, Spans: append([]trace.Span(nil), t.Spans...), Attrs: t.Attrs, Joins: t.Joins}
	for i := range u.Spans {
		u.Spans[i].Start += d
		u.Spans[i].End += d
	}
	return u
}

// Without returns t without the spans of tracepoints for which off returns true, as if those tracepoints were disabled.
// The children of a removed span become children of its parent. It keeps all baseline spans. The IDs in t must be
// distinct.
func Without(t *trace.Trace, off func(i int) bool) *trace.Trace {
	removed := func(i int) bool { return t.Spans[i].Tracepoint != 0 && off(i) }
	parent := make(map[trace.SpanID]trace.SpanID) // of removed spans
	for i := range t.Spans {
		if removed(i) {
			parent[t.Spans[i].ID] = t.Spans[i].Parent
		}
	}
	u := &trace.Trace{ID: t.ID}
	index := make(map[int32]int32) // in u, by index in t
	for i, s := range t.Spans {
		if removed(i) {
			continue
		}
		for range len(t.Spans) + 1 { // bounded because removed spans may form a cycle
			p, ok := parent[s.Parent]
			if !ok {
				break
			}
			s.Parent = p
		}
		if _, ok := parent[s.Parent]; ok {
			s.Parent = 0
		}
		index[int32(i)] = int32(len(u.Spans))
		u.Spans = append(u.Spans, s)
	}
	for _, a := range t.Attrs {
		if to, ok := index[a.Span]; ok {
			a.Span = to
			u.Attrs = append(u.Attrs, a)
		}
	}
	for _, j := range t.Joins {
		if to, ok := index[j.Span]; ok {
			j.Span = to
			u.Joins = append(u.Joins, j)
		}
	}
	return u
}
