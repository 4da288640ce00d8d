package notify

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident at the time of its event. Its lists are bounded. Scores and parts of suspects are per
// request: times are in units of the request's usual mean duration, and failures, unanswered calls and changed call
// flows are counts.
type Incident struct {
	ID           string         `json:"id"`
	URL          string         `json:"url,omitempty"` // its page
	State        string         `json:"state"`         // open or closed
	Kind         string         `json:"kind"`          // a [describe.IncidentKind]
	Severity     string         `json:"severity"`      // minor, major or critical
	Reason       string         `json:"severity_reason"`
	Impact       Impact         `json:"impact"`
	Sentence     string         `json:"sentence"`
	Service      string         `json:"service"` // the first suspect
	Owner        *Owner         `json:"owner"`   // of the first suspect; null if not configured
	Onset        moment         `json:"onset"`
	Opened       moment         `json:"opened"`             // or last reopened
	Ended        *moment        `json:"ended"`              // end of the slowdown; null while open
	Closed       *moment        `json:"closed"`             // some minutes after Ended; null while open
	Acknowledged *Note          `json:"acknowledged"`       // null if nobody has acknowledged it
	Accepted     bool           `json:"accepted,omitempty"` // a person accepted its behaviour as normal, which closed it
	MergedInto   string         `json:"merged_into,omitempty"`
	Suspects     []Culprit      `json:"suspects"`      // ranked
	Objectives   []Objective    `json:"objectives"`    // objectives that it violates
	RequestTypes []AffectedType `json:"request_types"` // largest added latency first
	Affected     int            `json:"affected"`      // number of request types
	Deploys      []Deploy       `json:"deploys"`       // of suspects, latest first
	Traces       []Trace        `json:"traces"`        // slow or failed traces
	Search       *Search        `json:"investigation"` // may be null
	Next         string         `json:"next"`          // next step for people
	Actions      []URL          `json:"actions"`       // pages that ask to accept, acknowledge or mute it; empty if it is closed
	period       string         // its times in Sentence
	slackPeriod  string         // the same in the notation of Slack
	located      string         // the place that the investigation located; may be empty
	alerted      string         // the first suspect when it opened
	alertedAs    string         // the severity when it opened
}

// Impact is the average loss of the affected request types since the onset.
type Impact struct {
	Lost   describe.Number `json:"lost_ns_per_second"` // beyond the usual durations
	Failed describe.Number `json:"failed_per_second"`  // requests beyond the usual number
}

// Note is a person's note on an incident.
type Note struct {
	By   string `json:"by"`
	At   moment `json:"at"`
	Text string `json:"text,omitempty"`
}

// NewNote returns a note that the person by wrote, with its texts printable and bounded.
func NewNote(by string, at time.Time, text string) *Note {
	return &Note{clean(by), moment(at.UnixNano()), shorten(text, maxSentenceText)}
}

// Search is the investigation of an incident, or the investigation of a problem that had already located the
// incident's cause.
type Search struct {
	Status      string    `json:"status"`
	Reason      string    `json:"reason"`
	Tracepoints int       `json:"tracepoints"` // that it keeps on
	Suspects    []Suspect `json:"suspects"`    // best first; contexts start at an operation, not at the entry
}

// Culprit is a suspect of an incident.
type Culprit struct {
	Service    string                      `json:"service"`
	Owner      *Owner                      `json:"owner"` // null if not configured
	EmitsSpans bool                        `json:"emits_spans"`
	Score      describe.Number             `json:"score"`
	Parts      describe.SuspectParts       `json:"parts"`
	Operations []describe.SuspectOperation `json:"operations"`
	Instances  []Instance                  `json:"instances"`
	Links      []URL                       `json:"links"` // to its logs, metrics and runbooks
}

// Objective is a configured objective that an incident violates, as of the last epoch in which it burned.
type Objective struct {
	Name     string          `json:"name"`
	Entry    string          `json:"entry"`
	Kind     string          `json:"kind"`                 // latency or errors
	BelowNS  int64           `json:"below_ns,omitempty"`   // duration that requests must not reach
	Percent  float64         `json:"percentile,omitempty"` // percentage of the requests that must be faster
	Budget   describe.Number `json:"budget"`               // share of the requests that may miss it
	Share    describe.Number `json:"share"`                // that missed it in the window
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

// Deploy is a new version of a service.
type Deploy struct {
	At      moment `json:"at"`
	Service string `json:"service"`
	Version string `json:"version"`
	Before  string `json:"before"`
}

// Limits on an incident in an event.
const (
	maxCulprits   = 5
	maxOperations = 5
	maxInstances  = 5
	maxObjectives = 20
	maxTypes      = 20
	maxDeploys    = 10
)

// IncidentFacts are the input of an event about an incident.
type IncidentFacts struct {
	Type          Type
	At            trace.Nanos
	Source        string // see Event
	Incident      *engine.Incident
	Investigation *search.Investigation // may be nil
	Decision      *search.Decision      // may be nil
	Deploys       []engine.Deploy       // all known deploys, oldest first
	Traces        []Trace               // slow or failed traces; the first are sent
	Names         *describe.Names       // with the request types
	Directory     Directory             // owners, and links to pages about services
	URL           string                // of the incident's page; may be empty
	Acknowledged  *Note                 // nil if nobody acknowledged it
	Muted         bool                  // send only ends and acknowledgements, and only to endpoints that keep state
}

// NewIncidentEvent returns the event about an incident that f describes. Its ID depends only on type, time, incident
// and plan, so an event that is made again has the same ID.
func NewIncidentEvent(f *IncidentFacts) *Event {
	x, n := f.Incident, namer{f.Names}
	e := &Event{
		Type:      f.Type,
		At:        moment(f.At),
		Source:    clean(f.Source),
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

// Advice returns the next step for the people who work on the incident x. v is its investigation, which may be nil.
// deploys are all known deploys, oldest first.
func Advice(names *describe.Names, x *engine.Incident, v *search.Investigation, deploys []engine.Deploy) string {
	return names.Advice(evidence(x, v, deploys))
}

// evidence returns the evidence for the next step, see [Advice].
func evidence(x *engine.Incident, v *search.Investigation, deploys []engine.Deploy) *describe.Advice {
	deploy := x.SuspectDeploy(deploys)
	a := &describe.Advice{
		Suspects: x.Suspects,
		Last:     x.Last(),
		Version:  deploy.Version,
		Before:   deploy.Before,
	}
	switch {
	case v == nil:
	case v.Answer() != 0:
		a.Located, a.Share, a.Reason = v.Answer(), x.ShareOf(v, v.AnswerShare()), reasonOf(x, v)
	case v.Status == search.Exhausted:
		a.Exhausted, a.Untried = v.Reason, len(v.Tried) == 0 && v.BudgetStarved == 0
	case v.Status.Active():
		a.Searching, a.On, a.Doing = true, len(v.Requested), v.Reason
	}
	if a.Located == 0 && v != nil && len(v.Suspects) > 0 {
		a.Lead, a.LeadShare = v.Suspects[0].Op, x.ShareOf(v, v.Suspects[0].Share)
	}
	if missed := Objectives(x); len(missed) > 0 {
		a.Objective = &missed[0]
	}
	return a
}

// advice returns the next step. It doesn't propose to accept a steady incident, because the event's sentence already
// does.
func (n namer) advice(f *IncidentFacts) string {
	a := evidence(f.Incident, f.Investigation, f.Deploys)
	if f.Type == IncidentSteady {
		a.Last.State = incident.Open
	}
	return shorten(n.names.Advice(a), maxSentenceText)
}

// Objectives returns the objectives that an incident violates, for sentences.
func Objectives(x *engine.Incident) []describe.Objective {
	var all []describe.Objective
	for i := range x.Objectives {
		m := &x.Objectives[i]
		all = append(all, describe.Objective{
			Name: cmp.Or(m.Name, m.Entry), Entry: m.Entry, Below: m.Below, Budget: m.Budget(), Share: m.Requests.Share(), Window: m.Window,
		})
	}
	return all
}

// Sentence returns the sentence about an incident. when is the text for its period, see [describe.IncidentPeriod].
func Sentence(names *describe.Names, x *engine.Incident, when string) describe.Sentence {
	d := describedAs(x, when)
	for i := range x.Types {
		t := &x.Types[i]
		d.Slower = append(d.Slower, describe.SlowerType{Name: namer{names}.requestType(t.RequestType), Requests: t.Requests, Mean: t.Mean, Usual: t.Usual})
	}
	return names.Incident(d)
}

// Size returns the size of an incident, as in its sentence. It is zero if no request type is slower or requests have
// stopped.
func Size(x *engine.Incident) describe.Size {
	d := describe.Incident{Suspects: x.Suspects}
	for i := range x.Types {
		t := &x.Types[i]
		d.Slower = append(d.Slower, describe.SlowerType{Requests: t.Requests, Mean: t.Mean, Usual: t.Usual})
	}
	return d.Size()
}

// Stopped returns the rate, in requests per second, of those requests that have stopped. It returns 0 if the incident
// isn't about stopped requests, or if the rate is unknown.
func Stopped(x *engine.Incident) float64 {
	d := describe.Incident{Suspects: x.Suspects}
	return d.Stopped()
}

// Kind returns the kind of an incident.
func Kind(x *engine.Incident) describe.IncidentKind { return describedAs(x, "").Kind() }

func describedAs(x *engine.Incident, when string) *describe.Incident {
	return &describe.Incident{
		When: when, Suspects: x.Suspects, Shared: x.Shared, Longer: x.Longer(), Weeks: x.Weeks, Affected: x.Share,
		Objectives: Objectives(x), Over: !x.IsOpen(), Located: x.Place.Operation, Share: x.Place.Share,
		Reason: describe.Reason(x.Place.Reason),
	}
}

// SeverityReason describes the figure that gives an incident its severity, with the bound that it reaches.
func SeverityReason(names *describe.Names, x *engine.Incident) string {
	g := x.Grounds()
	s := &describe.Severity{Name: g.Severity.String(), Lowest: g.Severity == engine.Minor, Bound: g.Bound}
	if len(x.Suspects) > 0 {
		s.Waits = x.Suspects[0].Queue() != nil
		s.Service, s.Score = names.Table.Text(x.Suspects[0].Service), x.Suspects[0].Score
	}
	if t := g.Failing; t != nil {
		s.Failing, s.Failed = namer{names}.requestType(t.RequestType), t.Failed-t.UsualFailed
	}
	if m := g.Objective; m != nil {
		s.Objective, s.Fast = &describe.Objective{Name: cmp.Or(m.Name, m.Entry)}, m.Fast()
	}
	return names.Severity(s)
}

// reasonOf returns why requests are slower at the place that v located. The reason is zero if the incident's own place
// is another one.
func reasonOf(x *engine.Incident, v *search.Investigation) describe.Reason {
	if x.Place.Operation == v.Answer() {
		return describe.Reason(x.Place.Reason)
	}
	return describe.Reason{}
}

func (n namer) incident(f *IncidentFacts) *Incident {
	x := f.Incident
	period := describe.IncidentPeriod(x.Onset, x.End(), f.At) + " UTC"
	impact := x.Impact(f.At)
	d := &Incident{
		Kind:         string(Kind(x)),
		Severity:     x.Severity().String(),
		Reason:       shorten(SeverityReason(n.names, x), maxSentenceText),
		alertedAs:    x.AlertedSeverity.String(),
		Impact:       Impact{describe.Number(impact.Lost), describe.Number(impact.Failed)},
		period:       period,
		slackPeriod:  describe.IncidentPeriodIn(slackClock, x.Onset, x.End(), f.At),
		ID:           hex16(x.ID),
		URL:          f.URL,
		State:        "open",
		Onset:        moment(x.Onset),
		Opened:       moment(x.LastOpened()),
		Accepted:     x.Last().State == incident.Accepted,
		Acknowledged: f.Acknowledged,
		Sentence:     shorten(Sentence(n.names, x, period).String(), maxSentenceText),
		Affected:     len(x.Types),
		alerted:      n.text(x.Alerted),
		Actions:      []URL{},
		Suspects:     []Culprit{},
		Objectives:   []Objective{},
		RequestTypes: []AffectedType{},
		Deploys:      []Deploy{},
		Traces:       append([]Trace{}, f.Traces[:min(len(f.Traces), maxTraces)]...),
		Search:       n.search(f.Investigation),
		Next:         n.advice(f),
	}
	if v := f.Investigation; v.Answer() != 0 {
		d.located = shorten(describe.Located(n.names, v.Answer(), x.ShareOf(v, v.AnswerShare()), reasonOf(x, v)).String(), maxSentenceText)
	}
	if !x.IsOpen() {
		d.State, d.Ended, d.Closed = "closed", new(moment(x.End())), new(moment(x.Closed()))
	} else {
		d.Actions = actionsAt(f.URL)
	}
	if x.Into() != 0 {
		d.MergedInto = hex16(x.Into())
	}
	suspects := x.Shown()
	for i := range suspects[:min(len(suspects), maxCulprits)] {
		d.Suspects = append(d.Suspects, n.culprit(&suspects[i], f))
	}
	if len(d.Suspects) > 0 {
		d.Service, d.Owner = d.Suspects[0].Service, d.Suspects[0].Owner
	}
	for i := range x.Objectives[:min(len(x.Objectives), maxObjectives)] {
		m := &x.Objectives[i]
		o := Objective{
			Name: clean(cmp.Or(m.Name, m.Entry)), Entry: clean(m.Entry), Kind: m.Kind(), BelowNS: m.Below.Nanoseconds(), Percent: m.Percentile,
			Budget: describe.Number(m.Budget()), Share: describe.Number(m.Requests.Share()), BurnRate: describe.Number(m.Rate), WindowNS: m.Window.Nanoseconds(),
		}
		d.Objectives = append(d.Objectives, o)
	}
	for i := range x.Types[:min(len(x.Types), maxTypes)] {
		t := &x.Types[i]
		d.RequestTypes = append(d.RequestTypes, AffectedType{
			t.RequestType.String(), n.requestType(t.RequestType), t.Requests, describe.Number(t.Mean), describe.Number(t.Usual),
			describe.Number(t.Failed), describe.Number(t.UsualFailed),
		})
	}
	deploys := x.Deploys(f.Deploys)
	for i := len(deploys) - 1; i >= 0 && len(d.Deploys) < maxDeploys; i-- {
		y := deploys[i]
		d.Deploys = append(d.Deploys, Deploy{moment(y.At), n.text(y.Service), n.text(y.Version), n.text(y.Before)})
	}
	return d
}

func (n namer) search(v *search.Investigation) *Search {
	if v == nil {
		return nil
	}
	return &Search{v.Status.String(), clean(v.Reason), len(v.Requested), n.suspects(v.Suspects[:min(len(v.Suspects), maxCulprits)])}
}

// acceptAction is the name of the link to the dialog that accepts an incident.
const acceptAction = "Accept as normal"

// actionsAt returns links that open the dialogs on page, the URL of an open incident's page. It returns an empty list
// if page is empty. Following a link changes nothing, because mail scanners and chats follow links, too.
func actionsAt(page string) []URL {
	if page == "" {
		return []URL{}
	}
	return []URL{{"Acknowledge", page + "?dialog=acknowledge"}, {"Mute", page + "?dialog=mute"}, {acceptAction, page + "?dialog=accept"}}
}

func (n namer) culprit(s *compare.Suspect, f *IncidentFacts) Culprit {
	d := describe.NewSuspect(n.names, s)
	x := Culprit{
		Service: clean(d.Service), EmitsSpans: d.EmitsSpans, Score: d.Score, Parts: d.Parts, Operations: d.Operations[:min(len(d.Operations), maxOperations)],
		Instances: []Instance{}, Owner: f.Directory.Owner(d.Service),
	}
	for i := range x.Operations {
		o := &x.Operations[i]
		cleanAll(&o.Service, &o.Operation)
		o.Target = boundTarget(o.Target)
	}
	for _, i := range s.Instances[:min(len(s.Instances), maxInstances)] {
		x.Instances = append(x.Instances, Instance{n.text(i.Key), n.text(i.Value), describe.Number(i.Part)})
	}
	x.Links = f.Directory.ServiceLinks(f.linkTarget(&x))
	return x
}

// linkTarget returns the suspect s, with its first operation and instance, as the target of links.
func (f *IncidentFacts) linkTarget(s *Culprit) *Request {
	r := &Request{Service: s.Service, Incident: hex16(f.Incident.ID), Start: f.Incident.Onset, End: f.At}
	if len(s.Operations) > 0 {
		r.Operation = s.Operations[0].Operation
	}
	for _, i := range s.Instances {
		r.AddInstance(i.Key, i.Value)
	}
	return r
}

func (n namer) requestType(id analysis.Hash) string {
	if name := n.names.RequestType(id, 0); name != "" {
		return clean(name)
	}
	return "request type " + id.String()[:8] // it was evicted
}

// hex16 returns the ID of an incident as text.
func hex16(id uint64) string { return fmt.Sprintf("%016x", id) }

// lasted returns the time of x from its onset to its end. It is empty while x is open.
func (x *Incident) lasted() string {
	if x.Ended == nil {
		return ""
	}
	return units.Span(trace.Nanos(*x.Ended).Sub(trace.Nanos(x.Onset)))
}

// place returns the place that the investigation located, or "" if it located none.
func (x *Incident) place() string {
	if s := x.Search; s != nil && len(s.Suspects) > 0 && (s.Status == search.Located.String() || s.Status == search.Explained.String()) {
		return s.Suspects[0].place()
	}
	return ""
}

// beganLayout is the layout for the onset of an incident, for people.
const beganLayout = "2006-01-02 15:04:05 UTC"

// figures returns the known figures of an incident; at most thirteen.
func (x *Incident) figures() []figure {
	var list []figure
	add := func(key, name, text string) {
		if text != "" {
			list = append(list, figure{key, name, text})
		}
	}
	var suspects, deploys, traces []string
	for i := range x.Suspects {
		suspects = append(suspects, x.Suspects[i].Service+" "+units.Ratio(float64(x.Suspects[i].Score)))
	}
	add("severity", "Severity", x.Severity)
	add("severity_reason", "Why", shorten(x.Reason, maxText))
	add("impact", "Lost", units.Loss(float64(x.Impact.Lost), float64(x.Impact.Failed)))
	add("located_at", "Located at", x.place())
	add("owner", "Owner", shorten(x.Owner.String(), maxText))
	add("suspects", "Suspects", shorten(strings.Join(suspects, ", "), maxText))
	if x.Affected > 0 {
		add("request_types", "Request types", strconv.Itoa(x.Affected))
		add("most_affected", "Most affected", shorten(x.RequestTypes[0].change(), maxText))
	}
	for _, d := range x.Deploys {
		deploys = append(deploys, d.Service+" "+d.Version+" after "+d.Before)
	}
	add("deploys", "Deploys", shorten(strings.Join(deploys, ", "), maxText))
	for _, t := range x.Traces {
		traces = append(traces, t.ID)
	}
	add("traces", "Sample traces", shorten(strings.Join(traces, " "), maxText))
	add("began", "Began", x.Onset.time().Format(beganLayout))
	add("lasted", "Lasted", x.lasted())
	add("next", "Next step", shorten(x.Next, maxText))
	return list
}

// change describes how a request type changed: its failures or its duration, whichever costs more.
func (t *AffectedType) change() string {
	if (t.Failed-t.UsualFailed)*t.UsualNS > t.MeanNS-t.UsualNS {
		return t.Name + ": " + units.Percent(float64(t.Failed)) + " fail, usually " + units.Percent(float64(t.UsualFailed))
	}
	return t.Name + ": " + units.Nanos(float64(t.MeanNS)) + ", usually " + units.Nanos(float64(t.UsualNS))
}

// incidentAlert returns the alert of an incident. Its labels, which identify it, stay the same until it closes.
func (e *Event) incidentAlert() alert {
	x := e.Data.Incident
	a := alert{
		Labels:       filled("alertname", "SibylIncident", "incident", x.ID, "service", x.alerted, "severity", x.alertedAs),
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
