package notify

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// step is the change that an event makes to an alert of a paging service.
type step int

const (
	stepNone step = iota
	stepOpen
	stepUpdate
	stepNote // not sent where it would reopen an alert that a person closed
	stepAcknowledge
	stepClose
)

// step returns the change that e makes. Events about a closed incident or problem must not reopen its alert, so only
// the event about its end changes the alert. Chronic problems have no alert.
func (e *Event) step() step {
	p := e.Data.Problem
	changed := p != nil && p.Onset == "changed"
	switch {
	case e.Type == Test:
		return stepOpen
	case e.resolved && (e.Type == IncidentClosed || e.Type == ProblemClosed):
		return stepClose
	case e.resolved:
		return stepNone
	case e.Type == IncidentOpened, e.Type == ProblemOpened && changed:
		return stepOpen
	case e.Type == IncidentAcknowledged:
		return stepAcknowledge
	case e.Type == IncidentSteady:
		return stepNote
	case e.Type == IncidentLocated, (e.Type == ProblemLocated || e.Type == ProblemExplained) && changed:
		return stepUpdate
	}
	return stepNone
}

// alertKey identifies the alert of an incident or a problem. All events about the incident or problem have the same
// key.
func alertKey(t Type, subject search.Subject) string {
	switch {
	case t == Test:
		return "sibyl-test"
	case subject.Kind == search.IncidentSubject:
		return "sibyl-incident-" + subject.String()
	}
	return "sibyl-problem-" + subject.String()
}

// Limits that PagerDuty and Opsgenie set, in characters.
const (
	maxSummary  = 1024 // of PagerDuty
	maxMessage  = 130  // this and the following are limits of Opsgenie
	maxNoteText = 15_000
	maxUser     = 100
	maxEntity   = 512
)

// pagerDutyEvent is an event of PagerDuty's Events API, version 2, without the routing key.
type pagerDutyEvent struct {
	Action    string            `json:"event_action"`
	Key       string            `json:"dedup_key"`
	Client    string            `json:"client,omitempty"`
	ClientURL string            `json:"client_url,omitempty"`
	Payload   *pagerDutyPayload `json:"payload,omitempty"` // only of a trigger
	Links     []pagerDutyLink   `json:"links,omitempty"`
}

type pagerDutyPayload struct {
	Summary   string            `json:"summary"`
	Source    string            `json:"source"`
	Severity  string            `json:"severity"`
	Timestamp moment            `json:"timestamp"`
	Component string            `json:"component,omitempty"`
	Group     string            `json:"group,omitempty"`
	Class     string            `json:"class"`
	Details   map[string]string `json:"custom_details"`
}

type pagerDutyLink struct {
	Address string `json:"href"`
	Text    string `json:"text"`
}

var pagerDutyActions = map[step]string{
	stepOpen:        "trigger",
	stepUpdate:      "trigger",
	stepAcknowledge: "acknowledge",
	stepClose:       "resolve",
}

// pagerDutySeverities and opsgeniePriorities translate the severities of incidents.
var (
	pagerDutySeverities = map[string]string{
		engine.Critical.String(): "critical", engine.Major.String(): "error", engine.Minor.String(): "warning",
	}
	opsgeniePriorities = map[string]string{
		engine.Critical.String(): "P1", engine.Major.String(): "P2", engine.Minor.String(): "P3",
	}
)

// pagerDuty returns e in the form of PagerDuty, or nil if e isn't sent. A further trigger with the same key adds to the
// alert without notifying anybody. But if a person has resolved the alert, the trigger pages again. That is likely to
// have happened after a day, so events about steady incidents aren't sent to PagerDuty.
func pagerDuty(e *Event) any {
	action := pagerDutyActions[e.step()]
	if action == "" {
		return nil
	}
	event := pagerDutyEvent{Action: action, Key: alertKey(e.Type, e.subject)}
	if action != "trigger" {
		return event
	}
	kind, _, service, began := e.about()
	event.Client, event.ClientURL = "Sibyl", e.page()
	event.Payload = &pagerDutyPayload{
		Summary:   trace.Printable(cmp.Or(e.sentence(), string(e.Type)), maxSummary-1),
		Source:    cmp.Or(service, "sibyl"),
		Severity:  "warning",
		Timestamp: began,
		Component: service,
		Class:     kind,
		Details:   make(map[string]string),
	}
	if x := e.Data.Incident; x != nil {
		event.Payload.Severity, event.Payload.Timestamp = pagerDutySeverities[x.Severity], x.Onset
		if x.Owner != nil {
			event.Payload.Group = x.Owner.Name
		}
	}
	if e.Type == Test {
		event.Payload.Severity = "info"
	}
	for _, f := range e.figures() {
		event.Payload.Details[f.key] = f.text
	}
	for _, l := range e.links() {
		event.Links = append(event.Links, pagerDutyLink{l.URL, l.Name})
	}
	return event
}

// addRoutingKey adds the routing key to the body of a call, which must be a JSON object with at least one field. Stored
// bodies don't contain it.
func addRoutingKey(_ http.Header, key string, body []byte) []byte {
	text, err := json.Marshal(key)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return append(append(append([]byte(`{"routing_key":`), text...), ','), body[1:]...)
}

// opsgenieAlert is the body of a call that creates an alert in Opsgenie.
type opsgenieAlert struct {
	Message     string            `json:"message"`
	Alias       string            `json:"alias"`
	Description string            `json:"description"`
	Tags        []string          `json:"tags"`
	Details     map[string]string `json:"details"`
	Entity      string            `json:"entity,omitempty"`
	Source      string            `json:"source"`
	Priority    string            `json:"priority"`
}

// opsgenieChange is the body of a call that changes an alert in Opsgenie. The path of the call selects the change.
type opsgenieChange struct {
	User   string `json:"user,omitempty"`
	Source string `json:"source"`
	Note   string `json:"note"`
}

// opsgenie returns e in the form of Opsgenie's Alert API, or nil if e isn't sent. See opsgenieTarget for the path.
func opsgenie(e *Event) any {
	switch e.step() {
	case stepNone:
		return nil
	case stepOpen:
	case stepUpdate, stepNote, stepAcknowledge, stepClose:
		change := opsgenieChange{
			Source: "Sibyl",
			Note:   e.title() + ": " + trace.Printable(e.sentence(), maxSentenceText),
		}
		if url := e.acceptURL(); e.Type == IncidentSteady && url != "" {
			change.Note += " " + url
		}
		if x := e.Data.Incident; e.Type == IncidentAcknowledged && x != nil && x.Acknowledged != nil {
			change.User = trace.Printable(x.Acknowledged.By, maxUser-1)
		}
		return change
	}
	kind, id, service, _ := e.about()
	alert := opsgenieAlert{
		Message:     trace.Printable(cmp.Or(e.sentence(), string(e.Type)), maxMessage-1),
		Alias:       alertKey(e.Type, e.subject),
		Description: shortenLines(e.text(), maxNoteText),
		Tags:        []string{"sibyl"},
		Details:     map[string]string{kind: id, "service": service},
		Entity:      trace.Printable(service, maxEntity-1),
		Source:      "Sibyl",
		Priority:    "P3",
	}
	for _, f := range e.figures() {
		alert.Details[f.key] = f.text
	}
	switch {
	case e.Type == Test:
		alert.Priority = "P5"
	case e.Data.Incident != nil:
		alert.Priority = opsgeniePriorities[e.Data.Incident.Severity]
	}
	return alert
}

// acceptURL returns the link to the dialog that accepts the incident of e as normal, or "" if e has no such link.
func (e *Event) acceptURL() string {
	for _, l := range e.actions() {
		if l.Name == acceptAction {
			return l.URL
		}
	}
	return ""
}

// opsgenieTarget returns the path, relative to the path of Opsgenie's alerts, and the query of a call with the given
// body. Both are empty if the body creates an alert; otherwise, they select the alert of subject, and the change.
func opsgenieTarget(t Type, subject search.Subject, body []byte) (path, query string) {
	var created struct{ Alias string }
	if json.Unmarshal(body, &created) == nil && created.Alias != "" {
		return "", ""
	}
	verb := cmp.Or(opsgenieVerbs[t], "notes")
	return "/" + url.PathEscape(alertKey(t, subject)) + "/" + verb, "identifierType=alias"
}

// opsgenieVerbs holds the last element of the path for events that change more than the notes of an alert.
var opsgenieVerbs = map[Type]string{
	IncidentAcknowledged: "acknowledge",
	IncidentClosed:       "close",
	ProblemClosed:        "close",
}

// addGenieKey adds the key of the Opsgenie integration to the header of a call.
func addGenieKey(h http.Header, key string, body []byte) []byte {
	h.Set("Authorization", "GenieKey "+key)
	return body
}
