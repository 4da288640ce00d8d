package cases

import (
	"context"
	"strings"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/trace"
)

// pagerKey is the prefix of the keys that identify incidents at paging services; see package notify.
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
	page := paged{key: query.Value(e.Data.IncidentKey, ""), by: by, at: "PagerDuty"}
	var err error
	switch e.EventType {
	case "incident.acknowledged":
		err = a.acknowledgePaged(ctx, page)
	case "incident.unacknowledged":
		err = a.unacknowledgePaged(ctx, page)
	case "incident.reassigned", "incident.delegated", "incident.escalated":
		var names []string
		for _, x := range query.Value(e.Data.Assignees, nil) {
			names = append(names, query.Value(x.Summary, ""))
		}
		err = a.assignPaged(ctx, page, strings.Join(names, ", "))
	}
	return contract.AcknowledgeFromPagerDuty204Response{}, err
}

// AcknowledgeFromOpsgenie implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeFromOpsgenie(
	ctx context.Context, r contract.AcknowledgeFromOpsgenieRequestObject,
) (contract.AcknowledgeFromOpsgenieResponseObject, error) {
	x := &r.Body.Alert
	page := paged{key: query.Value(x.Alias, ""), by: query.Value(x.Username, ""), at: "Opsgenie"}
	var err error
	switch r.Body.Action {
	case "Acknowledge":
		err = a.acknowledgePaged(ctx, page)
	case "UnAcknowledge":
		err = a.unacknowledgePaged(ctx, page)
	case "AssignOwnership", "TakeOwnership":
		err = a.assignPaged(ctx, page, query.Value(x.Owner, ""))
	}
	return contract.AcknowledgeFromOpsgenie204Response{}, err
}

// paged is a change that a person made to an alert at a paging service.
type paged struct {
	key string
	by  string // the person; empty: unknown
	at  string // the paging service
}

// pagedIncident returns the ID of the incident that p is about, and a context whose caller is the person. If the alert
// isn't about an incident that Sibyl knows, the ID is empty and the error nil, so that the paging service doesn't
// retry.
func (a *Cases) pagedIncident(ctx context.Context, p paged) (context.Context, string, error) {
	id, ours := strings.CutPrefix(p.key, pagerKey)
	s, err := a.reader.Current(ctx)
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

// acknowledgePaged acknowledges an incident unless it is already acknowledged: paging services also report back the
// acknowledgements that Sibyl sent to them.
func (a *Cases) acknowledgePaged(ctx context.Context, p paged) error {
	ctx, id, err := a.pagedIncident(ctx, p)
	if err != nil || id == "" || a.options.Notes.All(a.options.Clock())[id].Acknowledged != nil {
		return err
	}
	_, err = a.note(ctx, aboutIncident, id, Acknowledged, &contract.NoteRequest{})
	return err
}

// unacknowledgePaged removes the acknowledgement of an incident.
func (a *Cases) unacknowledgePaged(ctx context.Context, p paged) error {
	_, id, err := a.pagedIncident(ctx, p)
	if err != nil || id == "" {
		return err
	}
	return a.removeNote(id, Acknowledged)
}

// assignPaged adds a comment that an incident was assigned to somebody. An event that is delivered twice adds only one.
func (a *Cases) assignPaged(ctx context.Context, p paged, to string) error {
	ctx, id, err := a.pagedIncident(ctx, p)
	if err != nil || id == "" || to == "" {
		return err
	}
	text := "Assigned to " + trace.Printable(to, maxPerson)
	by := access.Caller(ctx).Name
	known := func(x contract.Comment) bool { return x.Text == text && x.By == by }
	if all := a.options.Comments.Of(id); len(all) > 0 && known(all[len(all)-1]) {
		return nil
	}
	body := &contract.CommentRequest{Text: text}
	_, err = a.AddComment(ctx, contract.AddCommentRequestObject{Incident: id, Body: body})
	return err
}
