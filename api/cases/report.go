package cases

import (
	"bytes"
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/report/postmortem"
	"github.com/sibyl-trace/sibyl/trace"
)

// The latency chart in an incident's report starts reportedBefore before the onset and ends reportedAfter after the
// incident closed.
const (
	reportedBefore = time.Hour
	reportedAfter  = 30 * time.Minute
)

// GetIncidentReport implements contract.StrictServerInterface.
func (a *Cases) GetIncidentReport(
	ctx context.Context, r contract.GetIncidentReportRequestObject,
) (contract.GetIncidentReportResponseObject, error) {
	report, err := a.newReport(ctx, r.Incident)
	if err != nil {
		return nil, err
	}
	format := query.Value(r.Params.Format, contract.GetIncidentReportParamsFormatMarkdown)
	html := format == contract.GetIncidentReportParamsFormatHTML
	write, extension := postmortem.Markdown, "md"
	if html {
		write, extension = postmortem.HTML, "html"
	}
	body := new(bytes.Buffer)
	if err := write(body, report); err != nil {
		return nil, err
	}
	headers := contract.GetIncidentReport200ResponseHeaders{
		ContentDisposition: `attachment; filename="incident-` + report.Detail.Incident.ID + "." + extension + `"`,
	}
	if html {
		return contract.GetIncidentReport200TextHTMLResponse{Body: body, Headers: headers}, nil
	}
	return contract.GetIncidentReport200TextMarkdownResponse{Body: body, Headers: headers}, nil
}

// newReport returns the report of an incident, including the durations of requests before, during and after it.
func (a *Cases) newReport(ctx context.Context, incident string) (*postmortem.Report, error) {
	answer, err := a.GetIncident(ctx, contract.GetIncidentRequestObject{Incident: incident})
	if err != nil {
		return nil, err
	}
	known := answer.(*contract.GetIncident200JSONResponse) //nolint:forcetypeassert,errcheck // its only answer
	found := contract.IncidentDetail(*known)
	report := &postmortem.Report{Detail: &found, UI: a.options.UI, At: a.options.Clock()}
	x := &found.Incident
	if len(x.RequestTypes) == 0 {
		return report, nil
	}
	report.Latency, err = a.latencyAround(ctx, x)
	return report, err
}

// latencyAround returns the durations of requests of the first request type of x before, during and after x.
func (a *Cases) latencyAround(ctx context.Context, x *contract.Incident) ([]contract.PastWindow, error) {
	id, err := analysis.ParseHash(x.RequestTypes[0].ID)
	if err != nil {
		return nil, err
	}
	onset, to := trace.Nanos(x.Onset.UnixNano()), trace.Nanos(a.options.Clock().UnixNano())
	if x.Closed != nil {
		to = min(to, trace.Nanos(x.Closed.Add(reportedAfter).UnixNano()))
	}
	return a.options.Latencies.Around(ctx, id, onset.Add(-reportedBefore), to, onset)
}
