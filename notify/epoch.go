package notify

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Epoch is the result of an epoch.
type Epoch struct {
	At            trace.Nanos
	Source        string        // see Event
	Before, After *search.State // of the search
	Decisions     []search.Decision
	Problems      []detect.Problem
	Names         *describe.Names                    // with the summaries of the problems' requests
	Traces        func(p *detect.Problem) []Trace    // samples to link; nil: none
	URL           func(problem analysis.Hash) string // of the problem's page; nil: it has none

	Incidents []engine.Incident // as of the end of the epoch
	Deploys   []engine.Deploy   // oldest first
	// The following are called for each event about an incident.
	Muted          func(incident uint64) bool
	IncidentTraces func(*engine.Incident) []Trace // slow ones to link
	IncidentURL    func(incident uint64) string   // of the incident's page; empty: it has none
}

// Events returns the events of an epoch in order. It depends on its argument only: repeated calls return equal events.
func Events(e *Epoch) []*Event {
	problems := make(map[analysis.Hash]*detect.Problem, len(e.Problems))
	for i := range e.Problems {
		problems[e.Problems[i].ID] = &e.Problems[i]
	}
	list := e.incidentEvents()
	for _, c := range Changes(e.Before, e.After, e.Decisions) {
		f := &Facts{Type: c.Type, At: e.At, Source: e.Source, Decision: c.Decision, Names: e.Names}
		if !c.Problem.IsZero() {
			e.about(f, &c, problems[c.Problem])
		}
		list = append(list, NewEvent(f))
	}
	return list
}

// incidentEvents returns the events of the incidents that opened, opened again or closed in the epoch. They do not
// depend on investigations.
func (e *Epoch) incidentEvents() []*Event {
	var list []*Event
	for i := range e.Incidents {
		x := &e.Incidents[i]
		f := &IncidentFacts{Type: IncidentOpened, At: e.At, Source: e.Source, Incident: x, Deploys: e.Deploys, Names: e.Names}
		switch {
		case x.Closed == 0 && (x.Opened == e.At || x.Reopened == e.At):
		case x.Closed == e.At && x.Reopened != e.At:
			f.Type = IncidentClosed
		default:
			continue
		}
		f.Traces, f.URL, f.Muted = e.IncidentTraces(x), e.IncidentURL(x.ID), e.Muted(x.ID)
		list = append(list, NewIncidentEvent(f))
	}
	return list
}

// about adds the facts about the problem of a change.
func (e *Epoch) about(f *Facts, c *Change, p *detect.Problem) {
	f.Problem, f.Investigation = p, e.After.Investigation(c.Problem)
	if f.Investigation == nil { // it ended in this epoch
		d := &c.Decision.Group
		f.Investigation = &search.Investigation{Problem: c.Problem, RequestType: d.RequestType, Group: d.Group, Status: c.Decision.To, Opened: e.At}
	}
	if e.Traces != nil && p != nil {
		f.Traces = e.Traces(p)
	}
	if e.URL != nil {
		f.URL = e.URL(c.Problem)
	}
}
