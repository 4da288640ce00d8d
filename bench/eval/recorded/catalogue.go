package recorded

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Baseline says which operations of recorded traces are taken to be always on. All others can be switched.
type Baseline string

// The baselines.
const (
	// Services is the baseline of OpenTelemetry providers that Sibyl controls: parentless, SERVER and CONSUMER spans.
	Services Baseline = "services"
	// Entries are the parentless spans alone.
	Entries Baseline = "entries"
)

// Baselines returns all of them, the default first.
func Baselines() []string { return []string{string(Services), string(Entries)} }

// catalogue is what the agents of the recorded application would announce.
type catalogue struct {
	points map[trace.Op]*point
	order  []trace.Op // by name
}

// point is an operation: a tracepoint, or part of the baseline.
type point struct {
	id       trace.Symbol
	baseline bool
	parent   one // operation it is called from
	owner    one // operation of the baseline that it runs in
	callee   one // of a CLIENT: the SERVER operation that it calls
}

// one is a value that is the same wherever it was seen, or known to differ.
type one struct {
	op      trace.Op // 0: not seen, or of several
	several bool
}

func (o *one) see(op trace.Op) {
	if o.op != 0 && o.op != op {
		o.op, o.several = 0, true
	}
	if !o.several {
		o.op = op
	}
}

// newCatalogue derives the catalogue from whole traces: what agents know of the program's structure, nothing of times. Labels and
// windows play no part in it.
func newCatalogue(tapes []*tape, baseline Baseline, table *trace.Table) *catalogue {
	c := &catalogue{points: make(map[trace.Op]*point)}
	for _, t := range tapes {
		for i := range t.whole.Spans {
			s := &t.whole.Spans[i]
			p := c.points[s.Op]
			if p == nil {
				p = &point{}
				c.points[s.Op] = p
				c.order = append(c.order, s.Op)
			}
			p.baseline = p.baseline || t.parents[i] < 0 || baseline == Services && (s.Kind == trace.Server || s.Kind == trace.Consumer)
		}
	}
	names := make(map[trace.Op]string, len(c.order))
	for _, op := range c.order {
		o := table.Operation(op)
		names[op] = table.Text(o.Service) + " " + table.Text(o.Name) + " " + o.Kind.String()
		c.points[op].id = table.Symbol(names[op])
	}
	slices.SortFunc(c.order, func(a, b trace.Op) int { return strings.Compare(names[a], names[b]) })
	for _, t := range tapes {
		c.relate(t)
	}
	return c
}

// relate takes in who calls whom in t.
func (c *catalogue) relate(t *tape) {
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

// announce returns the catalogue as agents announce it. Parent and owner are known where they are the same in all traces.
func (c *catalogue) announce() []cct.Tracepoint {
	list := make([]cct.Tracepoint, 0, len(c.order))
	for _, op := range c.order {
		p := c.points[op]
		tp := cct.Tracepoint{ID: p.id, Op: op, Bytes: spanBytes, Layer: cct.App, Kind: cct.SpanPoint, Baseline: p.baseline}
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

// spanBytes is what a span is taken to cost: recorded traces do not say.
const spanBytes = 300

// switchable returns how many tracepoints there are beside the baseline.
func (c *catalogue) switchable() int {
	n := 0
	for _, p := range c.points {
		if !p.baseline {
			n++
		}
	}
	return n
}

// place returns the operation that own time of op speaks of: of a CLIENT what it calls, as its own time is spent on the way there,
// if that is one operation and seen; else op itself.
func (c *catalogue) place(op trace.Op, seen func(*point) bool) trace.Op {
	p := c.points[op]
	if p != nil && p.callee.op != 0 && seen(c.points[p.callee.op]) {
		return p.callee.op
	}
	return op
}
