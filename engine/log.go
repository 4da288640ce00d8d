package engine

import (
	"cmp"
	"strconv"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// actionLog has the actions of people since the last epoch, for the log of decisions.
type actionLog []string

// add adds an action.
func (l *actionLog) add(by, did string) { *l = append(*l, cmp.Or(by, "a person")+" "+did) }

// addOverride adds an action about a tracepoint.
func (l *actionLog) addOverride(by, verb, tracepoint string) {
	l.add(by, verb+" "+strconv.Quote(tracepoint))
}

// take returns the entries and removes them.
func (l *actionLog) take() []string {
	entries := *l
	*l = nil
	return entries
}

// logged returns the actions of people since the last epoch as decisions.
func (c *Core) logged(now trace.Nanos) []search.Decision {
	var list []search.Decision
	for _, entry := range c.log.take() {
		list = append(list, search.Decision{
			At:       now,
			Plan:     c.state.Plan.Version,
			Strategy: c.options.Strategy,
			Budget:   c.options.Budget,
			Reason:   entry,
		})
	}
	return list
}
