package history

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/trace"
)

// answerers records which services answer calls, as known at the end of the last epoch. It does not change during an
// epoch, so that the order of the tallies of an epoch doesn't matter.
type answerers struct {
	emit  map[trace.Symbol]bool       // services that emit spans
	of    map[trace.Op][]trace.Symbol // services that answer the calls of an operation themselves
	calls map[[2]trace.Symbol]bool    // caller and callee
}

// settle ends an epoch: the current knowledge about targets applies from the next epoch on.
func (h *Sites) settle() {
	for i := 1; i < len(h.targets); i++ {
		if t := &h.targets[i]; !t.settled || t.direct != t.settledDirect {
			t.settled, t.settledDirect, h.answerers = true, t.direct, nil
		}
	}
}

// known returns the answerers. It caches them until they change.
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
// address of its calls is known, that service becomes the target of the site, with the part or operation that the calls
// name.
//
// Spans below a missing span are a sign of a hop, or of a service, without spans. But if the service that should have
// answered emits spans, its spans were lost: the calls then count at the site for calls without an answer.
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
// missing one, and returns that service. It is the service that the calls name, or else the service that answers at
// their address. If the calls name no service, it is the only service that answers such calls and calls the service
// that was reached, or 0 if there are several.
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

// loseAnswers turns the calls of c, which have spans below a missing one, into unanswered calls.
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
