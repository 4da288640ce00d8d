package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/search"
)

// armTimes returns the durations of the requests of every problem by arm of the current plan. The search estimates the
// overhead of tracepoints from them.
func (c *Core) armTimes() []search.ArmTimes {
	var times []search.ArmTimes
	if len(c.plans.current()) == 0 {
		return nil
	}
	for i := range c.problems {
		if r := c.refinements[c.problems[i].Group]; r != nil {
			times = append(times, r.armTimes(search.OfProblem(c.problems[i].ID), c.plans.current())...)
		}
	}
	for _, s := range c.searches.list {
		times = append(times, s.armTimes(s.subject(), c.plans.current())...)
	}
	return times
}

// armTimes returns the durations of the requests of a subject by arm.
func (r *refinements) armTimes(subject search.Subject, arms []arm) []search.ArmTimes {
	times := []search.ArmTimes{bareTimes(subject, r.bare)}
	seen := make(map[uint64]bool)
	for k := range arms {
		a := &arms[k]
		if x := r.bySet[a.set]; x != nil && !seen[a.set] {
			seen[a.set] = true
			n, mean, variance := x.Durations()
			times = append(times, search.ArmTimes{Subject: subject, Arm: a.name, On: len(a.on), N: n, Mean: mean, Variance: variance})
		}
	}
	return times
}

func bareTimes(subject search.Subject, m stats.Moments) search.ArmTimes {
	return search.ArmTimes{Subject: subject, N: m.N, Mean: m.Mean(), Variance: m.Variance()}
}
