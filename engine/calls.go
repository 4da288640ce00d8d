package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// calls is the history of calls used to detect incidents, plus the calls of the current epoch.
type calls struct {
	*compare.Comparer
	tally *history.Tally // traces ingested in this epoch
}

func newCalls(sites *history.Sites) calls {
	return calls{compare.NewComparer(sites), history.NewTally()}
}

// flush merges the calls of the current epoch into the history.
func (c *calls) flush() {
	c.Merge(c.tally)
	c.tally = history.NewTally()
}

// healthy reports whether the history takes spans of op in [from, to), that is, whether no incident affects op's
// service then.
func (c *calls) healthy(op trace.Op, from, to trace.Nanos) bool {
	return !c.Skipped.Overlaps(c.Table().Operation(op).Service, history.Interval{From: from, To: to})
}

// save implements section.
func (c *calls) save(s *savedCore) {
	c.flush()
	s.Sites = c.AppendBinary(nil)
}

// restore implements section.
func (c *calls) restore(s *savedCore) error {
	sites, err := history.DecodeSites(s.Sites, c.Table())
	if err == nil {
		*c = newCalls(sites)
	}
	return err
}
