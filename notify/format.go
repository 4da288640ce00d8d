package notify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// format defines the messages for one kind of receiver.
type format struct {
	contentType  string
	path         string             // default path of endpoints
	keepsState   bool               // the receiver keeps alerts, and must be told when they end
	acknowledges bool               // the receiver keeps alerts, and must be told of acknowledgements
	body         func(e *Event) any // returns the value to encode as JSON, or nil if e is not sent

	// target returns the path to append to an endpoint's URL, and the query, for a body. It may be nil.
	target func(t Type, subject search.Subject, body []byte) (path, query string)
	// authorize adds the token of an endpoint to the header or the body of a call, and returns the body. It is nil if
	// the format uses no token.
	authorize func(h http.Header, token string, body []byte) []byte
}

const jsonType = "application/json"

// formats holds the formats by their names in the configuration. E-mail destinations have the format email.
var formats = map[string]format{
	"sibyl":              {contentType: jsonType, body: func(e *Event) any { return e }},
	"cloudevents":        {contentType: "application/cloudevents+json", body: cloudEvent},
	"alertmanager":       {contentType: jsonType, path: "/api/v2/alerts", keepsState: true, body: alerts},
	"grafana-annotation": {contentType: jsonType, path: "/api/annotations", body: annotation},
	"slack":              {contentType: jsonType, body: slackMessage},
	"teams":              {contentType: jsonType, body: teams},
	"pagerduty": {
		contentType:  jsonType,
		path:         "/v2/enqueue",
		keepsState:   true,
		acknowledges: true,
		body:         pagerDuty,
		authorize:    addRoutingKey,
	},
	"opsgenie": {
		contentType:  jsonType,
		path:         "/v2/alerts",
		keepsState:   true,
		acknowledges: true,
		body:         opsgenie,
		target:       opsgenieTarget,
		authorize:    addGenieKey,
	},
	"email": {contentType: "message/rfc822", body: mailOf},
}

// NeedsToken reports whether calls in the format called name need a token.
func NeedsToken(name string) bool { return formats[name].authorize != nil }

// render returns the body of e, or nil if e isn't sent in this format.
func (f *format) render(e *Event) []byte {
	v := f.body(e)
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and numbers can be encoded; NaN becomes null
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// cloudEvent returns e in the structured mode of CloudEvents 1.0.
func cloudEvent(e *Event) any {
	subject := ""
	switch {
	case e.Data.Incident != nil:
		subject = e.Data.Incident.ID
	case e.Data.Problem != nil:
		subject = e.Data.Problem.ID
	}
	return struct {
		Version     string `json:"specversion"`
		ID          string `json:"id"`
		Source      string `json:"source"`
		Type        string `json:"type"`
		Subject     string `json:"subject,omitempty"`
		Time        moment `json:"time"`
		ContentType string `json:"datacontenttype"`
		Data        *Data  `json:"data"`
	}{
		"1.0", e.ID, escapeSource(e.Source), "com.github.sibyl-trace." + string(e.Type), subject, e.At,
		"application/json", &e.Data,
	}
}

// escapeSource returns s as a URI reference, which CloudEvents requires not to be empty.
func escapeSource(s string) string {
	if s == "" {
		return "/sibyl"
	}
	return strings.ReplaceAll(s, " ", "%20")
}

const (
	// alertLife is the lifetime of an alert without further events. A problem may stay open for a long time without
	// events, but Alertmanager resolves an alert without an end time after a few minutes.
	alertLife = 7 * 24 * time.Hour
	// testLife is the lifetime of a test event's alert.
	testLife = time.Minute
)

// alert is a postable alert of Alertmanager's API, version 2.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     moment            `json:"startsAt"`
	EndsAt       moment            `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// alerts returns the alert of an incident, of a problem that changed, or of any problem that closed. Chronic problems
// raise no alert. An event about a decision keeps the problem's alert alive, and raises the alert if the problem is no
// longer chronic. The labels identify the alert, so they stay the same for the lifetime of the incident or problem.
func alerts(e *Event) any {
	var a alert
	switch p := e.Data.Problem; {
	case e.Type == IncidentAcknowledged, e.Type == IncidentSteady:
		return nil // Alertmanager has neither acknowledgements nor notes
	case e.Data.Incident != nil:
		a = e.incidentAlert()
	case p != nil && (e.resolved || e.Type == Test || p.Onset == "changed"):
		a = e.problemAlert()
	default:
		return nil
	}
	for _, f := range e.figures() {
		if f.text != "" {
			a.Annotations[f.key] = f.text
		}
	}
	if traces := e.traces(); len(traces) > 0 && len(traces[0].Links) > 0 {
		a.Annotations["trace"] = traces[0].Links[0].URL
	}
	for _, l := range slices.Concat(e.serviceLinks(), e.actions()) {
		a.Annotations[annotationName(l.Name)] = l.URL
	}
	return []alert{a}
}

// annotationName returns the name of the annotation for a link, like link_runbook.
func annotationName(link string) string {
	return strings.Map(func(r rune) rune {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return '_'
		}
		return r
	}, strings.ToLower("link "+link))
}

// problemAlert returns the alert of a problem.
func (e *Event) problemAlert() alert {
	p := e.Data.Problem
	a := alert{
		Labels: filled("alertname", "SibylProblem", "problem", p.ID,
			"service", p.Service, "operation", p.Operation),
		Annotations: filled("summary", cmp.Or(p.Diagnosis, e.sentence()), "request_type", p.RequestType,
			"status", p.Status, "kind", p.Kind),
		StartsAt:     p.Opened,
		EndsAt:       moment(e.At.time().Add(alertLife).UnixNano()),
		GeneratorURL: p.URL,
	}
	switch {
	case e.Type == Test:
		a.Labels["alertname"] = "SibylTest"
		a.EndsAt = moment(e.At.time().Add(testLife).UnixNano())
	case e.resolved:
		a.EndsAt = e.At
	}
	return a
}

// filled returns a map from keys to values, without empty values. pairs alternates keys and values.
func filled(pairs ...string) map[string]string {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m[pairs[i]] = pairs[i+1]
		}
	}
	return m
}

// annotation returns e as an annotation for Grafana. The annotation marks a point in time or, if e is about the end of
// an incident or a problem, its lifetime.
func annotation(e *Event) any {
	a := struct {
		Time int64    `json:"time"` // ms
		End  int64    `json:"timeEnd,omitempty"`
		Tags []string `json:"tags"`
		Text string   `json:"text"`
	}{Time: e.At.time().UnixMilli(), Tags: []string{"sibyl", string(e.Type)}}
	if x := e.Data.Incident; x != nil {
		a.Tags = append(a.Tags, "severity:"+x.Severity)
	}
	var text strings.Builder
	text.WriteString(html.EscapeString(e.title() + ": " + e.sentence()))
	kind, id, service, opened := e.about()
	if id != "" {
		a.Tags = append(a.Tags, kind+":"+id)
	}
	if service != "" {
		a.Tags = append(a.Tags, "service:"+service)
	}
	if e.Type == ProblemClosed || e.Type == IncidentClosed {
		a.Time, a.End = opened.time().UnixMilli(), e.At.time().UnixMilli()
	}
	for _, l := range e.links() {
		fmt.Fprintf(&text, ` <a href="%s">%s</a>`, html.EscapeString(l.URL), html.EscapeString(l.Name))
	}
	a.Text = text.String()
	return a
}

var titles = map[Type]string{
	IncidentOpened:       "Incident opened",
	IncidentLocated:      "Incident located",
	IncidentAcknowledged: "Incident acknowledged",
	IncidentSteady:       "Incident steady for a day",
	IncidentClosed:       "Incident closed",
	ProblemOpened:        "Problem opened",
	ProblemLocated:       "Problem located",
	ProblemExplained:     "Problem explained",
	ProblemClosed:        "Problem closed",
	Decided:              "Decision",
	Test:                 "Test",
}

// title returns the title of the event. If the event opens an incident, the title includes the severity.
func (e *Event) title() string {
	x := e.Data.Incident
	switch {
	case x != nil && e.Type == IncidentClosed && x.Accepted:
		return "Incident accepted as normal"
	case x != nil && e.Type == IncidentOpened:
		return titles[e.Type] + ", " + x.Severity
	}
	return titles[e.Type]
}

// sentence describes e in one sentence.
func (e *Event) sentence() string { return inUTC(e.phrases()) }

// phrases returns the sentence about e, in phrases.
func (e *Event) phrases() describe.Sentence {
	p, d, x := e.Data.Problem, e.Data.Decision, e.Data.Incident
	switch {
	case x != nil && e.Type == Decided && d != nil:
		return words(d.sentence() + " (incident in " + x.Service + ")")
	case x != nil && e.Type == IncidentAcknowledged && x.Acknowledged != nil:
		return slices.Concat(words(x.Acknowledged.sentence()+" "), x.sentence)
	case x != nil && e.Type == IncidentLocated && len(x.located) > 0 && !x.placed:
		return slices.Concat(x.located, words(". "), x.sentence)
	case x != nil && e.Type == IncidentSteady:
		return slices.Concat(x.sentence, words(" If this is normal now, accept it."))
	case x != nil:
		return x.sentence
	case e.Type == Decided && d != nil && p != nil:
		return words(d.sentence() + " (" + p.RequestType + ")")
	case e.Type == Decided && d != nil:
		return words(d.sentence())
	case p != nil && p.Diagnosis != "":
		return words(p.Diagnosis)
	case p != nil && d != nil && d.Reason != "":
		return words(p.RequestType + ": " + d.Reason)
	case p != nil:
		return words(p.RequestType)
	}
	return words(string(e.Type))
}

// words returns text as a sentence without data.
func words(text string) describe.Sentence { return describe.Sentence{{Text: text}} }

// inUTC returns the text of s, with "UTC" after the last time in it.
func inUTC(s describe.Sentence) string {
	last := len(s) - 1
	for last >= 0 && s[last].Kind != describe.TimePhrase {
		last--
	}
	if last < 0 {
		return s.String()
	}
	return s[:last+1].String() + " UTC" + s[last+1:].String()
}

// bounded returns s, made printable and cut off after `most` runes.
func bounded(s describe.Sentence, most int) (all describe.Sentence) {
	for _, p := range s {
		n := utf8.RuneCountInString(p.Text)
		p.Text = trace.Printable(p.Text, most)
		all = append(all, p)
		if n > most {
			break
		}
		most -= n
	}
	return all
}

// sentence returns a sentence that names the person who acknowledged an incident, and the reason.
func (n *Note) sentence() string {
	if n.Text == "" {
		return cmp.Or(n.By, "Somebody") + " acknowledged it."
	}
	return cmp.Or(n.By, "Somebody") + " acknowledged it: " + n.Text + "."
}

// maxNamed is the maximum number of tracepoints that a sentence names.
const maxNamed = 3

// sentence describes d in one sentence.
func (d *Decision) sentence() string {
	var parts []string
	if len(d.On) > 0 {
		var names []string
		for _, k := range d.On[:min(len(d.On), maxNamed)] {
			names = append(names, k.Tracepoint)
		}
		parts = append(parts, fmt.Sprintf("%d switched on: %s", len(d.On), listed(names, len(d.On))))
	}
	if len(d.Off) > 0 {
		var names []string
		for _, x := range d.Off[:min(len(d.Off), maxNamed)] {
			names = append(names, x.Tracepoint)
		}
		parts = append(parts, fmt.Sprintf("%d switched off: %s", len(d.Off), listed(names, len(d.Off))))
	}
	if d.Reason != "" {
		parts = append(parts, d.Reason)
	}
	return strings.Join(parts, "; ")
}

// listed joins names, the first of `all` names, and adds an ellipsis if there are more.
func listed(names []string, all int) string {
	if s := strings.Join(names, ", "); all <= len(names) {
		return s
	}
	return strings.Join(names, ", ") + " …"
}

// figure is a number or name about an incident or a problem, with a label for people and a key for programs.
type figure struct{ key, name, text string }

// figures returns the known figures of the event's incident or problem.
func (e *Event) figures() []figure {
	if x := e.Data.Incident; x != nil {
		return x.figures()
	}
	var list []figure
	add := func(known bool, key, name, text string) {
		if known {
			list = append(list, figure{key, name, text})
		}
	}
	p := e.Data.Problem
	if p == nil {
		return nil
	}
	place := e.place()
	add(place != "", "located_at", "Located at", place)
	if p.Edge != nil {
		add(true, "edge", "Edge", p.Edge.Name)
	}
	add(p.CoV.Known(), "cov", "CoV", units.Ratio(float64(p.CoV)))
	for _, x := range []struct {
		key, name string
		ns        *int64
	}{{"p50", "p50", p.P50NS}, {"p99", "p99", p.P99NS}, {"mean", "Mean", p.MeanNS}} {
		if x.ns != nil {
			add(true, x.key, x.name, units.Nanos(float64(*x.ns)))
		}
	}
	add(p.Impact > 0, "impact", "Impact", units.Nanos(float64(p.Impact))+" lost per second")
	add(p.Requests > 0, "requests", "Requests", strconv.FormatUint(p.Requests, 10))
	if len(p.Explanations) > 0 {
		add(true, "goes_with", "Correlated with", p.Explanations[0].Name)
	}
	return list
}

// place returns the located place, or "" if the event isn't about a located problem.
func (e *Event) place() string {
	d := e.Data.Decision
	if e.Type != ProblemLocated && e.Type != ProblemExplained || d == nil || len(d.Suspects) == 0 {
		return ""
	}
	return d.Suspects[0].place()
}

// place returns the name of the place of s: its tracepoint or, if it has no tracepoint, its operation.
func (s *Suspect) place() string {
	if s.Tracepoint != "" || len(s.Context) == 0 {
		return s.Tracepoint
	}
	return s.Context[len(s.Context)-1]
}

// Limits on links in a message. Slack allows ten, including the page of the incident and its actions.
const (
	maxTraceLinks = 3
	maxPageLinks  = 3 // about the first suspect
)

// about returns the kind of the incident or problem of e, its ID, its service and the time when it opened. All are zero
// if e is about neither.
func (e *Event) about() (kind, id, service string, opened moment) {
	if x := e.Data.Incident; x != nil {
		return "incident", x.ID, x.Service, x.Opened
	}
	if p := e.Data.Problem; p != nil {
		return "problem", p.ID, p.Service, p.Opened
	}
	return "", "", "", 0
}

// traces returns the sample traces of the event.
func (e *Event) traces() []Trace {
	switch {
	case e.Data.Incident != nil:
		return e.Data.Incident.Traces
	case e.Data.Problem != nil:
		return e.Data.Problem.Traces
	}
	return nil
}

// page returns the URL of the event's page, which may be empty.
func (e *Event) page() string {
	switch {
	case e.Data.Incident != nil:
		return e.Data.Incident.URL
	case e.Data.Problem != nil:
		return e.Data.Problem.URL
	}
	return ""
}

// links returns links for people: to the page of the incident or problem, to pages about the first suspect, to slow
// traces, and to dialogs that change the incident.
func (e *Event) links() []directory.URL {
	var list []directory.URL
	if page := e.page(); page != "" {
		list = append(list, directory.URL{Name: "Sibyl", URL: page})
	}
	services := e.serviceLinks()
	return slices.Concat(list, services[:min(len(services), maxPageLinks)], e.traceLinks(), e.actions())
}

// traceLinks returns links to the first traces of the event, with their durations.
func (e *Event) traceLinks() []directory.URL {
	var list []directory.URL
	for _, t := range e.traces() {
		for _, l := range t.Links {
			if len(list) < maxTraceLinks {
				text := units.Nanos(float64(t.DurationNS))
				if t.Failed {
					text = "failed, " + text
				}
				list = append(list, directory.URL{Name: l.Name + " (" + text + ")", URL: l.URL})
			}
		}
	}
	return list
}

// serviceLinks returns the links to pages about the first suspect of the event's incident, or nil if there is no
// incident.
func (e *Event) serviceLinks() []directory.URL {
	if x := e.Data.Incident; x != nil && len(x.Suspects) > 0 {
		return x.Suspects[0].Links
	}
	return nil
}

// actions returns the links to the dialogs that change the event's incident, or nil if there is no incident.
func (e *Event) actions() []directory.URL {
	if x := e.Data.Incident; x != nil {
		return x.Actions
	}
	return nil
}
