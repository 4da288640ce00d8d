package recorded

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Baseline selects the operations of recorded traces that are always enabled. All others are tracepoints.
type Baseline string

const (
	// Services is the baseline of OpenTelemetry providers that Sibyl controls: parentless, SERVER and CONSUMER spans.
	Services Baseline = "services"
	// Entries are the parentless spans alone.
	Entries Baseline = "entries"
	// OTel is the baseline of OpenTelemetry's automatic instrumentation, which is always on: all but INTERNAL spans.
	OTel Baseline = "otel"
)

// Baselines returns the names of all baselines, the default first.
func Baselines() []string { return []string{string(Services), string(Entries), string(OTel)} }

// contains reports whether b contains the operations of a kind, wherever they are called.
func (b Baseline) contains(kind trace.Kind) bool {
	switch b {
	case Services:
		return kind == trace.Server || kind == trace.Consumer
	case OTel:
		return kind != trace.Internal && kind != trace.Unspecified
	case Entries:
		return false
	}
	return false
}

// catalogue lists the tracepoints that agents of the recorded application would announce.
type catalogue struct {
	points map[trace.Op]*point
	order  []trace.Op // by name
}

// point is an operation: either a tracepoint or part of the baseline.
type point struct {
	id       trace.Symbol
	baseline bool
	parent   uniqueOp // calling operation
	owner    uniqueOp // enclosing baseline operation
	callee   uniqueOp // of a CLIENT: the SERVER operation that it calls
}

// uniqueOp is an operation that may differ from trace to trace.
type uniqueOp struct {
	op      trace.Op // 0 if unknown or if there are several
	several bool
}

func (o *uniqueOp) see(op trace.Op) {
	if o.op != 0 && o.op != op {
		o.op, o.several = 0, true
	}
	if !o.several {
		o.op = op
	}
}

// newCatalogue derives the catalogue from complete traces: the structure of the program as agents know it, without
// times. It ignores labels and windows.
func newCatalogue(traces []*recordedTrace, baseline Baseline, table *trace.Table) *catalogue {
	c := &catalogue{points: make(map[trace.Op]*point)}
	for _, t := range traces {
		for i := range t.whole.Spans {
			s := &t.whole.Spans[i]
			p := c.points[s.Op]
			if p == nil {
				p = &point{}
				c.points[s.Op] = p
				c.order = append(c.order, s.Op)
			}
			p.baseline = p.baseline || t.parents[i] < 0 || baseline.contains(s.Kind)
		}
	}
	names := make(map[trace.Op]string, len(c.order))
	for _, op := range c.order {
		o := table.Operation(op)
		names[op] = table.Text(o.Service) + " " + table.Text(o.Name) + " " + o.Kind.String()
		c.points[op].id = table.Symbol(names[op])
	}
	slices.SortFunc(c.order, func(a, b trace.Op) int { return strings.Compare(names[a], names[b]) })
	for _, t := range traces {
		c.relate(t)
	}
	return c
}

// relate records callers and callees in t.
func (c *catalogue) relate(t *recordedTrace) {
	spans := t.whole.Spans
	for i := range spans {
		p := c.points[spans[i].Op]
		if k := t.parents[i]; k >= 0 {
			p.parent.see(spans[k].Op)
			if spans[i].Kind == trace.Server && spans[k].Kind == trace.Client {
				c.points[spans[k].Op].callee.see(spans[i].Op)
			}
		}
		if k := t.above(int32(i), func(k int32) bool { return c.points[spans[k].Op].baseline }); k >= 0 {
			p.owner.see(spans[k].Op)
		}
	}
}

// announce returns the catalogue as agents announce it. Parent and owner are known if they are the same in all traces.
func (c *catalogue) announce() []cct.Tracepoint {
	list := make([]cct.Tracepoint, 0, len(c.order))
	for _, op := range c.order {
		p := c.points[op]
		tp := cct.Tracepoint{
			ID:       p.id,
			Op:       op,
			Bytes:    spanBytes,
			Layer:    cct.App,
			Kind:     cct.SpanPoint,
			Baseline: p.baseline,
		}
		if !p.baseline {
			tp.Owner = p.owner.op
			if p.parent.op != 0 {
				tp.Parent = c.points[p.parent.op].id
			}
		}
		list = append(list, tp)
	}
	return list
}

// spanBytes is the assumed size of a span, which recorded traces do not state.
const spanBytes = 300

// switchable returns the number of tracepoints outside the baseline.
func (c *catalogue) switchable() int {
	n := 0
	for _, p := range c.points {
		if !p.baseline {
			n++
		}
	}
	return n
}

// place returns the operation that the own time of op points to, usually op itself. A CLIENT spends its own time on the
// way to its callee, so that is the place if it is unique and was seen.
func (c *catalogue) place(op trace.Op, seen func(*point) bool) trace.Op {
	p := c.points[op]
	if p != nil && p.callee.op != 0 && seen(c.points[p.callee.op]) {
		return p.callee.op
	}
	return op
}
