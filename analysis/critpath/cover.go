package critpath

import "github.com/sibyl-trace/sibyl/trace"

// Cover adds all spans of the trace to c. The spans of usable roots count as judged, and all others as left out, with
// the reason. It also counts the trace, the calls between services, and the hops without spans.
func (p *Path) Cover(c *trace.Coverage) {
	c.Traces++
	if !p.Complete() {
		c.Incomplete++
	}
	for i := range p.Roots {
		r := &p.Roots[i]
		reason := p.Unusable(i)
		own := r.Origin == Detached || r.Origin == BelowMissing && p.Flags&FlagRemoteParent == 0
		for k := r.First; k < r.Last; k++ {
			switch {
			case p.Nodes[k].Root < 0:
				c.Leave(p.Span(k), trace.Outside)
			case reason != "":
				c.Leave(p.Span(k), reason)
			default:
				c.Judge(p.Span(k), own)
			}
			p.coverCall(c, k)
		}
		if g := r.Gap; g >= 0 {
			c.CountHop(trace.Hop{Caller: p.Span(g).Service, Callee: p.Span(r.Node).Service}, p.Span(g).Peer)
		}
	}
	p.coverRest(c)
}

// coverCall counts the call of node i if another service answers it.
func (p *Path) coverCall(c *trace.Coverage, i int32) {
	if callee := p.Nodes[i].Callee; callee >= 0 {
		if h := (trace.Hop{Caller: p.Span(i).Service, Callee: p.Trace.Spans[callee].Service}); h.Caller != h.Callee {
			c.CountCall(h)
		}
	}
}

// coverRest adds the spans that are not below any root: copies, and tracepoint spans without a baseline span above
// them.
func (p *Path) coverRest(c *trace.Coverage) {
	for i, copied := range p.copies {
		switch copied {
		case kept:
		case duplicate:
			c.Leave(&p.Trace.Spans[i], trace.Duplicate)
		case conflict:
			c.Leave(&p.Trace.Spans[i], trace.Conflict)
		}
	}
	if !p.tracepoints {
		return
	}
	next := int32(0)
	for i := range p.Roots { // in the order of their nodes
		p.leaveOutside(c, next, p.Roots[i].First)
		next = p.Roots[i].Last
	}
	p.leaveOutside(c, next, int32(len(p.Nodes)))
}

func (p *Path) leaveOutside(c *trace.Coverage, first, last int32) {
	for i := first; i < last; i++ {
		c.Leave(p.Span(i), trace.Outside)
	}
}
