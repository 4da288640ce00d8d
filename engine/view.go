package engine

import (
	"iter"
	"math"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Ended returns when the last epoch ended; 0: none did.
func (c *Core) Ended() trace.Nanos { return c.Grouper().Closed() }

// Options returns how c works.
func (c *Core) Options() Options { return c.options }

// Spans returns how long spans took lately, for reading.
func (c *Core) Spans() *observation.RecentSpans { return &c.spans }

// Progress returns how much of the learning period is over, 0–1; NaN before the first request.
func (c *Core) Progress() float64 {
	switch {
	case c.learned:
		return 1
	case c.began == 0:
		return math.NaN()
	}
	return min(1, max(0, c.Ended().Sub(c.began).Seconds()/c.options.Learning.Seconds()))
}

// Catalogue returns the tracepoints that agents announced. The slice is the core's own.
func (c *Core) Catalogue() []cct.Tracepoint { return c.catalogue }

// Services returns the services whose agents announced tracepoints, in any order.
func (c *Core) Services() []string {
	var names []string
	for service := range c.heard.services {
		names = append(names, c.table.Text(service))
	}
	return names
}

// Measured returns what agents measured of the plan that was on when they did; zero: nothing yet.
func (c *Core) Measured() search.Measured { return c.heard.measured }

// Trees yields the calling-context trees by request type, in any order, as they were last built: those that nobody needed yet are left
// out.
func (c *Core) Trees() iter.Seq2[analysis.Hash, *cct.Tree] {
	return func(yield func(analysis.Hash, *cct.Tree) bool) {
		for id, t := range c.trees {
			if t.built != nil && !yield(id, t.built) {
				return
			}
		}
	}
}

// BuiltTree returns the calling-context tree of a request type as it was last built, nil if it was not yet, and whether there is one to
// build.
func (c *Core) BuiltTree(requestType analysis.Hash) (built *cct.Tree, some bool) {
	t := c.trees[requestType]
	if t == nil {
		return nil, false
	}
	return t.built, true
}

// Rate returns the requests per second of a type, over the window that is judged; 0 if it is not known.
func (c *Core) Rate(requestType analysis.Hash) float64 {
	g := c.detector.Groups.Group(requestType)
	if g == nil {
		return 0
	}
	return g.Rate()
}
