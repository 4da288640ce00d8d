package history

import "github.com/sibyl-trace/sibyl/trace"

// renaming is the maximum overlap between the calls of a service and the calls of its successor. They overlap because
// instances are replaced one by one.
const renaming = 30 * SlicesPerMinute

// leastTaken is the minimum fraction of the operations of a service, weighted by calls, that its successor must have.
const leastTaken = 0.5

// entrance is an operation where other services, or requests from outside, enter a service.
type entrance struct {
	caller int32 // number of the service, 0 for outside
	name   trace.Symbol
	kind   trace.Kind
}

// Successor returns the service that has taken over the calls of service `of`, which no longer has calls at time now.
// The successor is a new service with most of the operations and the same callers. Successor returns 0 if there is no
// such service.
func (h *Sites) Successor(of trace.Symbol, now trace.Nanos) trace.Symbol {
	old := h.Services.Number(of)
	calls, all, last := make(map[entrance]uint64), uint64(0), Slice(-1)
	for i := range h.sites {
		if e, ok := h.entrance(i); ok && h.sites[i].Service == old {
			n := h.series[i].Unpack(nil).Calls()
			calls[e], all, last = calls[e]+n, all+n, max(last, h.series[i].Last())
		}
	}
	if all == 0 || last >= SliceOf(now)-SlicesPerMinute {
		return 0
	}
	taken := make([]uint64, len(h.Services.names)) // by service: calls of the old service at operations that both have
	found := make(map[int32]map[entrance]bool)
	for i := range h.sites {
		e, ok := h.entrance(i)
		s := h.sites[i].Service
		if !ok || s == old || calls[e] == 0 || h.series[i].First() < last-renaming ||
			h.series[i].Last() <= last || found[s][e] {
			continue
		}
		if found[s] == nil {
			found[s] = make(map[entrance]bool)
		}
		found[s][e] = true
		taken[s] += calls[e]
	}
	best := 0
	for s := range taken {
		if taken[s] > taken[best] {
			best = s
		}
	}
	if float64(taken[best]) < leastTaken*float64(all) {
		return 0
	}
	return h.Services.names[best]
}

// entrance returns the entrance at site `site`. ok is false if the site is not an entrance.
func (h *Sites) entrance(site int) (e entrance, ok bool) {
	s := &h.sites[site]
	if site == Overflow || s.Client || s.Border {
		return entrance{}, false
	}
	if s.Parent != 0 {
		e.caller = h.Services.Number(h.table.Operation(s.Parent).Service)
	}
	o := h.table.Operation(s.Op)
	e.name, e.kind = o.Name, o.Kind
	return e, e.caller != s.Service
}
