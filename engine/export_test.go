package engine

import "github.com/sibyl-trace/sibyl/search"

// Versions returns the number of known versions of services.
func (c *Core) Versions() int { return len(c.versions.known) }

// ArmTimes returns the durations of the requests of every problem by arm of the current plan.
func (c *Core) ArmTimes() []search.ArmTimes { return c.armTimes() }

// PairStatistics returns the number of groups with pair statistics.
func (c *Core) PairStatistics() int {
	n := 0
	for _, r := range c.refinements {
		if r.pairs != nil {
			n++
		}
	}
	return n
}
