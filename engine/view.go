package engine

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Ended returns the end of the last epoch; 0 if none ended yet.
func (c *Core) Ended() trace.Nanos { return c.Grouper().Closed() }

// Options returns the options of c, with the current settings.
func (c *Core) Options() Options { return c.options }

// Spans returns the recent durations of spans, for reading.
func (c *Core) Spans() *observation.RecentSpans { return &c.spans }

// Progress returns the elapsed fraction of the learning period, 0–1; NaN before the first request.
func (c *Core) Progress() float64 {
	switch {
	case c.learning.over:
		return 1
	case c.learning.began == 0:
		return math.NaN()
	}
	return min(1, max(0, c.learning.elapsed(c.Ended(), c.sites.Sites).Seconds()/c.options.Learning.Seconds()))
}

// LearningLeft returns how long requests must go on until the learning period ends; 0 after it.
func (c *Core) LearningLeft() time.Duration {
	if c.learning.over {
		return 0
	}
	return max(0, c.options.Learning-c.learning.elapsed(c.Ended(), c.sites.Sites))
}

// SilenceLeft returns how long requests must go on until those that stop are noticed; 0 if they are, and before the
// first request. A recorded past that arrived at once counts.
func (c *Core) SilenceLeft() time.Duration {
	since := c.sites.Since()
	if since == 0 {
		return 0
	}
	return max(0, incident.SilenceAfter-c.Ended().Sub(since))
}

// OperationsLeft returns how long requests must go on until single operations are judged; 0 if they are, and before the
// first request.
func (c *Core) OperationsLeft() time.Duration { return c.knownLeft(incident.OperationsAfter) }

// GrowthLeft is like [Core.OperationsLeft] for changes that take days.
func (c *Core) GrowthLeft() time.Duration { return c.knownLeft(incident.GrowthAfter) }

// Provisional returns, while changes that take days are not judged yet, the instances that are unlike their siblings
// for as long as the history reaches: Sibyl may have been started within an incident.
func (c *Core) Provisional() []compare.UnequalInstance {
	if c.GrowthLeft() == 0 {
		return nil
	}
	return compare.Unequal(c.sites.Sites, c.Ended())
}

func (c *Core) knownLeft(after time.Duration) time.Duration {
	if c.learning.began == 0 {
		return 0
	}
	return max(0, after-c.Ended().Sub(c.learning.began))
}

// Catalogue returns the tracepoints that agents announced. The slice belongs to the core.
func (c *Core) Catalogue() []cct.Tracepoint { return c.offers.catalogue }

// Services returns the services whose agents announced tracepoints, in any order.
func (c *Core) Services() []string {
	var names []string
	for service := range c.offers.services {
		names = append(names, c.table.Text(service))
	}
	return names
}

// Measured returns the latest measurement of agents; zero if there is none.
func (c *Core) Measured() search.Measured { return c.offers.measured }

// Trees returns the calling-context trees, for reading.
func (c *Core) Trees() *Trees { return &c.trees }

// typeNameOps is the number of operations that distinguish request types with the same entry, in their names.
const typeNameOps = 3

// TypeSummary returns the part of the summary of a request type that names it.
func (c *Core) TypeSummary(g *group.Group) group.Summary {
	types := c.detector.Groups.Types
	return group.Summary{
		ID: g.ID, Level: g.Level, RequestType: g.ID, Entry: g.Entry, Name: types.Name(g.ID), Distinct: types.Distinct(g.Entry, g.ID, typeNameOps),
	}
}

// AffectedTypes returns the summaries, as of TypeSummary, of the request types that incidents affect, by identity.
func (c *Core) AffectedTypes() []group.Summary {
	var all []group.Summary
	for _, a := range c.cases.affected {
		for i := range a.Types {
			if g := c.detector.Groups.Group(a.Types[i].RequestType); g != nil {
				all = append(all, c.TypeSummary(g))
			}
		}
	}
	slices.SortFunc(all, func(a, b group.Summary) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(all, func(a, b group.Summary) bool { return a.ID == b.ID })
}

// Rate returns the requests per second of a type in the judged window; 0 if the type is unknown.
func (c *Core) Rate(requestType analysis.Hash) float64 {
	g := c.detector.Groups.Group(requestType)
	if g == nil {
		return 0
	}
	return g.Rate()
}
