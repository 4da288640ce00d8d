package engine

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/search"
)

// armTimes returns how long the requests of every problem took, by arm of the present plan: the search tells from it what the
// instrumentation itself costs.
func (c *Core) armTimes() []search.ArmTimes {
	var times []search.ArmTimes
	present := c.plans[len(c.plans)-1].arms
	for i := range c.problems {
		p := &c.problems[i]
		r := c.refinements[p.Group]
		if r == nil || len(present) == 0 {
			continue
		}
		times = append(times, bareTimes(p.ID, r.bare))
		seen := make(map[uint64]bool)
		for k := range present {
			a := &present[k]
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
