package engine

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/search"
)

// armTimes returns the durations of the requests of every problem by arm of the current plan. The search estimates the
// overhead of tracepoints from them.
func (c *Core) armTimes() []search.ArmTimes {
	var times []search.ArmTimes
	current := c.plans[len(c.plans)-1].arms
	for i := range c.problems {
		p := &c.problems[i]
		r := c.refinements[p.Group]
		if r == nil || len(current) == 0 {
			continue
		}
		times = append(times, bareTimes(p.ID, r.bare))
		seen := make(map[uint64]bool)
		for k := range current {
			a := &current[k]
			if x := r.bySet[a.set]; x != nil && !seen[a.set] {
				seen[a.set] = true
				n, mean, variance := x.Durations()
				times = append(times, search.ArmTimes{Problem: p.ID, Arm: a.name, On: len(a.on), N: n, Mean: mean, Variance: variance})
			}
		}
	}
	return times
}

func bareTimes(problem analysis.Hash, m stats.Moments) search.ArmTimes {
	return search.ArmTimes{Problem: problem, N: m.N, Mean: m.Mean(), Variance: m.Variance()}
}
