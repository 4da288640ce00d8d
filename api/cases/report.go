package api

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/report/postmortem"
	"github.com/sibyl-trace/sibyl/trace"
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
	report.Latency, err = a.latencyAround(ctx, x)
	return report, err
}

// latencyAround returns the durations of the first request type of x, before, within and after x, in bins. One begins
// at the onset. There are none if they are not kept.
func (a *API) latencyAround(ctx context.Context, x *contract.Incident) ([]contract.PastWindow, error) {
	id, err := analysis.ParseHash(x.RequestTypes[0].ID)
	if err != nil {
		return nil, err
	}
	onset, to := trace.Nanos(x.Onset.UnixNano()), trace.Nanos(a.options.Clock().UnixNano())
	if x.Closed != nil {
		to = min(to, trace.Nanos(x.Closed.Add(reportedAfter).UnixNano()))
	}
	from := onset.Add(-reportedBefore)
	var all []group.Numbers
	if to.Sub(from) > shortSpan {
		all, err = a.history.Windows(id, from, to, true)
	} else {
		var l *binnedLatency
		if l, err = a.latency(ctx, id, from, to, onset); l != nil {
			for i := range l.requests {
				all = append(all, l.requests[i].Numbers(l.requests[i].From, l.requests[i].To))
			}
		}
	}
	if errors.Is(err, refusal.NotFound) {
		return nil, nil
	}
	return pastWindows(all), err
}
