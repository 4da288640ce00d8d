package sim

import "github.com/sibyl-trace/sibyl/trace"

// open emits a span of p that starts at t, and returns its index, or parent if r is silent.
func (r *executor) open(p *point, seed uint64, t int64, parent, host int32) int32 {
	if r.silent {
		return parent
	}
	s := trace.Span{
		ID: trace.SpanID(max(seed, 1)), Start: trace.Nanos(t), Op: p.op, Service: r.services[p.service].sym,
		Host: r.hosts[host].sym, Kind: p.kind,
	}
	if parent >= 0 {
		s.Parent = r.trace.Spans[parent].ID
	}
	if !p.baseline {
		s.Tracepoint = p.id
	}
	r.trace.Spans = append(r.trace.Spans, s)
	r.spanHosts = append(r.spanHosts, host)
	return int32(len(r.trace.Spans) - 1)
}

// describe adds the attributes of an entry span, and returns the index of the status attribute.
func (r *executor) describe(p *point, span, host int32) int {
	h := &r.hosts[host]
	y := &r.symbols
	r.trace.Attrs = append(r.trace.Attrs,
		trace.Attr{Key: y.hostName, Text: h.sym, Span: span},
		trace.Attr{Key: y.version, Text: h.version, Span: span})
	if !r.config.CalleeNames {
		r.trace.Attrs = append(r.trace.Attrs,
			trace.Attr{Key: y.instance, Text: h.id, Span: span},
			trace.Attr{Key: y.pod, Text: h.pod, Span: span})
	}
	if r.seen[p.service] != r.number {
		r.seen[p.service] = r.number
		r.trace.Attrs = append(r.trace.Attrs,
			trace.Attr{Key: y.plan, Number: float64(r.version), Numeric: true, Span: span})
		if r.arm != 0 {
			r.trace.Attrs = append(r.trace.Attrs, trace.Attr{Key: y.arm, Text: r.arm, Span: span})
		}
	}
	r.trace.Attrs = append(r.trace.Attrs, trace.Attr{Key: y.status, Number: 200, Numeric: true, Span: span})
	return len(r.trace.Attrs) - 1
}

// describeCall adds the attributes of a CLIENT or PRODUCER span of p. replica is the called host, or -1 if the callee
// has no replicas.
func (r *executor) describeCall(p *point, span, replica int32) {
	if p.callee < 0 || r.silent {
		return
	}
	c := &r.calls[p.callee]
	first := len(r.trace.Attrs)
	r.trace.Attrs = append(r.trace.Attrs, c.attrs...)
	k := int32(0)
	if replica >= 0 {
		k = replica - r.services[r.points[r.rpcs[p.rpc].callee].service].hosts.first
	}
	r.trace.Spans[span].Peer = c.peers[k]
	if len(c.replicas) > 0 {
		r.trace.Attrs = append(r.trace.Attrs, c.replicas[k][:]...)
	}
	for i := first; i < len(r.trace.Attrs); i++ {
		r.trace.Attrs[i].Span = span
	}
}

// capture adds the values of captured variables to a span. It adds nothing if span is negative. It returns the time at
// which capturing ends.
func (r *executor) capture(variables span32, t int64, span int32, hit bool) int64 {
	for i := variables.first; i < variables.end; i++ {
		r.executedVariable[i] = true
		if !r.captured[i] {
			continue
		}
		v := &r.variables[i]
		t += r.cost(v.cost)
		if span < 0 {
			continue
		}
		a := trace.Attr{Key: v.key, Span: span}
		switch v.kind {
		case tenantVariable:
			a.Text = r.tenant
		case regionVariable:
			a.Text = r.region
		case sizeVariable:
			a.Number, a.Numeric = float64(int64(r.size*meanPayload)), true
		case hitVariable:
			a.Text = r.symbols.no
			if hit {
				a.Text = r.symbols.yes
			}
		case noiseVariable:
			a.Text = r.symbols.noise[mix(r.seed, v.noise)%uint64(len(r.symbols.noise))]
		}
		r.trace.Attrs = append(r.trace.Attrs, a)
	}
	return t
}

// meanPayload is the mean size of a payload in bytes.
const meanPayload = 8192

// cost returns the time that a hit with a nominal cost of ns takes.
func (r *executor) cost(ns int64) int64 { return int64(float64(ns) * r.config.Overhead) }
