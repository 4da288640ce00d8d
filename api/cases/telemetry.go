package cases

import (
	"context"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/directory"
)

// The window of an incident's telemetry.
const (
	telemetryBefore = 30 * time.Minute // before the onset, for comparison
	telemetryAfter  = time.Hour        // after the onset, at most: causes are found there
)

// GetIncidentTelemetry implements contract.StrictServerInterface.
func (a *Cases) GetIncidentTelemetry(
	ctx context.Context, r contract.GetIncidentTelemetryRequestObject,
) (contract.GetIncidentTelemetryResponseObject, error) {
	x, err := a.incident(ctx, r.Incident)
	if err != nil {
		return nil, err
	}
	q := &telemetry.Question{
		Service: x.Service,
		From:    x.Onset.Add(-telemetryBefore),
		Onset:   x.Onset,
		To:      a.options.Clock().UTC(),
	}
	if x.Ended != nil {
		q.To = *x.Ended
	}
	if latest := x.Onset.Add(telemetryAfter); q.To.After(latest) {
		q.To = latest
	}
	if len(x.Suspects) > 0 {
		var of directory.Request
		for _, part := range x.Suspects[0].Instances {
			of.AddInstance(part.Key, part.Value)
			if part.Key == "k8s.pod.name" && q.Pod == "" {
				q.Pod = part.Value
			}
		}
		q.Instance = of.Instance
	}
	return contract.GetIncidentTelemetry200JSONResponse(*a.options.Telemetry.About(ctx, q)), nil
}
