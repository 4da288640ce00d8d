package notify

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Epoch is the input of Events: everything that changed in an epoch.
type Epoch struct {
	At        trace.Nanos
	Source    string // see Event
	Decisions []search.Decision
	Before    []detect.Problem // open at the start of the epoch
	Problems  []detect.Problem // open at its end
	Names     *describe.Names
	Traces    func(p *detect.Problem) []Trace    // samples to link to; may be nil
	URL       func(problem analysis.Hash) string // of the problem's page; may be nil

	Incidents   []engine.Incident   // as of the end of the epoch
	Annotations []engine.Annotation // oldest first
	Directory   directory.Directory
	// Held holds the IDs of incidents that opened while they were muted. The event about such an opening is due once
	// the incident is no longer muted.
	Held []uint64
	// Investigation returns the investigation of a problem or an incident, or nil if there is no investigation.
	Investigation func(search.Subject) *search.Investigation
	// The following functions are called for each event about an incident.
	Muted          func(incident uint64) bool
	Acknowledged   func(incident uint64) *Note    // nil if nobody acknowledged it
	IncidentTraces func(*engine.Incident) []Trace // slow or failed traces to link to
	IncidentURL    func(incident uint64) string   // of the incident's page; may return ""
}

// acknowledgedWithin is the maximum age of an acknowledgement that causes an event. Until then, Events returns the same
// event in each epoch, even after a restart, so that a crash doesn't lose the event. The outbox drops all copies but
// one, so acknowledgedWithin must be shorter than the time that the outbox remembers events.
const acknowledgedWithin = time.Hour

// Events returns the events of an epoch in order. The events depend only on e, so repeated calls return equal events.
func Events(e *Epoch) []*Event {
	list := e.incidentEvents()
	for _, c := range Changes(e.Before, e.Problems, e.Decisions) {
		list = append(list, e.event(&c))
	}
	return list
}

// event returns the event of a change.
func (e *Epoch) event(c *Change) *Event {
	id, about := c.Subject.Incident()
	if x := e.incident(id); about && x != nil {
		return e.incidentEvent(c.Type, x, c.Decision)
	}
	f := &Facts{
		Type:     c.Type,
		At:       e.At,
		Source:   e.Source,
		Decision: c.Decision,
		Names:    e.Names,
	}
	if c.Subject.Kind == search.ProblemSubject {
		e.about(f, c.Subject.ID)
	}
	return NewEvent(f)
}

// incident returns the incident with the given ID, or nil if it has been forgotten.
func (e *Epoch) incident(id uint64) *engine.Incident {
	i := slices.IndexFunc(e.Incidents, func(x engine.Incident) bool { return x.ID == id })
	if i < 0 {
		return nil
	}
	return &e.Incidents[i]
}

// eventTypes maps the new state of an incident to the type of the event about the change.
var eventTypes = [...]Type{
	incident.Open:     IncidentOpened,
	incident.Steady:   IncidentSteady,
	incident.Closed:   IncidentClosed,
	incident.Merged:   IncidentClosed,
	incident.Accepted: IncidentClosed,
}

// changed returns the latest transition of an incident if it happened in the epoch and should be reported. If an
// incident reopens and closes in the same epoch, its reopening is never reported, so its end isn't reported either.
func (e *Epoch) changed(x *engine.Incident) (t incident.Transition, changed bool) {
	for _, t := range slices.Backward(x.History) {
		if t.At != e.At {
			break
		}
		if t.Why == incident.Returned && !x.IsOpen() {
			return t, false
		}
	}
	t = x.Last()
	return t, t.At == e.At && t.Why != incident.Grew
}

// incidentEvents returns events about the incidents that opened, reopened, closed or were acknowledged in the epoch, or
// that had then been steady for a day. The events don't depend on investigations.
func (e *Epoch) incidentEvents() []*Event {
	var list []*Event
	for i := range e.Incidents {
		x := &e.Incidents[i]
		if last, changed := e.changed(x); changed {
			list = append(list, e.incidentEvent(eventTypes[last.State], x, nil))
		}
		if x.IsOpen() && slices.Contains(e.Held, x.ID) && !e.Muted(x.ID) {
			list = append(list, e.released(x)...)
		} else if at, acknowledged := e.acknowledged(x); acknowledged {
			event := e.incidentEvent(IncidentAcknowledged, x, nil)
			event.At = moment(at)
			event.setID(0)
			list = append(list, event)
		}
	}
	return list
}

// released returns the events about x, an incident that opened while it was muted: the event that it opened, with the
// same ID as if it had not been muted, and the event that it was acknowledged, if it was.
func (e *Epoch) released(x *engine.Incident) []*Event {
	opened := e.incidentEvent(IncidentOpened, x, nil)
	opened.At = moment(x.LastOpened())
	opened.setID(0)
	if e.Acknowledged == nil || e.Acknowledged(x.ID) == nil {
		return []*Event{opened}
	}
	return []*Event{opened, e.incidentEvent(IncidentAcknowledged, x, nil)}
}

// acknowledged returns the time when the open incident x was acknowledged, and whether the acknowledgement causes an
// event now. If the incident reopened after the acknowledgement, the time of the reopening counts, because receivers
// then paged people again.
func (e *Epoch) acknowledged(x *engine.Incident) (trace.Nanos, bool) {
	if !x.IsOpen() || e.Acknowledged == nil {
		return 0, false
	}
	note := e.Acknowledged(x.ID)
	if note == nil {
		return 0, false
	}
	at := max(trace.Nanos(note.At), x.Opened(), x.Reopened())
	return at, at <= e.At && e.At.Sub(at) < acknowledgedWithin
}

func (e *Epoch) incidentEvent(t Type, x *engine.Incident, d *search.Decision) *Event {
	var note *Note
	if e.Acknowledged != nil {
		note = e.Acknowledged(x.ID)
	}
	return NewIncidentEvent(&IncidentFacts{
		Type:          t,
		At:            e.At,
		Source:        e.Source,
		Incident:      x,
		Investigation: e.Investigation(search.OfIncident(x.ID)),
		Decision:      d,
		Annotations:   e.Annotations,
		Names:         e.Names,
		Traces:        e.IncidentTraces(x),
		Directory:     e.Directory,
		URL:           e.IncidentURL(x.ID),
		Muted:         e.Muted(x.ID) || !x.IsOpen() && slices.Contains(e.Held, x.ID), // no end without a beginning
		Acknowledged:  note,
	})
}

// about adds the facts about a problem to f.
func (e *Epoch) about(f *Facts, problem analysis.Hash) {
	f.Investigation = e.Investigation(search.OfProblem(problem))
	is := func(p detect.Problem) bool { return p.ID == problem }
	if i := slices.IndexFunc(e.Problems, is); i >= 0 {
		f.Problem = &e.Problems[i]
	} else if i := slices.IndexFunc(e.Before, is); i >= 0 && f.Type == ProblemClosed {
		f.Problem = &e.Before[i]
	}
	if f.Problem == nil && f.Investigation == nil { // both ended
		d := &f.Decision.Group
		f.Investigation = &search.Investigation{
			Subject:     search.OfProblem(problem),
			RequestType: d.RequestType,
			Group:       d.Group,
			Status:      f.Decision.To,
			Opened:      e.At,
		}
	}
	if e.Traces != nil && f.Problem != nil {
		f.Traces = e.Traces(f.Problem)
	}
	if e.URL != nil {
		f.URL = e.URL(problem)
	}
}
