package notify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident at the time of its event. Its lists are limited in length. Scores and parts of suspects are
// per request: times are in units of the request's usual mean duration, and failures, unanswered calls and changed call
// flows are counts.
type Incident struct {
	ID           string           `json:"id"`
	URL          string           `json:"url,omitempty"` // its page
	State        string           `json:"state"`         // open or closed
	Kind         string           `json:"kind"`          // a [describe.IncidentKind]
	Severity     string           `json:"severity"`      // minor, major or critical
	Reason       string           `json:"severity_reason"`
	Impact       Impact           `json:"impact"`
	Size         *Size            `json:"size,omitempty"`     // absent if no request type is slower, or requests have stopped
	Failures     *Failures        `json:"failures,omitempty"` // absent if no more requests fail than usual
	Sentence     string           `json:"sentence"`
	Service      string           `json:"service"` // the first suspect
	Owner        *directory.Owner `json:"owner"`   // of the first suspect; null if not configured
	Onset        moment           `json:"onset"`
	Opened       moment           `json:"opened"`             // or last reopened
	Ended        *moment          `json:"ended"`              // end of the slowdown; null while open
	Closed       *moment          `json:"closed"`             // a few minutes after Ended; null while open
	Acknowledged *Note            `json:"acknowledged"`       // null if nobody has acknowledged it
	Accepted     bool             `json:"accepted,omitempty"` // a person accepted its behaviour as normal, which closed it
	MergedInto   string           `json:"merged_into,omitempty"`
	Suspects     []Culprit        `json:"suspects"`      // ranked
	Objectives   []Objective      `json:"objectives"`    // objectives that it violates
	RequestTypes []AffectedType   `json:"request_types"` // largest added latency first
	Affected     int              `json:"affected"`      // number of request types
	Annotations  []Annotation     `json:"annotations"`   // of suspects or without a service, latest first
	Traces       []Trace          `json:"traces"`        // slow or failed traces
	Search       *Search          `json:"investigation"` // may be null
	Next         string           `json:"next"`          // next step for people
	Actions      []directory.URL  `json:"actions"`       // pages that ask to accept, acknowledge or mute it; empty if it is closed

	sentence  describe.Sentence // of Sentence
	located   describe.Sentence // the place that the investigation located; may be empty
	placed    bool              // sentence names that place
	alerted   string            // the first suspect when it opened
	alertedAs string            // the severity when it opened
}

// Impact is the average loss of the affected request types since the onset.
type Impact struct {
	Lost   describe.Number `json:"lost_ns_per_second"` // beyond the usual durations
	Failed describe.Number `json:"failed_per_second"`  // requests beyond the usual number
}

// Size compares the durations of the affected requests before and since the onset, with the numbers used in the
// sentence.
type Size struct {
	Ratio    describe.Number `json:"ratio"` // of NowNS to BeforeNS
	BeforeNS describe.Number `json:"before_ns"`
	NowNS    describe.Number `json:"now_ns"`
	Share    describe.Number `json:"share_of_requests"` // affected share of all requests
}

// Failures compares the fractions of the affected requests that fail before and since the onset.
type Failures struct {
	Before describe.Number `json:"before"`
	Now    describe.Number `json:"now"`
	Share  describe.Number `json:"share_of_requests"` // affected share of all requests
}

// Note is a person's note on an incident.
type Note struct {
	By   string `json:"by"`
	At   moment `json:"at"`
	Text string `json:"text,omitempty"`
}

// NewNote returns a note by the given person, with its texts made printable and limited in length.
func NewNote(by string, at time.Time, text string) *Note {
	return &Note{trace.Clean(by), moment(at.UnixNano()), trace.Printable(text, maxSentenceText)}
}

// Search is the investigation of an incident, or the investigation of a problem that had already located the
// incident's cause.
type Search struct {
	Status      string    `json:"status"`
	Reason      string    `json:"reason"`
	Tracepoints int       `json:"tracepoints"` // that it keeps enabled
	Suspects    []Suspect `json:"suspects"`    // ranked; contexts start at an operation, not at the entry
}

// Culprit is a suspect of an incident.
type Culprit struct {
	Service    string                      `json:"service"`
	Owner      *directory.Owner            `json:"owner"` // null if not configured
	EmitsSpans bool                        `json:"emits_spans"`
	Score      describe.Number             `json:"score"`
	Parts      describe.SuspectParts       `json:"parts"`
	Operations []describe.SuspectOperation `json:"operations"`
	Instances  []Instance                  `json:"instances"`
	Links      []directory.URL             `json:"links"` // to its logs, metrics and runbooks
}

// Objective is a configured objective that an incident violates, as of the last epoch that it burned in.
type Objective struct {
	Name     string          `json:"name"`
	Entry    string          `json:"entry"`
	Kind     string          `json:"kind"`                 // latency or errors
	BelowNS  int64           `json:"below_ns,omitempty"`   // duration that requests must not reach
	Percent  float64         `json:"percentile,omitempty"` // percentage of the requests that must be faster
	Budget   describe.Number `json:"budget"`               // share of the requests that may miss it
	Share    describe.Number `json:"share"`                // share of the requests that missed it in the window
	BurnRate describe.Number `json:"burn_rate"`            // Share divided by Budget
	WindowNS int64           `json:"window_ns"`
}

// Instance is an instance, host, zone or version with its part of the cost of a suspect.
type Instance struct {
	Key   string          `json:"key"`
	Value string          `json:"value"`
	Part  describe.Number `json:"part"`
}

// AffectedType is a request type that an incident affects.
type AffectedType struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Requests    uint64          `json:"requests"` // since the onset
	MeanNS      describe.Number `json:"mean_ns"`  // since the onset
	UsualNS     describe.Number `json:"usual_ns"`
	Failed      describe.Number `json:"failed"` // since the onset
	UsualFailed describe.Number `json:"usual_failed"`
}

// Annotation is a deploy or another event; see [engine.Annotation]. Unknown texts are empty.
type Annotation struct {
	At      moment `json:"at"`
	Kind    string `json:"kind"`
	Service string `json:"service"`
	Version string `json:"version"`
	Before  string `json:"before"`
	Text    string `json:"text"`
	Link    string `json:"link"`
	title   string
}

// Limits on an incident in an event.
const (
	maxCulprits    = 5
	maxOperations  = 5
	maxInstances   = 5
	maxObjectives  = 20
	maxTypes       = 20
	maxAnnotations = 10
)

// IncidentFacts are the input of an event about an incident.
type IncidentFacts struct {
	Type          Type
	At            trace.Nanos
	Source        string // see Event
	Incident      *engine.Incident
	Investigation *search.Investigation // may be nil
	Decision      *search.Decision      // may be nil
	Annotations   []engine.Annotation   // all annotations, oldest first
	Traces        []Trace               // slow or failed traces; the first are sent
	Names         *describe.Names       // includes the request types
	Directory     directory.Directory   // owners, and links to pages about services
	URL           string                // of the incident's page; may be empty
	Acknowledged  *Note                 // nil if nobody acknowledged it
	Muted         bool                  // send only ends and acknowledgements, and only to endpoints that keep state
}

// NewIncidentEvent returns the event about an incident that f describes. The event's ID depends only on type, time,
// incident and plan, so creating the event again gives the same ID.
func NewIncidentEvent(f *IncidentFacts) *Event {
	x, n := f.Incident, namer{f.Names}
	e := &Event{
		Type:      f.Type,
		At:        moment(f.At),
		Source:    trace.Clean(f.Source),
		subject:   search.OfIncident(x.ID),
		resolved:  !x.IsOpen(),
		muted:     f.Muted,
		Data:      Data{Incident: n.incident(f)},
		directory: &f.Directory,
		owner:     f.Directory.Owner(n.names.Table.Text(x.Alerted)),
	}
	plan := int64(0)
	if f.Decision != nil {
		plan = f.Decision.Plan
		e.Data.Decision = n.decision(f.Decision)
	}
	e.setID(plan)
	return e
}

// advice returns the next step. It doesn't propose to accept a steady incident if the event's sentence already does.
func (n namer) advice(f *IncidentFacts) string {
	advice := describe.Advice
	if f.Type == IncidentSteady {
		advice = describe.Step
	}
	return trace.Printable(advice(n.names, f.Incident, f.Investigation, f.Annotations).String(), maxSentenceText)
}

func (n namer) incident(f *IncidentFacts) *Incident {
	x := f.Incident
	told, impact := describe.NewIncident(n.names, x, f.At), x.Impact(f.At)
	sentence := bounded(told.Sentence, maxSentenceText)
	d := &Incident{
		ID:           hex16(x.ID),
		URL:          f.URL,
		State:        "open",
		Kind:         string(told.Kind),
		Severity:     x.Severity().String(),
		Reason:       trace.Printable(told.Reason.String(), maxSentenceText),
		Impact:       Impact{describe.Number(impact.Lost), describe.Number(impact.Failed)},
		Sentence:     inUTC(sentence),
		Onset:        moment(x.Onset),
		Opened:       moment(x.LastOpened()),
		Acknowledged: f.Acknowledged,
		Accepted:     x.Last().State == incident.Accepted,
		Suspects:     []Culprit{},
		Objectives:   []Objective{},
		RequestTypes: []AffectedType{},
		Affected:     len(x.Types),
		Annotations:  []Annotation{},
		Traces:       append([]Trace{}, f.Traces[:min(len(f.Traces), maxTraces)]...),
		Search:       n.search(f.Investigation),
		Next:         n.advice(f),
		Actions:      []directory.URL{},
		sentence:     sentence,
		located:      bounded(describe.LocatedBy(n.names, x, f.Investigation), maxSentenceText),
		placed:       x.Place.Operation != 0 && x.Place.Operation == f.Investigation.Answer(),
		alerted:      n.text(x.Alerted),
		alertedAs:    x.AlertedSeverity.String(),
	}
	if size := told.Size; size.Types > 0 {
		d.Size = &Size{
			Ratio:    describe.Number(size.Ratio()),
			BeforeNS: describe.Number(size.Before),
			NowNS:    describe.Number(size.Now),
			Share:    describe.Number(x.Share),
		}
	}
	if f := told.Failures; f.Now > 0 {
		d.Failures = &Failures{describe.Number(f.Before), describe.Number(f.Now), describe.Number(x.Share)}
	}
	if !x.IsOpen() {
		d.State, d.Ended, d.Closed = "closed", new(moment(x.End())), new(moment(x.Closed()))
	} else {
		d.Actions = actionsAt(f.URL)
	}
	if x.Into() != 0 {
		d.MergedInto = hex16(x.Into())
	}
	for i := range told.Named[:min(len(told.Named), maxCulprits)] {
		d.Suspects = append(d.Suspects, culprit(&told.Named[i], f))
	}
	if len(d.Suspects) > 0 {
		d.Service, d.Owner = d.Suspects[0].Service, d.Suspects[0].Owner
	}
	for i := range x.Objectives[:min(len(x.Objectives), maxObjectives)] {
		m := &x.Objectives[i]
		d.Objectives = append(d.Objectives, Objective{
			Name:     trace.Clean(cmp.Or(m.Name, m.Entry)),
			Entry:    trace.Clean(m.Entry),
			Kind:     m.Kind(),
			BelowNS:  m.Below.Nanoseconds(),
			Percent:  m.Percentile,
			Budget:   describe.Number(m.Budget()),
			Share:    describe.Number(m.Requests.Share()),
			BurnRate: describe.Number(m.Rate),
			WindowNS: m.Window.Nanoseconds(),
		})
	}
	for i := range x.Types[:min(len(x.Types), maxTypes)] {
		t := &x.Types[i]
		d.RequestTypes = append(d.RequestTypes, AffectedType{
			ID:          t.RequestType.String(),
			Name:        trace.Clean(told.Affected[i]),
			Requests:    t.Requests,
			MeanNS:      describe.Number(t.Mean),
			UsualNS:     describe.Number(t.Usual),
			Failed:      describe.Number(t.Failed),
			UsualFailed: describe.Number(t.UsualFailed),
		})
	}
	for _, y := range slices.Backward(x.Annotations(f.Annotations)) {
		if len(d.Annotations) == maxAnnotations {
			break
		}
		d.Annotations = append(d.Annotations, Annotation{
			At:      moment(y.At),
			Kind:    y.Kind.String(),
			Service: n.text(y.Service),
			Version: n.text(y.Version),
			Before:  n.text(y.Before),
			Text:    trace.Clean(y.Text),
			Link:    y.Link,
			title:   describe.AnnotationTitle(n.text, &y),
		})
	}
	return d
}

func (n namer) search(v *search.Investigation) *Search {
	if v == nil {
		return nil
	}
	return &Search{
		v.Status.String(), trace.Clean(v.Reason), len(v.Requested),
		n.suspects(v.Suspects[:min(len(v.Suspects), maxCulprits)]),
	}
}

// Names of the links to the dialogs that acknowledge and accept an incident.
const (
	acknowledgeAction = "Acknowledge"
	acceptAction      = "Accept as normal"
)

// actionsAt returns links that open the dialogs on page, the URL of an open incident's page. It returns an empty list
// if page is empty. Following a link changes nothing, because mail scanners and chats follow links, too.
func actionsAt(page string) []directory.URL {
	if page == "" {
		return []directory.URL{}
	}
	return []directory.URL{
		{Name: acknowledgeAction, URL: page + "?dialog=acknowledge"},
		{Name: "Mute", URL: page + "?dialog=mute"},
		{Name: acceptAction, URL: page + "?dialog=accept"},
	}
}

func culprit(s *describe.Suspect, f *IncidentFacts) Culprit {
	x := Culprit{
		Service:    trace.Clean(s.Service),
		Owner:      f.Directory.Owner(s.Service),
		EmitsSpans: s.EmitsSpans,
		Score:      s.Score,
		Parts:      s.Parts,
		Operations: s.Operations[:min(len(s.Operations), maxOperations)],
		Instances:  []Instance{},
	}
	for i := range x.Operations {
		o := &x.Operations[i]
		cleanAll(&o.Service, &o.Operation)
		o.Target = boundTarget(o.Target)
	}
	for _, i := range s.Instances[:min(len(s.Instances), maxInstances)] {
		x.Instances = append(x.Instances, Instance{trace.Clean(i.Key), trace.Clean(i.Value), i.Part})
	}
	x.Links = f.Directory.ServiceLinks(f.linkTarget(&x))
	return x
}

// linkTarget returns the suspect s, with its first operation and instance, as the target of links.
func (f *IncidentFacts) linkTarget(s *Culprit) *directory.Request {
	r := &directory.Request{Service: s.Service, Incident: hex16(f.Incident.ID), Start: f.Incident.Onset, End: f.At}
	if len(s.Operations) > 0 {
		r.Operation = s.Operations[0].Operation
	}
	for _, i := range s.Instances {
		r.AddInstance(i.Key, i.Value)
	}
	return r
}

// hex16 returns the ID of an incident as text.
func hex16(id uint64) string { return fmt.Sprintf("%016x", id) }

// lasted returns the time from the onset of x to its end as text, or "" if x is open.
func (x *Incident) lasted() string {
	if x.Ended == nil {
		return ""
	}
	return units.Span(trace.Nanos(*x.Ended).Sub(trace.Nanos(x.Onset)))
}

// place returns the place that the investigation located, or "" if no place is located.
func (x *Incident) place() string {
	if s := x.Search; s != nil && len(s.Suspects) > 0 &&
		(s.Status == search.Located.String() || s.Status == search.Explained.String()) {
		return s.Suspects[0].place()
	}
	return ""
}

// beganLayout is the layout of the onset of an incident in figures.
const beganLayout = "2006-01-02 15:04:05 UTC"

// figures returns the known figures of an incident, of which there are at most thirteen.
func (x *Incident) figures() []figure {
	var list []figure
	add := func(key, name, text string) {
		if text != "" {
			list = append(list, figure{key, name, text})
		}
	}
	var suspects, annotations, traces []string
	cost := 0.0
	for i := range x.Suspects {
		cost += float64(x.Suspects[i].Score)
	}
	for i := range x.Suspects {
		share := units.Percent(float64(x.Suspects[i].Score) / max(math.SmallestNonzeroFloat64, cost))
		suspects = append(suspects, x.Suspects[i].Service+" "+share)
	}
	add("severity", "Severity", x.Severity)
	add("severity_reason", "Why", trace.Clean(x.Reason))
	affected, share := units.Plural(x.Affected, "request type"), describe.Number(0)
	if f := x.Failures; f != nil {
		add("failed", "Failed", units.Percent(float64(f.Before))+" → "+units.Percent(float64(f.Now)))
		share = f.Share
	}
	if s := x.Size; s != nil {
		add("mean", "Mean", units.Nanos(float64(s.BeforeNS))+" → "+units.Nanos(float64(s.NowNS)))
		share = s.Share
	}
	if share > 0 {
		affected = units.Percent(float64(share)) + " of all requests, of " + affected
	}
	measured := x.Size != nil || x.Failures != nil
	if measured {
		add("affected", "Affected", affected)
	} else {
		add("impact", "Lost", units.Loss(float64(x.Impact.Lost), float64(x.Impact.Failed)))
	}
	add("located_at", "Located at", x.place())
	add("owner", "Owner", trace.Clean(x.Owner.String()))
	add("suspects", "Suspects", trace.Clean(strings.Join(suspects, ", ")))
	if x.Affected > 0 && !measured {
		add("request_types", "Request types", strconv.Itoa(x.Affected))
		add("most_affected", "Most affected", trace.Clean(x.RequestTypes[0].change()))
	}
	for i := range x.Annotations {
		annotations = append(annotations, x.Annotations[i].Kind+" "+x.Annotations[i].title)
	}
	add("annotations", "Annotations", trace.Clean(strings.Join(annotations, "; ")))
	for _, t := range x.Traces {
		traces = append(traces, t.ID)
	}
	add("traces", "Sample traces", trace.Clean(strings.Join(traces, " ")))
	add("began", "Began", x.Onset.time().Format(beganLayout))
	add("lasted", "Lasted", x.lasted())
	add("next", "Next step", trace.Clean(x.Next))
	return list
}

// change returns a text about the change of a request type's failures or duration, whichever costs more.
func (t *AffectedType) change() string {
	if (t.Failed-t.UsualFailed)*t.UsualNS > t.MeanNS-t.UsualNS {
		return t.Name + ": " + units.Percent(float64(t.Failed)) + " fail, usually " +
			units.Percent(float64(t.UsualFailed))
	}
	return t.Name + ": " + units.Nanos(float64(t.MeanNS)) + ", usually " + units.Nanos(float64(t.UsualNS))
}

// incidentAlert returns the alert of an incident. The alert's labels, which identify it, stay the same until the
// incident closes.
func (e *Event) incidentAlert() alert {
	x := e.Data.Incident
	a := alert{
		Labels: filled("alertname", "SibylIncident", "incident", x.ID,
			"service", x.alerted, "severity", x.alertedAs),
		Annotations:  filled("summary", x.Sentence, "state", x.State),
		StartsAt:     x.Opened,
		EndsAt:       moment(e.At.time().Add(alertLife).UnixNano()),
		GeneratorURL: x.URL,
	}
	if e.resolved {
		a.EndsAt = e.At
	}
	return a
}
