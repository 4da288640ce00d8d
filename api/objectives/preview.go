package objectives

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// maxTypes is the maximum number of request types that a preview reads, which takes about a second.
	maxTypes = 1000
	// unsaved is the time that the latest requests may not be stored yet.
	unsaved = 5 * time.Minute
)

// PreviewObjective implements contract.StrictServerInterface.
func (a *Objectives) PreviewObjective(
	ctx context.Context, r contract.PreviewObjectiveRequestObject,
) (contract.PreviewObjectiveResponseObject, error) {
	o, err := checked(r.Body)
	if err != nil {
		return nil, err
	}
	if !a.previewing.TryLock() {
		return nil, refusal.New(refusal.Overloaded, "another preview is running", "try again").Later(time.Second)
	}
	defer a.previewing.Unlock()
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	types := make(map[analysis.Hash]bool)
	err = a.reader.Ask(ctx, func(c *engine.View) {
		for g := range c.Groups.Each() {
			if g.Level == group.LevelRequestType && o.AppliesTo(c.Table, g.Entry) {
				types[g.ID] = true
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if len(types) > maxTypes {
		return nil, refusal.New(refusal.Conflict, fmt.Sprintf("%d request types have this entry, too many to read",
			len(types)), "preview the objective for an operation of the service")
	}
	past, err := a.read(ctx, &o, types)
	if err != nil {
		return nil, err
	}
	d := contract.PreviewObjective200JSONResponse{
		To:      render.At(past.end()),
		LacksNs: incident.ReplayLength.Nanoseconds(),
		Burned:  []contract.Burned{},
	}
	if len(past.minutes) == 0 {
		return d, nil
	}
	d.From = new(render.At(past.from))
	d.LacksNs = max(0, (incident.ReplayLength - past.end().Sub(past.from)).Nanoseconds())
	for _, c := range past.minutes {
		d.Requests += int64(c.Requests)
		d.Missed += int64(c.Missed)
	}
	for _, b := range incident.Replay(o, past.from, past.minutes) {
		d.Burned = append(d.Burned, contract.Burned{
			From:     render.At(b.From),
			Until:    render.Instant(b.Until),
			WindowNs: b.Window.Nanoseconds(),
			Rate:     b.Rate,
			Incident: incidentOf(s, types, b),
		})
	}
	return d, nil
}

// past holds the requests of an entry by minute.
type past struct {
	from    trace.Nanos
	minutes []incident.Count
}

func (p *past) end() trace.Nanos { return p.from.Add(time.Duration(len(p.minutes)) * time.Minute) }

// read counts the stored requests of types towards o. The result starts with the first minute with requests and ends
// now, or after the last minute with requests if that is recent.
func (a *Objectives) read(ctx context.Context, o *incident.Objective, types map[analysis.Hash]bool) (past, error) {
	now := trace.Nanos(a.options.Clock().UnixNano())
	to := now - now%trace.Nanos(time.Minute)
	p := past{to.Add(-live.MinutesKept), make([]incident.Count, live.MinutesKept/time.Minute+1)}
	for id := range types {
		windows, err := a.ticks.Windows(id, p.from, now)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return past{}, err
		}
		for i := range windows {
			w := &windows[i]
			if w.From < p.from {
				continue
			}
			c := &p.minutes[min(len(p.minutes)-1, int(w.From.Sub(p.from)/time.Minute))]
			c.Requests += w.Total.N
			if o.Below > 0 {
				c.Missed += w.Latency.AtLeast(o.Below.Nanoseconds())
			} else {
				c.Missed += w.Failed
			}
		}
	}
	some := func(c incident.Count) bool { return c.Requests > 0 }
	first := slices.IndexFunc(p.minutes, some)
	if first < 0 {
		return past{from: now}, nil
	}
	last := len(p.minutes) - 1
	for !some(p.minutes[last]) {
		last--
	}
	if end := p.from.Add(time.Duration(last+1) * time.Minute); now.Sub(end) > unsaved {
		last = len(p.minutes) - 1
	}
	return past{p.from.Add(time.Duration(first) * time.Minute), p.minutes[first : last+1]}, nil
}

// incidentOf returns the ID of the first incident of any of types during b, or nil.
func incidentOf(s *epoch.Snapshot, types map[analysis.Hash]bool, b incident.Burned) *string {
	var first *epoch.IncidentRow
	for i := range s.Incidents {
		x := &s.Incidents[i]
		of := func(t engine.AffectedType) bool { return types[t.RequestType] }
		if x.Listed && x.Overlaps(b.From, b.Until) && slices.ContainsFunc(x.Types, of) &&
			(first == nil || x.Onset.Before(first.Onset)) {
			first = x
		}
	}
	if first == nil {
		return nil
	}
	return &first.ID
}
