package operating

import (
	"context"
	"fmt"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// GetStatus implements contract.StrictServerInterface.
func (a *Operating) GetStatus(
	ctx context.Context, _ contract.GetStatusRequestObject,
) (contract.GetStatusResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	few, err := a.options.Calls.FewCalls(ctx, s)
	if err != nil {
		return nil, err
	}
	n, lag := a.service.Counts(), a.service.Lag()
	open := n.Open()
	d := contract.GetStatus200JSONResponse{
		Version: a.options.Version, Go: a.options.Go, Ready: a.service.Ready(),
		Space: contract.StatusSpace(a.service.Space().String()),
		Learning: contract.Learning{
			Active:           !s.Learned,
			Progress:         render.Number(s.Progress),
			LeftNs:           render.Remaining(s.Left),
			IncidentsLeftNs:  render.Remaining(s.Unwatched),
			SilenceLeftNs:    render.Remaining(s.Silence),
			OperationsLeftNs: render.Remaining(s.Operations),
			GrowthLeftNs:     render.Remaining(s.Growth),
			Provisional:      s.Unequal,
		},
		Epoch: contract.Epochs{
			Ended:     s.Epoch(),
			LengthNs:  s.Length.Nanoseconds(),
			Count:     n.Epochs.Load(),
			OverdueNs: lag.Overdue.Nanoseconds(),
		},
		Incidents: s.Tally.OpenIncidents, Problems: len(s.Problems), ProblemsUninvestigated: s.Tally.Uninvestigated,
		Groups: s.Tally.Groups, RequestTypes: s.Tally.Types,
		Ingest: contract.Ingest{
			Requests:          n.Requests.Load(),
			Spans:             n.Spans.Load(),
			LastArrival:       render.Instant(trace.Nanos(n.Arrived.Load())),
			DuplicateSpans:    n.Duplicates(),
			LateSpans:         open.Late,
			RejectedSpans:     n.Rejected.Load(),
			DamagedRecords:    n.Damaged.Load(),
			Checkpoints:       n.Checkpoints.Load(),
			CheckpointsFailed: n.Unsaved.Load(),
		},
		Refused: map[string]int64{
			"busy": n.Refused.Busy.Load(), "disk_full": n.Refused.Full.Load(), "memory": n.Refused.Memory.Load(),
			"too_many_groups": int64(s.Tally.Refused), "learning_full": int64(s.Tally.Unlearned),
			"too_many_contexts": int64(s.Tally.TreeLost), "too_many_names": int64(s.Tally.Unnamed),
		},
		Closed: make(map[string]int64), Unusable: make(map[string]int64), Queues: []contract.Queue{},
		Open:     contract.OpenTraces{Traces: open.Traces, Spans: open.Spans, Bytes: open.Bytes},
		Coverage: s.Coverage, FewCalls: *few, Names: s.Identifying.Found,
	}
	if leader := a.service.Leader(); leader != "" {
		d.Leader = &leader
	}
	d.Epoch.Warning, d.Epoch.Remedy = lateness(lag)
	for reason := range assemble.CloseReasons {
		d.Closed[reason.String()] = n.Closed[reason].Load()
	}
	for reason, count := range n.Unusable() {
		d.Unusable[string(reason)] = count
	}
	if a.options.Agents != nil {
		d.Refused["too_many_tracepoints"] = a.options.Agents.Counts().NoRoom.Load()
	}
	if a.options.Queues != nil {
		for _, q := range a.options.Queues() {
			d.Queues = append(d.Queues, contract.Queue{Name: q.Name, Length: q.Length, Capacity: q.Most})
		}
	}
	return d, nil
}

// Lateness returns a sentence that gives the reason why decisions are late, or "" if they aren't.
func (a *Operating) Lateness() string {
	warning, _ := lateness(a.service.Lag())
	return warning
}

// lateness returns a sentence that explains why decisions are late, and a remedy. It returns two empty strings if they
// aren't late.
func lateness(lag live.Lag) (warning, remedy string) {
	late := fmt.Sprintf("Decisions are %s late: ", units.Coarse(lag.Overdue))
	switch lag.Cause {
	case live.LagSpace:
		return late + "nothing is judged, because the disk is full.", "Free space on the disk of the data directory."
	case live.LagDecisions:
		return late + fmt.Sprintf("those of an epoch take %s.", units.Coarse(lag.Work)),
			"There may be too many services, operations or groups, because names contain IDs. Otherwise use faster cores."
	case live.LagAnalysis:
		return late + "requests arrive faster than they are analysed.", "Give Sibyl more cores, or sample."
	case live.LagNone:
	}
	return "", ""
}
