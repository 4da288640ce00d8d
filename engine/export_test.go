package engine

import "github.com/sibyl-trace/sibyl/analysis"

// Splits returns the variables by which groups are split.
func (c *Core) Splits() []*analysis.Split { return c.splitter.splits.All() }
