package api

import (
	"bytes"
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/report/postmortem"
)

// Time around an incident for which its report shows durations.
const (
	reportedBefore = time.Hour
	reportedAfter  = 30 * time.Minute
)

// GetIncidentReport implements contract.StrictServerInterface.
func (a *API) GetIncidentReport(ctx context.Context, r contract.GetIncidentReportRequestObject) (contract.GetIncidentReportResponseObject, error) {
	report, err := a.newReport(ctx, r.Incident)
	if err != nil {
		return nil, err
	}
	html := value(r.Params.Format, contract.GetIncidentReportParamsFormatMarkdown) == contract.GetIncidentReportParamsFormatHTML
	write, extension := postmortem.Markdown, "md"
	if html {
		write, extension = postmortem.HTML, "html"
	}
	body := new(bytes.Buffer)
	if err := write(body, report); err != nil {
		return nil, err
	}
	headers := contract.GetIncidentReport200ResponseHeaders{ContentDisposition: `attachment; filename="incident-` + report.Detail.Incident.ID + "." + extension + `"`}
	if html {
		return contract.GetIncidentReport200TextHTMLResponse{Body: body, Headers: headers}, nil
	}
	return contract.GetIncidentReport200TextMarkdownResponse{Body: body, Headers: headers}, nil
}

// newReport returns an incident with the durations around it.
func (a *API) newReport(ctx context.Context, incident string) (*postmortem.Report, error) {
	answer, err := a.GetIncident(ctx, contract.GetIncidentRequestObject{Incident: incident})
	if err != nil {
		return nil, err
	}
	found := contract.IncidentDetail(*answer.(*contract.GetIncident200JSONResponse)) //nolint:forcetypeassert,errcheck // its only answer
	report := &postmortem.Report{Detail: &found, UI: a.options.UI, At: a.options.Clock()}
	x := &found.Incident
	if len(x.RequestTypes) == 0 {
		return report, nil
	}
	q := contract.GetGroupHistoryParams{From: new(x.Onset.Add(-reportedBefore).Format(time.RFC3339Nano))}
	if x.Closed != nil {
		q.To = new(x.Closed.Add(reportedAfter).Format(time.RFC3339Nano))
	}
	history, err := a.GetGroupHistory(ctx, contract.GetGroupHistoryRequestObject{Group: x.RequestTypes[0].ID, Params: q})
	if h, ok := history.(contract.GetGroupHistory200JSONResponse); ok && err == nil {
		report.Latency = h.Windows
	}
	return report, nil // without the chart if its windows are not kept
}
