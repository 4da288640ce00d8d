package engine

import (
	"cmp"
	"iter"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// defaultNamesAge is the default of Options.NamesAge.
const defaultNamesAge = 24 * time.Hour

// RenewNames begins a period of the dictionary of names at time now: all names that arrive from now on must be added to
// the table again. After Options.NamesAge, and if there is little room left, it deletes those that did not arrive in
// the last two periods and that neither the state, nor a kept request, nor one of the parts of other encoded state
// mentions. It returns the number of deleted names. If a part has an error, it deletes none and returns the error.
//
// The state of the core does not depend on the names that it forgets: it encodes those that it mentions.
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
