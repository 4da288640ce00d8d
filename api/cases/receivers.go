package cases

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/trace"
)

// pagerKey is the prefix of the keys that identify Sibyl's incidents at paging services; see package notify.
const pagerKey = "sibyl-incident-"

// maxPerson is the maximum length of a person's name at a paging service.
const maxPerson = 100

// AcknowledgeFromPagerDuty implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeFromPagerDuty(
	ctx context.Context, r contract.AcknowledgeFromPagerDutyRequestObject,
) (contract.AcknowledgeFromPagerDutyResponseObject, error) {
	e := &r.Body.Event
	by := ""
	if e.Agent != nil {
		by = query.Value(e.Agent.Summary, "")
	}
	page := paged{cases: a, key: query.Value(e.Data.IncidentKey, ""), by: by, at: "PagerDuty"}
	var err error
	switch e.EventType {
	case "incident.acknowledged":
		err = page.acknowledge(ctx)
	case "incident.unacknowledged":
		err = page.unacknowledge(ctx)
	case "incident.reassigned", "incident.delegated", "incident.escalated":
		var names []string
		for _, x := range query.Value(e.Data.Assignees, nil) {
			names = append(names, query.Value(x.Summary, ""))
		}
		err = page.assign(ctx, strings.Join(names, ", "))
	}
	return contract.AcknowledgeFromPagerDuty204Response{}, err
}

// AcknowledgeFromOpsgenie implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeFromOpsgenie(
	ctx context.Context, r contract.AcknowledgeFromOpsgenieRequestObject,
) (contract.AcknowledgeFromOpsgenieResponseObject, error) {
	x := &r.Body.Alert
	page := paged{cases: a, key: query.Value(x.Alias, ""), by: query.Value(x.Username, ""), at: "Opsgenie"}
	var err error
	switch r.Body.Action {
	case "Acknowledge":
		err = page.acknowledge(ctx)
	case "UnAcknowledge":
		err = page.unacknowledge(ctx)
	case "AssignOwnership", "TakeOwnership":
		err = page.assign(ctx, query.Value(x.Owner, ""))
	}
	return contract.AcknowledgeFromOpsgenie204Response{}, err
}

// silencedFromSlack is the length of a silence that somebody starts in Slack, as its button says.
const silencedFromSlack = time.Hour

// replyTimeout is the time that a reply to Slack may take. Slack waits for the answer to a click for three seconds.
const replyTimeout = 2 * time.Second

// AcknowledgeFromSlack implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeFromSlack(
	ctx context.Context, r contract.AcknowledgeFromSlackRequestObject,
) (contract.AcknowledgeFromSlackResponseObject, error) {
	by := ""
	if r.Body.User != nil {
		by = query.Value(r.Body.User.Username, "")
	}
	for _, x := range query.Value(r.Body.Actions, nil) {
		page := paged{cases: a, key: query.Value(x.Value, ""), by: by, at: "Slack"}
		var err error
		switch query.Value(x.ActionID, "") {
		case "acknowledge":
			err = page.acknowledge(ctx)
		case "silence":
			err = page.silence(ctx, query.Value(r.Body.ResponseURL, ""))
		}
		if err != nil {
			return nil, err
		}
	}
	return contract.AcknowledgeFromSlack200Response{}, nil
}

// paged is a change to an alert that a person made at a paging service.
type paged struct {
	cases *Cases
	key   string
	by    string // the person; empty: unknown
	at    string // the paging service
}

// incident returns the ID of the incident that p is about, and a context whose caller is the person. If the alert
// isn't about an incident that Sibyl knows, the ID is empty and the error nil, so that the paging service doesn't
// retry.
func (p *paged) incident(ctx context.Context) (context.Context, string, error) {
	id, ours := strings.CutPrefix(p.key, pagerKey)
	s, err := p.cases.reader.Current(ctx)
	if err != nil || !ours || !has(s, aboutIncident, id) {
		return ctx, "", err
	}
	who := access.Caller(ctx)
	who.Name = p.at
	if p.by != "" {
		who.Name = trace.Printable(p.by, maxPerson) + " (" + p.at + ")"
	}
	return access.WithCaller(ctx, who), id, nil
}

// acknowledge acknowledges an incident unless it is already acknowledged: paging services also report back the
// acknowledgements that Sibyl sent to them.
func (p *paged) acknowledge(ctx context.Context) error {
	ctx, id, err := p.incident(ctx)
	if err != nil || id == "" || p.cases.options.Notes.All(p.cases.options.Clock())[id].Acknowledged != nil {
		return err
	}
	_, err = p.cases.note(ctx, aboutIncident, id, Acknowledged, &contract.NoteRequest{})
	return err
}

// silence silences the first suspect of an incident for silencedFromSlack, and says so at the URL for replies. No event
// tells of a silence, so without the reply people would click again.
func (p *paged) silence(ctx context.Context, reply string) error {
	ctx, id, err := p.incident(ctx)
	if err != nil || id == "" {
		return err
	}
	s, err := p.cases.reader.Current(ctx)
	if err != nil {
		return err
	}
	service, by := s.Incidents[s.IncidentByID[id]].Service, access.Caller(ctx).Name
	until := p.cases.options.Clock().Add(silencedFromSlack).UTC()
	_, err = p.cases.AddSilence(ctx, contract.AddSilenceRequestObject{Body: &contract.SilenceRequest{
		Match: contract.SilenceMatch{Service: service},
		Until: until,
		Text:  "for an hour, from Slack",
	}})
	if err != nil || reply == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	text := fmt.Sprintf("%s silenced incidents of %s until %s UTC.", by, service, until.Format("15:04"))
	if err := p.cases.options.Reply(ctx, reply, text); err != nil {
		p.cases.options.Log.WarnContext(ctx, "Slack could not be told of a silence", slog.Any("error", err))
	}
	return nil
}

// unacknowledge removes the acknowledgement of an incident.
func (p *paged) unacknowledge(ctx context.Context) error {
	_, id, err := p.incident(ctx)
	if err != nil || id == "" {
		return err
	}
	return p.cases.removeNote(id, Acknowledged)
}

// assign adds a comment saying that the incident was assigned to `to`. If the paging service delivers the event twice,
// assign adds only one comment.
func (p *paged) assign(ctx context.Context, to string) error {
	ctx, id, err := p.incident(ctx)
	if err != nil || id == "" || to == "" {
		return err
	}
	text := "Assigned to " + trace.Printable(to, maxPerson)
	by := access.Caller(ctx).Name
	known := func(x contract.Comment) bool { return x.Text == text && x.By == by }
	if all := p.cases.options.Comments.Of(id); len(all) > 0 && known(all[len(all)-1]) {
		return nil
	}
	body := &contract.CommentRequest{Text: text}
	_, err = p.cases.AddComment(ctx, contract.AddCommentRequestObject{Incident: id, Body: body})
	return err
}
