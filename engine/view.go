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
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// View is the readable part of a [Core]. It isn't a copy, because an epoch doesn't leave enough time to copy the
// statistics of 10,000 request types. So a View, its parts and everything they return belong to the core:
//
//   - They must not be changed.
//   - They are valid until the next call of a method of the core other than [Core.View]. In package live that is until
//     the function passed to Ask or Options.Epoch returns. Copy values that you need for longer.
//   - They must not be used by several goroutines at once, since Trees.Of builds a tree on demand.
type View struct {
	Options  *Options     // with the current settings
	Table    *trace.Table // only the owner of the core may add to it, between calls of its methods
	Ended    trace.Nanos  // end of the last epoch; 0 before the first one ends
	Progress Progress

	// Groups are provisional during the learning period, when each entry operation is one request type.
	Groups      *group.Grouper
	Problems    *Problems
	Incidents   *Incidents
	Searches    *Searches
	Trees       *Trees
	Offers      *Offers
	Kept        *Kept
	History     *history.Sites           // calls used to detect incidents
	Spans       *observation.RecentSpans // recent durations of spans
	Coverage    *trace.Coverage          // spans of the traces ingested
	Annotations []Annotation             // the latest 1,000, oldest first
	// Common lists edges of different request types whose times rise and fall together, by decreasing correlation. It
	// is empty if no problem is open.
	Common []explain.CommonEdges

	annotations *annotations
	detector    *detect.Detector
	objectives  *incident.Objectives
}

// View returns a view of c that is valid until c changes.
func (c *Core) View() *View {
	ended := c.groups().Closed()
	return &View{
		Options:     &c.options,
		Table:       c.table,
		Ended:       ended,
		Progress:    Progress{&c.learning, c.calls.Sites, ended, c.options.Learning},
		Groups:      c.groups(),
		Problems:    c.problems,
		Incidents:   c.incidents,
		Searches:    c.searches,
		Trees:       c.trees,
		Offers:      c.offers,
		Kept:        c.kept,
		History:     c.calls.Sites,
		Spans:       &c.spans,
		Coverage:    &c.coverage,
		Annotations: c.annotations.all,
		Common:      c.series.common,
		annotations: c.annotations,
		detector:    c.detector,
		objectives:  c.objectives.Objectives,
	}
}

// Watched returns the number of groups and request types with an expectation.
func (v *View) Watched() int { return v.detector.Watched() }

// Objectives returns the state of the objectives at the end of the last epoch, in the order of the configuration.
func (v *View) Objectives() []incident.ObjectiveStatus { return v.objectives.Status() }

// typeNameOps is the maximum number of operations in a request type's name that distinguish it from others with the
// same entry.
const typeNameOps = 3

// TypeSummary returns a summary of g, a request type, with only the fields that identify and name it.
func (v *View) TypeSummary(g *group.Group) group.Summary {
	types := v.detector.Groups.Types
	return group.Summary{
		ID:          g.ID,
		Level:       g.Level,
		RequestType: g.ID,
		Entry:       g.Entry,
		Name:        types.Name(g.ID),
		Distinct:    types.Distinct(g.Entry, g.ID, typeNameOps),
	}
}

// AffectedTypes returns the [View.TypeSummary] of each known request type affected by an incident, sorted by ID.
func (v *View) AffectedTypes() []group.Summary {
	var all []group.Summary
	for _, a := range v.Incidents.affected {
		for i := range a.Types {
			if g := v.detector.Groups.Group(a.Types[i].RequestType); g != nil {
				all = append(all, v.TypeSummary(g))
			}
		}
	}
	sorting.Slice(all, func(a, b group.Summary) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(all, func(a, b group.Summary) bool { return a.ID == b.ID })
}

// Rate returns the request rate of requestType in the judged window, per second, or 0 if the type is unknown.
func (v *View) Rate(requestType analysis.Hash) float64 { return rateOf(v.detector.Groups, requestType) }

func rateOf(groups *group.Grouper, requestType analysis.Hash) float64 {
	if g := groups.Group(requestType); g != nil {
		return g.Rate()
	}
	return 0
}

// EndedPeriod returns the start of the period of length [group.Period] that will be over when the next epoch ends at
// now, and the requests of the period by group. Call it before [Core.Epoch], which merges these requests with later
// ones. ended is false if no period will be over or groups are still provisional. Each yielded value is valid only
// until the next one is yielded. The values depend only on the state of the core.
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
