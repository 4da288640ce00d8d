package engine

import (
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// View is the part of a [Core] that may be read. It is not a copy: copying the statistics of 10,000 request types would
// take longer than an epoch leaves time for. So a View, its parts and all that these return belong to the core:
//
//   - They must not be changed.
//   - They are valid until the next call of a method of the core other than [Core.View]: in package live until the
//     function that was passed to Ask, or to Options.Epoch, returns. Readers that need a value later copy it before.
//   - They must not be used by several goroutines at once. Trees.Of builds a tree on demand.
type View struct {
	Options  *Options     // with the current settings
	Table    *trace.Table // only the owner of the core may add to it, between calls of its methods
	Ended    trace.Nanos  // end of the last epoch; 0: none ended yet
	Progress Progress

	// Groups are provisional during the learning period: each entry operation is one request type.
	Groups    *group.Grouper
	Problems  *Problems
	Incidents *Incidents
	Searches  *Searches
	Trees     *Trees
	Offers    *Offers
	Kept      *Kept
	History   *history.Sites           // calls from which incidents are raised
	Spans     *observation.RecentSpans // recent durations of spans
	Coverage  *trace.Coverage          // of the spans of the traces ingested
	Deploys   []Deploy                 // the latest thousand, oldest first
	// Common has the places of different request types that rise and fall together, by falling correlation, while there
	// is a problem.
	Common []explain.CommonEdges

	detector   *detect.Detector
	objectives *incident.Objectives
}

// View returns what may be read of c until c changes.
func (c *Core) View() *View {
	ended := c.groups().Closed()
	return &View{
		Options:    &c.options,
		Table:      c.table,
		Ended:      ended,
		Progress:   Progress{&c.learning, c.calls.Sites, ended, c.options.Learning},
		Groups:     c.groups(),
		Problems:   c.problems,
		Incidents:  c.incidents,
		Searches:   c.searches,
		Trees:      c.trees,
		Offers:     c.offers,
		Kept:       c.kept,
		History:    c.calls.Sites,
		Spans:      &c.spans,
		Coverage:   &c.coverage,
		Deploys:    c.versions.deploys,
		Common:     c.series.common,
		detector:   c.detector,
		objectives: c.objectives.Objectives,
	}
}

// Watched returns the number of groups and request types with an expectation.
func (v *View) Watched() int { return v.detector.Watched() }

// Objectives returns the state of the objectives at the end of the last epoch, in the order of the configuration.
func (v *View) Objectives() []incident.ObjectiveStatus { return v.objectives.Status() }

// typeNameOps is the number of operations that distinguish request types with the same entry, in their names.
const typeNameOps = 3

// TypeSummary returns the part of the summary of a request type that names it.
func (v *View) TypeSummary(g *group.Group) group.Summary {
	types := v.detector.Groups.Types
	return group.Summary{
		ID: g.ID, Level: g.Level, RequestType: g.ID, Entry: g.Entry, Name: types.Name(g.ID), Distinct: types.Distinct(g.Entry, g.ID, typeNameOps),
	}
}

// AffectedTypes returns the summaries, as of TypeSummary, of the request types that incidents affect, by identity.
func (v *View) AffectedTypes() []group.Summary {
	var all []group.Summary
	for _, a := range v.Incidents.affected {
		for i := range a.Types {
			if g := v.detector.Groups.Group(a.Types[i].RequestType); g != nil {
				all = append(all, v.TypeSummary(g))
			}
		}
	}
	slices.SortFunc(all, func(a, b group.Summary) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(all, func(a, b group.Summary) bool { return a.ID == b.ID })
}

// Rate returns the requests per second of a type in the judged window; 0 if the type is unknown.
func (v *View) Rate(requestType analysis.Hash) float64 { return rateOf(v.detector.Groups, requestType) }

func rateOf(groups *group.Grouper, requestType analysis.Hash) float64 {
	if g := groups.Group(requestType); g != nil {
		return g.Rate()
	}
	return 0
}

// EndedPeriod returns the period of [group.Period] that has ended if an epoch ends at now, and its requests by group.
// Call it before [Core.Epoch], which joins them with others. It returns false if the period goes on, and while groups
// are provisional. The values are valid until the next; they are a function of the state of the core.
func (v *View) EndedPeriod(now trace.Nanos) (from trace.Nanos, all iter.Seq2[analysis.Hash, *group.Past], ended bool) {
	if v.Ended == 0 || !v.Progress.Learned() {
		return 0, nil, false
	}
	if from = group.PeriodOf(v.Ended); group.PeriodOf(now) <= from {
		return 0, nil, false
	}
	return from, func(yield func(analysis.Hash, *group.Past) bool) {
		var p group.Past
		for g := range v.Groups.Each() {
			if g.InPeriod(from, &p); p.Total.N > 0 && !yield(g.ID, &p) {
				return
			}
		}
	}, true
}
