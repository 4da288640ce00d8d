package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Learned reports whether the learning period is over. During it there are no problems.
func (c *Core) Learned() bool { return c.learning.over }

// Grouper returns the groups, for reading. During the learning period they are provisional: each entry operation is one
// request type.
func (c *Core) Grouper() *group.Grouper {
	if !c.learning.over {
		return c.learning.preview.Groups
	}
	return c.detector.Groups
}

// Table returns the dictionary, for reading. Only the owner of the core may add to it, between calls of its methods.
func (c *Core) Table() *trace.Table { return c.table }
