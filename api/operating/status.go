package api

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// GetStatus implements contract.StrictServerInterface.
func (a *API) GetStatus(ctx context.Context, _ contract.GetStatusRequestObject) (contract.GetStatusResponseObject, error) {
	s, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	few, err := a.fewCalls(ctx, s)
	if err != nil {
		return nil, err
	}
	n := a.engine.Counts()
	open := n.Open()
	d := contract.GetStatus200JSONResponse{
		Version: a.options.Version, Go: a.options.Go, Ready: a.engine.Ready(), Space: contract.StatusSpace(a.engine.Space().String()),
		Learning: contract.Learning{
			Active:           !s.learned,
			Progress:         number(s.progress),
			LeftNs:           remaining(s.left),
			IncidentsLeftNs:  remaining(s.unwatched),
			SilenceLeftNs:    remaining(s.silence),
			OperationsLeftNs: remaining(s.operations),
			GrowthLeftNs:     remaining(s.growth),
			Provisional:      s.unequal,
		},
		Epoch:     contract.Epochs{Ended: s.epoch(), LengthNs: s.length.Nanoseconds(), Count: n.Epochs.Load()},
		Incidents: s.tally.openIncidents, Problems: len(s.problems), ProblemsUninvestigated: s.tally.uninvestigated, Groups: s.tally.groups, RequestTypes: s.tally.types,
		Ingest: contract.Ingest{
			Requests:          n.Requests.Load(),
			Spans:             n.Spans.Load(),
			LastArrival:       instant(trace.Nanos(n.Arrived.Load())),
			DuplicateSpans:    n.Duplicates(),
			LateSpans:         open.Late,
			RejectedSpans:     n.Rejected.Load(),
			DamagedRecords:    n.Damaged.Load(),
			Checkpoints:       n.Checkpoints.Load(),
			CheckpointsFailed: n.Unsaved.Load(),
		},
		Refused: map[string]int64{
			"busy": n.Refused.Busy.Load(), "disk_full": n.Refused.Full.Load(), "too_many_groups": int64(s.tally.refused),
			"learning_full": int64(s.tally.unlearned),
		},
		Closed: make(map[string]int64), Unusable: make(map[string]int64), Queues: []contract.Queue{},
		Open:     contract.OpenTraces{Traces: open.Traces, Spans: open.Spans, Bytes: open.Bytes},
		Coverage: s.coverage, FewCalls: *few, Names: s.identifying.found,
	}
	for reason := range assemble.CloseReasons {
		d.Closed[reason.String()] = n.Closed[reason].Load()
	}
	for reason, count := range n.Unusable() {
		d.Unusable[string(reason)] = count
	}
	if a.options.Queues != nil {
		for _, q := range a.options.Queues() {
			d.Queues = append(d.Queues, contract.Queue{Name: q.Name, Length: q.Length, Capacity: q.Most})
		}
	}
	return d, nil
}

// addProvisional adds the instances that have been unlike their siblings since Sibyl started.
func (s *snapshot) addProvisional(c *engine.View, names *describe.Names) {
	all := c.Progress.Provisional()
	if len(all) == 0 {
		return
	}
	var list []contract.ProvisionalInstance
	for i := range all {
		u := &all[i]
		list = append(list, contract.ProvisionalInstance{
			Service: names.NamedService(u.Service), Attribute: names.Clean(names.Table.Text(u.Key)), Value: names.Clean(names.Table.Text(u.Value)),
			Siblings: u.Siblings, Calls: int64(u.Calls), MeanNs: u.Nanos, SiblingsMeanNs: u.Usual, Failed: u.Failed, SiblingsFailed: u.UsualFailed,
			Text: names.Unequal(u),
		})
	}
	s.unequal = &list
}
