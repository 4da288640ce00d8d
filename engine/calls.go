package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

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
	c := calls{compare.NewComparer(sites), history.NewTally()}
	c.Spread = spread
	return c
}

// spread calls do for each i in [0, n) on all CPUs, and returns when all calls have returned.
func spread(n int, do func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	var others sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}

// flush merges the calls of the current epoch into the history.
func (c *calls) flush() {
	c.Merge(c.tally)
	c.tally = history.NewTally()
}

// healthy reports whether spans of op in [from, to) may enter the history, that is, whether no incident affects op's
// service during that time.
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
		sites.Limit = c.Limit
		*c = newCalls(sites)
	}
	return err
}
