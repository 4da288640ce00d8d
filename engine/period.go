package engine

import (
	"iter"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// EndedPeriod returns the period of [group.Period] that has ended if an epoch ends at now, and its requests by group.
// Call it before [Core.Epoch], which joins them with others. It returns false if the period goes on, and while c is
// learning, when groups are provisional. The values are valid until the next; they are a function of the state of c.
func (c *Core) EndedPeriod(now trace.Nanos) (from trace.Nanos, all iter.Seq2[analysis.Hash, *group.Past], ended bool) {
	last := c.Ended()
	if last == 0 || !c.learning.over {
		return 0, nil, false
	}
	if from = group.PeriodOf(last); group.PeriodOf(now) <= from {
		return 0, nil, false
	}
	return from, func(yield func(analysis.Hash, *group.Past) bool) {
		var p group.Past
		for g := range c.detector.Groups.Each() {
			if g.InPeriod(from, &p); p.Total.N > 0 && !yield(g.ID, &p) {
				return
			}
		}
	}, true
}
