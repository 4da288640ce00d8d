package engine

import (
	"cmp"
	"iter"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// defaultNamesAge is the default of Options.NamesAge.
const defaultNamesAge = 24 * time.Hour

// RenewNames starts a new period of the table of names at time now. From then on, names that arrive must be added to
// the table again. Every Options.NamesAge, or if little room is left, it deletes names that did not arrive in the last
// two periods. It keeps names mentioned by the state, by a kept request, or by one of parts, the pieces of other
// encoded state. It returns the number of deleted names. If a part has an error, it deletes nothing and returns the
// error.
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
