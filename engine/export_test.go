package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/search"
)

// Splits returns the variables by which groups are split.
func (c *Core) Splits() []*explain.Split { return c.splitter.Splits.All() }

// Versions returns how many versions of services are known.
func (c *Core) Versions() int { return len(c.versions.known) }

// ArmTimes returns how long the requests of every problem took, by arm of the present plan.
func (c *Core) ArmTimes() []search.ArmTimes { return c.armTimes() }

// PairStatistics returns how many groups with an open problem have pair statistics.
func (c *Core) PairStatistics() int {
	n := 0
	for _, r := range c.refinements {
		if r.pairs != nil {
			n++
		}
	}
	return n
}
