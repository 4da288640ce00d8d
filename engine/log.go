package engine

import (
	"cmp"
	"strconv"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// actionLog collects the actions that people have taken since the last epoch, for the decision log.
type actionLog []string

// add adds an action to the log; an empty `by` means "a person".
func (l *actionLog) add(by, did string) { *l = append(*l, cmp.Or(by, "a person")+" "+did) }

// addOverride adds an action on tracepoint to the log.
func (l *actionLog) addOverride(by, verb, tracepoint string) {
	l.add(by, verb+" "+strconv.Quote(tracepoint))
}

// take removes and returns the entries.
func (l *actionLog) take() []string {
	entries := *l
	*l = nil
	return entries
}

// decisions removes the actions from the log and returns them as decisions under the given version of the plan.
func (l *actionLog) decisions(now trace.Nanos, plan int64, o *Options) (list []search.Decision) {
	for _, entry := range l.take() {
		list = append(list, search.Decision{
			At:       now,
			Plan:     plan,
			Strategy: o.Strategy,
			Budget:   o.Budget,
			Reason:   entry,
		})
	}
	return list
}

// save implements section.
func (l *actionLog) save(s *savedCore) { s.Heard.Said = *l }

// restore implements section.
func (l *actionLog) restore(s *savedCore) error {
	*l = s.Heard.Said
	return nil
}
