package history

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// target is the callee of a site, as named by its step.
type target struct {
	step     trace.Op // the target of the step, or 0
	service  int32    // number of the service, or 0
	op       trace.Op
	external bool // whether only attributes name it
	knownTarget
}

// knownTarget is the part of the knowledge about a target that survives restarts and renumbering.
type knownTarget struct {
	direct                 bool // whether it has answered calls itself, not only behind a hop without spans
	settled, settledDirect bool // whether the site, and the value of direct, were known at the end of the last epoch
}

func (h *Sites) targetOf(s *tallySite) target {
	called := s.target
	if s.Border {
		called = s.Op
	}
	if !s.client || called == 0 {
		return target{step: s.target}
	}
	o := h.table.Operation(called)
	if o.Service == 0 {
		return target{step: s.target}
	}
	return target{
		step:     s.target,
		service:  h.Services.add(o.Service),
		op:       called,
		external: o.Kind == trace.External,
	}
}

// Callees returns the usual callee of the CLIENT spans of each site, by the number of the site, reusing memory. The
// callee is the target of the step. If the step has no target, it is the target of the most frequent step of the same
// operation. The service of the callee is 0 if unknown. opaque marks the services without spans, by their number.
func (h *Sites) Callees(memory []Callee) (callees []Callee, opaque []bool) {
	service, opaque := h.Services.resolve(h.table)
	callees = scratch.Filled(memory, len(h.sites), Callee{})
	type usual struct {
		target target
		calls  uint64
	}
	best := make(map[SiteKey]usual)
	keyOf := func(i int, anyCaller bool) SiteKey {
		k := SiteKey{Op: h.sites[i].Base, Parent: h.sites[i].Parent}
		if anyCaller {
			k.Parent = ^trace.Op(0)
		}
		return k
	}
	needed := make(map[SiteKey]bool) // of sites without a target
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].Client && h.targets[i].service == 0 {
			needed[keyOf(i, false)], needed[keyOf(i, true)] = true, true
		}
	}
	for i := 1; i < len(h.sites) && len(needed) > 0; i++ {
		if t := h.targets[i]; t.service != 0 && !h.sites[i].Border {
			calls := uint64(0)
			for _, wide := range []bool{false, true} {
				k := keyOf(i, wide)
				if !needed[k] {
					continue
				}
				if calls == 0 {
					calls = h.series[i].Calls
				}
				if b, ok := best[k]; !ok || cmp.Or(cmp.Compare(calls, b.calls), cmp.Compare(b.target.op, t.op)) > 0 {
					best[k] = usual{t, calls}
				}
			}
		}
	}
	for i := 1; i < len(h.sites); i++ {
		if !h.sites[i].Client {
			continue
		}
		t := h.targets[i]
		for _, wide := range []bool{false, true} {
			if t.service == 0 {
				t = best[keyOf(i, wide)].target
			}
		}
		if t.service == 0 {
			continue
		}
		if t.external {
			t.op = h.sites[i].Op
		}
		callees[i] = Callee{service[t.service], t.op}
	}
	return callees, opaque
}
