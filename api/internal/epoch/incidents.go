package epoch

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// IncidentRow is an incident with all its evidence but without notes.
type IncidentRow struct {
	contract.Incident
	Number   uint64
	severity engine.Severity
	Listed   bool                  // not merged into another incident
	Types    []engine.AffectedType // of RequestTypes
}

// Limits on the suspects of an incident.
const (
	incidentSuspects = 20
	shownOperations  = 10 // per suspect
	shownInstances   = 10 // per suspect
)

// addIncidents adds the incidents of c to s, with the names of their request types.
func (s *Snapshot) addIncidents(c *engine.View, names *describe.Names) {
	all := c.Incidents.All()
	s.Incidents = make([]IncidentRow, 0, len(all))
	closed := make(map[string]int64) // number of listed ones, by first suspect
	for i := range all {             // in the order of opening
		x := IncidentRow{
			Incident: incidentOf(c, names, &all[i]),
			Number:   all[i].ID,
			severity: all[i].Severity(),
			Listed:   all[i].Into() == 0,
			Types:    slices.Clone(all[i].Types),
		}
		x.Earlier = closed[x.Service]
		if x.Listed && x.Closed != nil {
			closed[x.Service]++
		}
		s.Incidents = append(s.Incidents, x)
	}
	for i := range s.Incidents {
		s.IncidentByID[s.Incidents[i].ID] = i
		if s.Incidents[i].Closed == nil {
			s.Tally.OpenIncidents++
		}
	}
}

// incidentOf converts x to the type of the contract, as shown on the incident's page.
func incidentOf(c *engine.View, names *describe.Names, x *engine.Incident) contract.Incident {
	told, impact := describe.NewIncident(names, x, c.Ended), x.Impact(c.Ended)
	d := contract.Incident{
		Kind:                contract.IncidentKind(told.Kind),
		Severity:            contract.Severity(x.Severity().String()),
		SeverityReason:      told.Reason.String(),
		SeverityReasonParts: render.Sentence(names, told.Reason),
		Impact:              contract.IncidentImpact{LostNsPerSecond: impact.Lost, FailedPerSecond: impact.Failed},
		ID:                  render.Hex16(x.ID),
		State:               contract.IncidentStateOpen,
		Onset:               render.At(x.Onset),
		Opened:              render.At(x.Opened()),
		Ended:               render.Instant(x.End()),
		Closed:              render.Instant(x.Closed()),
		Reopened:            render.Instant(x.Reopened()),
		Sentence:            told.Sentence.String(),
		SentenceParts:       render.Sentence(names, told.Sentence),
		Requests:            int64(x.Requests),
		Suspects:            []contract.IncidentSuspect{},
		Objectives:          []contract.IncidentObjective{},
		RequestTypes:        []contract.IncidentRequestType{},
		Problems:            []contract.ID{},
		Annotations:         render.Annotations(c.Table, x.Annotations(c.Annotations)),
	}
	if size := told.Size; size.Types > 0 {
		d.Size = &contract.IncidentSize{
			Ratio:           size.Ratio(),
			BeforeNs:        size.Before,
			NowNs:           size.Now,
			ShareOfRequests: x.Share,
		}
	}
	if f := told.Failures; f.Now > 0 {
		d.Failures = &contract.IncidentFailures{Before: f.Before, Now: f.Now, ShareOfRequests: x.Share}
	}
	if queue, name := told.Lag(names); queue != nil {
		d.Queue = &contract.IncidentQueue{Name: name}
		if queue.Excess > 0 {
			d.Queue.BeforeNs, d.Queue.NowNs = &queue.Usual, new(queue.Usual+queue.Excess)
		}
	}
	if told.Stopped > 0 {
		d.StoppedPerSecond = &told.Stopped
	}
	if !x.IsOpen() {
		d.State = contract.IncidentStateClosed
	}
	if last := x.Last(); last.State == incident.Accepted {
		d.AcceptedBy = &last.By
		if last.Text != "" {
			d.AcceptedText = &last.Text
		}
	}
	if x.Proposed() != 0 {
		d.Proposed = new(render.At(x.Proposed()))
	}
	if x.Into() != 0 {
		d.MergedInto = new(render.Hex16(x.Into()))
	}
	d.End = endOf(names, told)
	if x.Place.Operation != 0 {
		d.Place = new(names.Op(x.Place.Operation))
		d.Wait = waitOf(names, &x.Place.Reason)
	}
	for i := range told.Named[:min(len(told.Named), incidentSuspects)] {
		d.Suspects = append(d.Suspects, suspectOf(&told.Named[i]))
	}
	if len(d.Suspects) > 0 {
		d.Service, d.Score = d.Suspects[0].Service, d.Suspects[0].Score
	}
	for i := range x.Objectives {
		d.Objectives = append(d.Objectives, missedObjective(names, &x.Objectives[i], !x.IsOpen()))
	}
	for i := range x.Types {
		d.RequestTypes = append(d.RequestTypes, affectedType(&x.Types[i], told.Affected[i]))
	}
	for _, p := range x.Problems {
		d.Problems = append(d.Problems, p.String())
	}
	return d
}

// endOf returns the reason why an incident closed, or nil if it is open.
func endOf(names *describe.Names, x *describe.Incident) *contract.IncidentEnd {
	if x.IsOpen() {
		return nil
	}
	last := x.Last()
	end := &contract.IncidentEnd{
		Reason:    contract.IncidentEndReason(describe.EndReasons[last.Why]),
		Text:      x.Ending.String(),
		TextParts: render.Sentence(names, x.Ending),
	}
	if last.Into != 0 {
		end.Incident = new(render.Hex16(last.Into))
	}
	if last.Service != 0 {
		end.Service = new(names.NamedService(last.Service))
	}
	return end
}

// waitOf returns the kernel waits that explain a place, or nil if waits don't explain it.
func waitOf(names *describe.Names, why *engine.Reason) *contract.IncidentWait {
	if why.Wait == 0 {
		return nil
	}
	class := detect.WaitClass(names.Table, why.Wait)
	w := &contract.IncidentWait{
		Class: class, Text: detect.Waiting(class), Share: why.Share, Service: names.Service(why.Wait),
	}
	if why.Function != 0 {
		w.Function = new(names.Op(why.Function))
	}
	if why.Host != 0 {
		w.Host = new(names.Text(why.Host))
	}
	return w
}

func suspectOf(d *describe.Suspect) contract.IncidentSuspect {
	x := contract.IncidentSuspect{
		Service:    d.Service,
		EmitsSpans: d.EmitsSpans,
		Score:      float64(d.Score),
		Operations: []contract.SuspectOperation{},
		AddedCalls: []contract.AddedCall{},
		Instances:  []contract.SuspectInstance{},
		Parts: contract.SuspectParts{
			Own:        float64(d.Parts.Own),
			Added:      float64(d.Parts.Added),
			In:         float64(d.Parts.In),
			Out:        float64(d.Parts.Out),
			Errors:     float64(d.Parts.Errors),
			Unanswered: float64(d.Parts.Unanswered),
			Silent:     float64(d.Parts.Silent),
			Shape:      float64(d.Parts.Shape),
			Rest:       float64(d.Parts.Rest),
		},
	}
	for _, o := range d.Operations[:min(len(d.Operations), shownOperations)] {
		x.Operations = append(x.Operations, contract.SuspectOperation{
			Service:   o.Service,
			Operation: o.Operation,
			Kind:      o.Kind,
			Target:    render.Target(o.Target),
			Score:     float64(o.Score),
		})
	}
	for _, c := range d.AddedCalls[:min(len(d.AddedCalls), shownOperations)] {
		x.AddedCalls = append(x.AddedCalls, contract.AddedCall{
			Name: c.Name, Caller: c.Caller, Before: float64(c.Before), Now: float64(c.Now), AddedNs: float64(c.Added),
		})
	}
	for _, i := range d.Instances[:min(len(d.Instances), shownInstances)] {
		x.Instances = append(x.Instances, contract.SuspectInstance{
			Key: i.Key, Value: i.Value, Calls: int64(i.Calls), Part: float64(i.Part),
		})
	}
	return x
}

func affectedType(x *engine.AffectedType, name string) contract.IncidentRequestType {
	return contract.IncidentRequestType{
		ID:          x.RequestType.String(),
		Name:        name,
		Requests:    int64(x.Requests),
		MeanNs:      x.Mean,
		UsualNs:     x.Usual,
		Failed:      x.Failed,
		UsualFailed: x.UsualFailed,
		SpanNs:      int64(x.Span),
		P50Ns:       positive(x.P50),
		UsualP50Ns:  positive(x.UsualP50),
		P99Ns:       positive(x.P99),
		UsualP99Ns:  positive(x.UsualP99),
	}
}

// positive returns a pointer to x, or nil for "unknown" if x isn't positive.
func positive(x float64) *float64 {
	if x > 0 {
		return &x
	}
	return nil
}

// Overlaps reports whether x was in progress at any time in [from, to). If from or to is 0, there is no limit on that
// side.
func (x *IncidentRow) Overlaps(from, to trace.Nanos) bool {
	return (from == 0 || x.Closed == nil || x.Closed.UnixNano() >= int64(from)) &&
		(to == 0 || x.Onset.UnixNano() < int64(to))
}

// Key returns the sort key of x in lists, which are in ascending order. Open incidents come first, most severe first,
// then closed ones. Among open incidents of the same severity, and among closed ones, the incident that opened last
// comes first.
func (x *IncidentRow) Key() float64 {
	const bonus = 1e19 // more than any time
	key := -float64(x.Opened.UnixNano())
	if x.Closed == nil {
		key -= bonus * float64(1+x.severity)
	}
	return key
}
