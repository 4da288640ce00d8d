package engine

import (
	"cmp"
	"iter"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// defaultNamesAge is the default of Options.NamesAge.
const defaultNamesAge = 24 * time.Hour

// RenewNames starts a new period of the name table at time now. Names that arrive from then on must be added to the
// table again. Every Options.NamesAge, or whenever little room is left, RenewNames also deletes the names that did not
// arrive in the last two periods, and returns their number. It keeps names that are mentioned by the state, by a kept
// request or by parts, which yields pieces of other encoded state. If parts yields an error, it deletes nothing and
// returns that error.
//
// Deleted names don't change the state of the core, because the state only includes the names that it mentions.
func (c *Core) RenewNames(now trace.Nanos, parts iter.Seq2[[]byte, error]) (deleted int, err error) {
	if c.table.Crowded() || now.Sub(c.forgotten) >= cmp.Or(c.options.NamesAge, defaultNamesAge) && c.forgotten != 0 {
		deleted, err = c.table.Forget(func(yield func([]byte, error) bool) {
			if yield(c.appendStatistics(nil), nil) && yield(c.kept.appendNames(nil), nil) {
				parts(yield)
			}
		})
		c.detector.Groups.NamesForgotten()
		if c.learning.preview != nil {
			c.learning.preview.Groups.NamesForgotten()
		}
		c.forgotten = now
	}
	if c.forgotten == 0 {
		c.forgotten = now
	}
	c.table.Renew()
	return deleted, err
}
