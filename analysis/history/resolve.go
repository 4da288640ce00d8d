package history

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/trace"
)

// answerers describes the services that answer calls, as a history knew them at the end of the last epoch: the order of
// the tallies of an epoch must not matter.
type answerers struct {
	emit  map[trace.Symbol]bool       // services that emit spans
	of    map[trace.Op][]trace.Symbol // services that answer the calls of an operation themselves
	calls map[[2]trace.Symbol]bool    // caller and callee
}

// settle ends an epoch: the present knowledge counts from the next one on.
func (h *Sites) settle() {
	for i := 1; i < len(h.targets); i++ {
		if t := &h.targets[i]; !t.settled || t.direct != t.settledDirect {
			t.settled, t.settledDirect, h.answerers = true, t.direct, nil
		}
	}
}

// known returns the answerers, and caches them until the knowledge changes.
func (h *Sites) known() *answerers {
	if h.answerers != nil {
		return h.answerers
	}
	k := &answerers{
		emit:  make(map[trace.Symbol]bool),
		of:    make(map[trace.Op][]trace.Symbol),
		calls: make(map[[2]trace.Symbol]bool),
	}
	for i := 1; i < len(h.sites); i++ {
		s, t := &h.sites[i], &h.targets[i]
		if !t.settled {
			continue
		}
		k.emit[h.Services.names[s.Service]] = true
		if t.service == 0 {
			continue
		}
		called := h.Services.names[t.service]
		k.calls[[2]trace.Symbol{h.Services.names[s.Service], called}] = true
		if t.settledDirect && !s.Border && !slices.Contains(k.of[s.Base], called) {
			k.of[s.Base] = append(k.of[s.Base], called)
		}
	}
	h.answerers = k
	return k
}

// resolved returns the site of the history for s, and whether the answers to its calls were lost. If the service at the
// address of its calls is known, it becomes the site's target. The part or operation that the calls name stays.
//
// Spans from below a missing one are a sign of a hop, or of a service, without spans. But if the service that should
// have answered emits spans, its spans were lost: the site is the site of calls without an answer.
func (h *Sites) resolved(s *tallySite) (out tallySite, lost bool) {
	out = *s
	out.address, out.reached = 0, 0
	service, named := h.addresses.service(s.address), s.target
	if s.reached != 0 {
		var by trace.Symbol
		if by, lost = h.known().lostBy(s, &h.addresses, h.table); lost {
			h.table.Step(s.base, s.target) // remains the caller of the operation that it reached
			service, named = by, s.named
			out.target, out.Op = named, s.base.To(named)
		} else if s.target != s.named {
			return out, false // a hop: the service behind it answers
		}
	}
	if service != 0 {
		out.target = h.table.Op(service, h.table.Operation(named).Name, trace.External)
		out.Op = out.base.To(out.target)
	}
	return out, lost
}

// lostBy reports whether a service that emits spans should have answered the calls of s, which have spans below a
// missing one, and returns the service. It is the service that the calls name or that answers at their address. If they
// have no name, it is the only service that answers such calls and makes the calls that arrived, or 0 if there are
// several.
func (k *answerers) lostBy(s *tallySite, at *addresses, table *trace.Table) (by trace.Symbol, lost bool) {
	reached, named := table.Operation(s.reached).Service, table.Operation(s.named).Service
	if by = emitterOf(named, table, func(service trace.Symbol) bool { return k.emit[service] }); by == 0 {
		by = at.direct(s.address)
	}
	if by != 0 {
		return by, by != reached
	}
	if named != 0 && !strings.HasPrefix(table.Text(named), "{ip}") || slices.Contains(k.of[s.base], reached) {
		return 0, false
	}
	for _, x := range k.of[s.base] {
		if k.calls[[2]trace.Symbol{x, reached}] {
			if lost {
				return 0, true
			}
			by, lost = x, true
		}
	}
	return by, lost
}

// loseAnswers turns the calls of c, which have spans below a missing one, into calls without an answer.
func (c *tallyCell) loseAnswers() {
	shapes := c.shapes
	c.shapes = nil
	for _, x := range shapes {
		lost := Shape{Hash: callgraph.Leaf, Failed: x.Failed}
		if x.Failed {
			lost.Hash = callgraph.FailedLeaf
		}
		c.count(lost, x.calls)
	}
}
