package compare

import (
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// ResolvedNames maps the names in a recording to services.
type ResolvedNames struct {
	rec     *Recording
	Service []int32 // by number of a name: the service with this name, or the service that the address refers to
	Opaque  []bool  // by number of the service: whether it emits no spans
}

// ResolveNames maps names in attributes of CLIENT spans to services that emit spans: a service with the same name or,
// if the name is an address, one named like its first label, e.g. cart for cart.default.svc:7070.
func ResolveNames(r *Recording) ResolvedNames {
	h := ResolvedNames{rec: r, Service: make([]int32, len(r.Names)), Opaque: make([]bool, len(r.Names))}
	for i := range r.Names {
		h.Service[i], h.Opaque[i] = int32(i), true
	}
	for i := 1; i < len(r.Sites); i++ {
		h.Opaque[r.Sites[i].Service] = false
	}
	for i, name := range r.Names {
		if !h.Opaque[i] {
			continue
		}
		text := r.Table.Text(name)
		if end := strings.IndexAny(text, ".:"); end > 0 {
			if k, ok := r.ServiceNumbers[trace.SymbolOf([]byte(text[:end]))]; ok && !h.Opaque[k] {
				h.Service[i] = k
			}
		}
	}
	return h
}

// Peer returns the number of the service that the attributes of s name, or 0 if they name no service that emits spans.
func (h *ResolvedNames) Peer(s *history.Site) int32 {
	if s.Peer == 0 {
		return 0
	}
	if service := h.Service[h.rec.Callees[s.Peer].Service]; !h.Opaque[service] {
		return service
	}
	return 0
}
