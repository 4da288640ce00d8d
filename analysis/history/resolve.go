package history

import (
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// numbersOf returns the numbers of the sites of a tally, and tells of which the answers got lost. Calls with
// spans below a missing one come last, so that all services that emit spans are known.
func (h *Sites) numbersOf(t *Tally) (numbers []int32, lost []bool) {
	numbers, lost = make([]int32, len(t.sites)), make([]bool, len(t.sites))
	sites := make([]tallySite, len(t.sites))
	for _, missing := range []bool{false, true} {
		var added []int32
		r := resolver{Sites: h}
		for i := range t.sites {
			if t.sites[i].reached != 0 != missing {
				continue
			}
			sites[i], lost[i] = r.resolve(&t.sites[i])
			number, known := h.numbers[sites[i].SiteKey]
			if !known {
				added = append(added, int32(i))
			}
			numbers[i] = number
		}
		slices.SortFunc(added, func(a, b int32) int { return sites[a].Compare(sites[b].SiteKey) })
		for _, i := range added {
			numbers[i] = h.admit(&sites[i])
		}
	}
	return numbers, lost
}

// resolver tells by the history who should have answered the calls of a tally.
type resolver struct {
	*Sites
	answering map[trace.Op][]int32 // numbers of the services that answer an operation themselves; nil: not yet known
}

// resolve returns a site of a tally with the service at the address of its calls as its target, if that is known. The
// part or operation that the calls name stays.
//
// Spans from below a missing one show a hop or a service that emits none. If the service that the calls name or,
// without a name, one that usually answers them emits spans, these got lost: the site is that of calls without an
// answer.
func (r *resolver) resolve(s *tallySite) (out tallySite, lost bool) {
	out = *s
	out.address, out.reached = 0, 0
	service, named := r.addresses.service(s.address), s.target
	if s.reached != 0 {
		if lost = r.lost(s, service); lost {
			r.table.Step(s.base, s.target) // remains the caller of what it reached
			out.target, out.Op, named = s.named, s.base.To(s.named), s.named
		} else if s.target != s.named {
			return out, false // a hop: what is behind it answers
		}
	}
	if service != 0 {
		out.target = r.table.Op(service, r.table.Operation(named).Name, trace.External)
		out.Op = out.base.To(out.target)
	}
	return out, lost
}

// lost reports whether a service that emits spans should have answered calls with spans below a missing one. at is the
// service at their address; 0: unknown.
func (r *resolver) lost(s *tallySite, at trace.Symbol) bool {
	reached := r.table.Operation(s.reached).Service
	if at == 0 {
		at = r.table.Operation(s.named).Service
	}
	if at != 0 {
		number := r.emitter(at)
		return number != 0 && r.names[number] != reached
	}
	return slices.ContainsFunc(r.answeringTo(s.base), func(service int32) bool {
		return r.calls[servicePair{service, r.serviceNumbers[reached]}]
	})
}

// answeringTo returns the numbers of the services that answer the calls of an operation themselves.
func (r *resolver) answeringTo(base trace.Op) []int32 {
	if r.answering == nil {
		r.answering = make(map[trace.Op][]int32)
		for i, t := range r.targets {
			s := &r.sites[i]
			if t.service != 0 && !t.external && !s.Border && !slices.Contains(r.answering[s.Base], t.service) {
				r.answering[s.Base] = append(r.answering[s.Base], t.service)
			}
		}
	}
	return r.answering[base]
}

// loseAnswers makes the calls of c, with spans below a missing one, calls without an answer.
func (c *tallyCell) loseAnswers() {
	shapes := c.shapes
	c.shapes = nil
	for _, x := range shapes {
		lost := Shape{Hash: Leaf, Failed: x.Failed}
		if x.Failed {
			lost.Hash = FailedLeaf
		}
		c.count(lost, x.calls)
	}
}
