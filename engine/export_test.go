package engine

import "github.com/sibyl-trace/sibyl/search"

// Versions returns the number of known versions of services.
func Versions(c *Core) int { return len(c.versions.known) }

// ArmTimes returns the request durations of every problem by arm of the current plan.
func ArmTimes(c *Core) []search.ArmTimes { return c.searches.armTimes() }

// PairStatistics returns the number of groups with pair statistics.
func PairStatistics(c *Core) int {
	n := 0
	for _, r := range c.problems.refinements {
		if r.pairs != nil {
			n++
		}
	}
	return n
}
