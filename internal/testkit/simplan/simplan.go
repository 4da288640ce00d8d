// Package simplan converts plans of the search to plans of simulated applications. Package sim itself does not know the
// search.
package simplan

import (
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Of converts p for a simulated application.
func Of(p *search.Plan) *sim.Plan {
	plan := &sim.Plan{Version: p.Version}
	for i, a := range p.Arms {
		arm := sim.Arm{Name: a.Name, Share: a.Share, On: make(map[trace.Symbol]bool)}
		for _, l := range p.Leases {
			if int(l.Arm) == i {
				arm.On[l.Tracepoint] = true
			}
		}
		plan.Arms = append(plan.Arms, arm)
	}
	return plan
}
