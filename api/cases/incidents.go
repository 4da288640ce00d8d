package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// incidentRow is an incident with all of its evidence but without notes.
type incidentRow struct {
	contract.Incident
	id       uint64
	severity engine.Severity
	listed   bool // it was not merged into another
}

// Bounds of an incident.
const (
	listedSuspects    = 3 // in lists
	incidentSuspects  = 20
	shownOperations   = 10 // of a suspect
	shownInstances    = 10 // of a suspect
	incidentExemplars = 10
)

// addIncidents adds the incidents, with names of request types.
func (s *snapshot) addIncidents(c *engine.View, names *describe.Names) {
	all := c.Incidents.All()
	s.incidents = make([]incidentRow, 0, len(all))
	closed := make(map[string]int64) // listed ones by their first suspect
	for i := range all {             // in the order in which they opened
		x := incidentRow{incidentOf(c, names, &all[i]), all[i].ID, all[i].Severity(), all[i].Into() == 0}
		x.Earlier = closed[x.Service]
		if x.listed && x.Closed != nil {
			closed[x.Service]++
		}
		s.incidents = append(s.incidents, x)
	}
	for i := range s.incidents {
		s.incidentByID[s.incidents[i].ID] = i
		if s.incidents[i].Closed == nil {
			s.tally.openIncidents++
		}
	}
}

// incidentOf returns an incident as its page shows it.
func incidentOf(c *engine.View, names *describe.Names, x *engine.Incident) contract.Incident {
	suspects, impact := x.Shown(), x.Impact(c.Ended)
	d := contract.Incident{
		Kind:           contract.IncidentKind(notify.Kind(x)),
		Severity:       contract.Severity(x.Severity().String()),
		SeverityReason: notify.SeverityReason(names, x),
		Impact:         contract.IncidentImpact{LostNsPerSecond: impact.Lost, FailedPerSecond: impact.Failed},
		ID:             hex16(x.ID),
		State:          contract.IncidentStateOpen,
		Onset:          at(x.Onset),
		Opened:         at(x.Opened()),
		Ended:          instant(x.End()),
		Closed:         instant(x.Closed()),
		Reopened:       instant(x.Reopened()),
		Sentence:       incidentSentence(c, names, x),
		Requests:       int64(x.Requests),
		Suspects:       []contract.IncidentSuspect{},
		Objectives:     []contract.IncidentObjective{},
		RequestTypes:   []contract.IncidentRequestType{},
		Problems:       []contract.ID{},
		Deploys:        []contract.Deploy{},
	}
	if size := notify.Size(x); size.Types > 0 {
		d.Size = &contract.IncidentSize{
			Ratio:           size.Ratio(),
			BeforeNs:        size.Before,
			NowNs:           size.Now,
			ShareOfRequests: x.Share,
		}
	}
	if rate := notify.Stopped(x); rate > 0 {
		d.StoppedPerSecond = &rate
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
		d.Proposed = new(at(x.Proposed()))
	}
	if x.Into() != 0 {
		d.MergedInto = new(hex16(x.Into()))
	}
	d.End = endOf(names, x)
	if x.Place.Operation != 0 {
		d.Place = new(names.Op(x.Place.Operation))
		d.Wait = waitOf(names, &x.Place.Reason)
	}
	for i := range suspects[:min(len(suspects), incidentSuspects)] {
		d.Suspects = append(d.Suspects, suspectOf(names, &suspects[i]))
	}
	if len(d.Suspects) > 0 {
		d.Service, d.Score = d.Suspects[0].Service, d.Suspects[0].Score
	}
	for i := range x.Objectives {
		d.Objectives = append(d.Objectives,
			missedObjective(names, &notify.Objectives(x)[i], &x.Objectives[i], !x.IsOpen()))
	}
	for i := range x.Types {
		d.RequestTypes = append(d.RequestTypes, affectedType(c, names, &x.Types[i]))
	}
	for _, p := range x.Problems {
		d.Problems = append(d.Problems, p.String())
	}
	for _, deploy := range slices.Backward(x.Deploys(c.Deploys)) {
		d.Deploys = append(d.Deploys, deployOf(c.Table, deploy))
	}
	return d
}

// endOf returns why an incident closed; nil while it is open.
func endOf(names *describe.Names, x *engine.Incident) *contract.IncidentEnd {
	if x.IsOpen() {
		return nil
	}
	last := x.Last()
	end := &contract.IncidentEnd{Reason: contract.IncidentEndReason(describe.EndReasons[last.Why]), Text: names.Ending(&last)}
	if last.Into != 0 {
		end.Incident = new(hex16(last.Into))
	}
	if last.Service != 0 {
		end.Service = new(names.NamedService(last.Service))
	}
	return end
}

// waitOf returns the waits in the kernel that are the reason of a place; nil if none are.
func waitOf(names *describe.Names, why *engine.Reason) *contract.IncidentWait {
	if why.Wait == 0 {
		return nil
	}
	class := detect.WaitClass(names.Table, why.Wait)
	w := &contract.IncidentWait{Class: class, Text: detect.Waiting(class), Share: why.Share, Service: names.Service(why.Wait)}
	if why.Function != 0 {
		w.Function = new(names.Op(why.Function))
	}
	if why.Host != 0 {
		w.Host = new(names.Clean(names.Table.Text(why.Host)))
	}
	return w
}

// incidentSentence returns the sentence about an incident.
func incidentSentence(c *engine.View, names *describe.Names, x *engine.Incident) string {
	return notify.Sentence(names, x, describe.IncidentPeriod(x.Onset, x.End(), c.Ended)).String()
}

func suspectOf(names *describe.Names, s *compare.Suspect) contract.IncidentSuspect {
	d := names.Suspect(s)
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
			Service: o.Service, Operation: o.Operation, Kind: o.Kind, Target: contractTarget(o.Target), Score: float64(o.Score),
		})
	}
	for _, c := range d.AddedCalls[:min(len(d.AddedCalls), shownOperations)] {
		x.AddedCalls = append(x.AddedCalls, contract.AddedCall{
			Name: c.Name, Caller: c.Caller, Before: float64(c.Before), Now: float64(c.Now), AddedNs: float64(c.Added),
		})
	}
	for _, i := range s.Instances[:min(len(s.Instances), shownInstances)] {
		x.Instances = append(x.Instances, contract.SuspectInstance{
			Key: names.Table.Text(i.Key), Value: names.Table.Text(i.Value), Calls: int64(i.Calls), Part: i.Part,
		})
	}
	return x
}

func affectedType(c *engine.View, names *describe.Names, x *engine.AffectedType) contract.IncidentRequestType {
	name := "request type " + x.RequestType.String()[:8] // its group was evicted
	if g := c.Groups.Group(x.RequestType); g != nil {
		name = names.RequestType(g.ID, g.Entry)
	}
	return contract.IncidentRequestType{
		ID: x.RequestType.String(), Name: name, Requests: int64(x.Requests), MeanNs: x.Mean, UsualNs: x.Usual, Failed: x.Failed, UsualFailed: x.UsualFailed,
		SpanNs: int64(x.Span), P50Ns: positive(x.P50), UsualP50Ns: positive(x.UsualP50), P99Ns: positive(x.P99), UsualP99Ns: positive(x.UsualP99),
	}
}

// positive returns a number that is unknown unless it is positive.
func positive(x float64) *float64 {
	if x > 0 {
		return &x
	}
	return nil
}

// newIncidentList returns an empty list of incidents.
func newIncidentList() *list[uint64] {
	return &list[uint64]{compare: cmp.Compare[uint64], text: hex16[uint64], parse: parseIncident}
}

// incidentDigits is the length of the ID of an incident.
const incidentDigits = 16

// parseIncident parses the ID of an incident, as hex16 returns it.
func parseIncident(id string) (uint64, error) { return strconv.ParseUint(id, 16, 64) }

// ListIncidents implements contract.StrictServerInterface.
func (a *API) ListIncidents(ctx context.Context, r contract.ListIncidentsRequestObject) (contract.ListIncidentsResponseObject, error) {
	var s *snapshot
	var services []contract.Service
	err := a.askServices(ctx, nil, nil,
		func(_ *engine.View, now *snapshot, t *serviceTable, _ serviceKey) { s, services = now, t.rows })
	if err != nil {
		return nil, err
	}
	q := &r.Params
	notes := a.notes.All(a.options.Clock())
	from, to, err := parseInterval(q.From, q.To)
	if err != nil {
		return nil, err
	}
	state, muted := string(value(q.State, contract.ListIncidentsParamsStateAll)), value(q.Muted, contract.ListIncidentsParamsMutedFalse)
	matches := func(i int32) bool {
		x := &s.incidents[i]
		return x.listed && (state == string(contract.ListIncidentsParamsStateAll) || state == string(x.State)) && value(q.Service, x.Service) == x.Service &&
			value(q.Severity, x.Severity) == x.Severity && value(q.Kind, x.Kind) == x.Kind && x.overlaps(from, to)
	}
	isMuted := func(i int32) bool { return notes[s.incidents[i].ID].Muted != nil }
	keep := func(i int32) bool {
		return matches(i) && (muted == contract.ListIncidentsParamsMutedAll || isMuted(i) == (muted == contract.ListIncidentsParamsMutedTrue))
	}
	order := newIncidentList()
	for i := range s.incidents {
		order.entries = append(order.entries, entry[uint64]{s.incidents[i].key(), s.incidents[i].id, int32(i)})
	}
	order.sort()
	items, next, err := order.page(pageOf(q.Limit, q.Cursor, "incidents"), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListIncidents200JSONResponse{
		Items: make([]contract.Incident, 0, len(items)), NextCursor: next, Total: order.count(keep), Epoch: s.epoch(), Learning: !s.watching, LearningLeftNs: remaining(s.unwatched),
		Open: s.tally.openIncidents, Attention: needAttention(services),
	}
	if muted == contract.ListIncidentsParamsMutedFalse {
		list.Muted = order.count(func(i int32) bool { return matches(i) && isMuted(i) })
	}
	for _, i := range items {
		x := s.incidents[i].Incident
		x.Notes, x.Suspects = notes[x.ID], x.Suspects[:min(len(x.Suspects), listedSuspects)]
		x.Comments = int64(len(a.options.Comments.Of(x.ID)))
		a.addDirectory(&x, s.ended)
		list.Items = append(list.Items, x)
	}
	return list, nil
}

// addDirectory adds the owners of suspects and links to pages about them, which a reload may have changed since the
// epoch ended.
func (a *API) addDirectory(x *contract.Incident, ended trace.Nanos) {
	directory, end := a.directory.Load(), ended
	if x.Closed != nil {
		end = trace.Nanos(x.Closed.UnixNano())
	}
	x.Suspects = slices.Clone(x.Suspects) // the snapshot shares them
	for i := range x.Suspects {
		s := &x.Suspects[i]
		s.Owner = ownerOf(directory, s.Service)
		r := &notify.Request{Service: s.Service, Incident: x.ID, Start: trace.Nanos(x.Onset.UnixNano()), End: end}
		if len(s.Operations) > 0 {
			r.Operation = s.Operations[0].Operation
		}
		for _, part := range s.Instances {
			r.AddInstance(part.Key, part.Value)
		}
		if links := directory.ServiceLinks(r); len(links) > 0 {
			s.Links = new(contractLinks(links))
		}
	}
	x.Owner = ownerOf(directory, x.Service)
}

func ownerOf(d *notify.Directory, service string) *contract.Owner {
	o := d.Owner(service)
	if o == nil {
		return nil
	}
	x := &contract.Owner{Name: o.Name}
	if o.Contact != "" {
		x.Contact = &o.Contact
	}
	return x
}

func contractLinks(links []notify.URL) []contract.Link {
	all := make([]contract.Link, 0, len(links))
	for _, u := range links {
		all = append(all, contract.Link{Name: u.Name, URL: u.URL})
	}
	return all
}

// overlaps reports whether x went on between two times; 0: ever.
func (x *incidentRow) overlaps(from, to trace.Nanos) bool {
	return (from == 0 || x.Closed == nil || x.Closed.UnixNano() >= int64(from)) && (to == 0 || x.Onset.UnixNano() < int64(to))
}

// key returns the key by which lists are sorted: the time of opening, with a bonus for open incidents, and a larger one
// for severe ones.
func (x *incidentRow) key() float64 {
	const bonus = 1e19 // more than any time
	key := -float64(x.Opened.UnixNano())
	if x.Closed == nil {
		key -= bonus * float64(1+x.severity)
	}
	return key
}

// GetIncident implements contract.StrictServerInterface.
func (a *API) GetIncident(ctx context.Context, r contract.GetIncidentRequestObject) (contract.GetIncidentResponseObject, error) {
	var d *contract.GetIncident200JSONResponse
	var types []engine.AffectedType
	var id uint64
	var onset, closed, ended trace.Nanos
	var subjects []search.Subject
	enabled := make(map[string]bool)
	share := 0. // of the place
	err := a.ask(ctx, func(c *engine.View) {
		s := a.refresh(c)
		row, ok := s.incidentByID[r.Incident]
		if !ok {
			return
		}
		all := c.Incidents.All()
		i := slices.IndexFunc(all, func(x engine.Incident) bool { return x.ID == s.incidents[row].id })
		if i < 0 {
			return
		}
		x, names := &all[i], renderer{s.names(c), c}
		id, types, onset, closed, ended = x.ID, slices.Clone(x.Types), x.Onset, x.Closed(), c.Ended
		if x.Place.Operation != 0 {
			subjects = []search.Subject{x.Place.Of}
		}
		enabled = names.enabled()
		v := c.Searches.Investigation(search.OfIncident(x.ID))
		d = &contract.GetIncident200JSONResponse{
			Incident: s.incidents[row].Incident,
			Earlier:  s.earlier(row),
			Next:     notify.Advice(names.Names, x, v, c.Deploys),
			Timeline: names.timeline(x),
		}
		if v != nil {
			d.Investigation = names.investigationDetail(v)
			shareOfAll(&d.Investigation.Investigation, x, v)
		}
		share = x.Place.Share
	})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, notFound(string(aboutIncident))
	}
	d.Incident.Notes = a.notes.All(a.options.Clock())[r.Incident]
	d.Comments = append([]contract.Comment{}, a.options.Comments.Of(r.Incident)...)
	d.Incident.Comments = int64(len(d.Comments))
	a.addDirectory(&d.Incident, ended)
	if d.Located, err = a.locatedPlace(enabled, d.Incident.Service, subjects...); err != nil {
		return nil, err
	}
	if d.Located != nil {
		framesOfAll(d.Located, share)
	}
	d.Timeline = append(append(d.Timeline, noted(&d.Incident.Notes)...), commented(d.Comments)...)
	slices.SortStableFunc(d.Timeline, func(x, y contract.TimelineEntry) int { return x.At.Compare(y.At) })
	samples, err := SampleTraces(a.history, id, types, onset, closed)
	d.Exemplars = exemplarsOf(samples)
	return d, err
}

// shareOfAll has the shares of the investigation of an incident be those of all time that it costs, as in the texts
// about it, and leaves the one in the reason to these.
func shareOfAll(d *contract.Investigation, x *engine.Incident, v *search.Investigation) {
	d.Reason = search.WithoutShare(d.Reason)
	whole := x.ShareOf(v, 1)
	for i := range d.Suspects {
		scale(&d.Suspects[i].Share, whole)
	}
}

// framesOfAll is like shareOfAll for the evidence of the place, whose share is given. If that is unknown, nothing
// changes.
func framesOfAll(d *contract.LocatedPlace, share float64) {
	located := value(d.Share.Value, 0)
	if share <= 0 || located <= 0 {
		return
	}
	d.Of = contract.LocatedPlaceOfAddedLatency
	scale(&d.Share, share/located)
	for i := range d.Frames {
		scale(&d.Frames[i].Share, share/located)
	}
}

// scale multiplies an interval by a factor.
func scale(x *contract.Interval, factor float64) {
	for _, bound := range []**float64{&x.Value, &x.Low, &x.High} {
		if *bound != nil {
			*bound = new(**bound * factor)
		}
	}
}

// timelineKinds has the kinds of the entries about transitions, by state.
var timelineKinds = [...]contract.TimelineEntryKind{
	incident.Open:     contract.TimelineEntryKindOpened,
	incident.Steady:   contract.TimelineEntryKindSteady,
	incident.Closed:   contract.TimelineEntryKindClosed,
	incident.Merged:   contract.TimelineEntryKindClosed,
	incident.Accepted: contract.TimelineEntryKindClosed,
}

// timeline returns the events of an incident, but for its notes, in any order. They are facts, which stay as they are.
func (r renderer) timeline(x *engine.Incident) []contract.TimelineEntry {
	events := []contract.TimelineEntry{{
		At:   at(x.Onset),
		Kind: contract.TimelineEntryKindOnset,
		Text: "The change began, by estimate.",
	}}
	add := func(when trace.Nanos, kind contract.TimelineEntryKind, text string) {
		events = append(events, contract.TimelineEntry{At: at(when), Kind: kind, Text: text})
	}
	for i := range x.History {
		t := &x.History[i]
		add(t.At, timelineKinds[t.State], r.Transition(t))
	}
	for _, d := range x.Deploys(r.core.Deploys) {
		add(d.At, contract.TimelineEntryKindDeploy, r.Table.Text(d.Service)+" "+r.Table.Text(d.Version)+" appeared; the version before is "+r.Table.Text(d.Before)+".")
	}
	located := "Sibyl located the place: "
	for i := range x.Milestones {
		if m := &x.Milestones[i]; m.Place == 0 {
			add(m.At, contract.TimelineEntryKindProblem, r.problemOpened(m))
		} else {
			add(m.At, contract.TimelineEntryKindLocated, located+r.Op(m.Place)+".")
			located = "The place changed to "
		}
	}
	return events
}

// problemOpened describes the opening of a problem of an incident.
func (r renderer) problemOpened(m *engine.Milestone) string {
	name := cmp.Or(r.RequestType(m.RequestType, m.Entry), "request type "+m.RequestType.String()[:8])
	if !m.Group.IsZero() {
		name = describe.InGroup(name, m.Group)
	}
	switch m.Kind {
	case detect.KindVariable:
		return "A problem opened: the durations of " + name + " vary more than usual."
	case detect.KindShifted:
		return "A problem opened: requests of " + name + " changed their call flow."
	case detect.KindSlow:
	}
	return "A problem opened: " + name + " takes longer than usual."
}

// noted returns the notes about an incident as events.
func noted(n *contract.Notes) []contract.TimelineEntry {
	var events []contract.TimelineEntry
	for _, x := range []struct {
		kind contract.TimelineEntryKind
		note *contract.Note
	}{{contract.TimelineEntryKindAcknowledged, n.Acknowledged}, {contract.TimelineEntryKindMuted, n.Muted}} {
		if x.note == nil {
			continue
		}
		text := x.note.By + " " + string(x.kind) + " the incident"
		if x.note.Text != "" {
			text += ": " + x.note.Text
		}
		events = append(events, contract.TimelineEntry{At: x.note.At, Kind: x.kind, Text: text})
	}
	return events
}

// SampleTrace is a slow or failed trace of a request type that an incident affects.
type SampleTrace struct {
	store.Exemplar
	RequestType analysis.Hash
	Failed      bool
}

// SampleTraces returns stored traces of the affected request types that began between the onset and the end of an
// incident, 0 while it is open: failed ones of types that lose more by failures than by time, latest first; then slow
// ones, those that are slowest in relation to the usual time of their type first. Of a closed incident they are those
// that were kept for it, and do not change.
func SampleTraces(h History, incident uint64, types []engine.AffectedType, onset, closed trace.Nanos) ([]SampleTrace, error) {
	var found []SampleTrace
	slowness := make(map[trace.ID]float64)
	for i := range types {
		t := &types[i]
		present := &store.Exemplars{}
		if closed == 0 {
			var err error
			if present, err = h.Exemplars(t.RequestType); err != nil {
				return nil, err
			}
		}
		kept, err := h.Kept(search.OfIncident(incident), t.RequestType)
		if err != nil {
			return nil, err
		}
		add := func(list []store.Exemplar, failed bool) {
			for _, e := range list {
				if _, twice := slowness[e.Trace]; !twice && e.Start >= onset && (closed == 0 || e.Start <= closed) {
					slowness[e.Trace] = float64(e.Duration) / max(1, t.Usual)
					found = append(found, SampleTrace{e, t.RequestType, failed})
				}
			}
		}
		if t.Fails() {
			add(slices.Concat(present.Failed, kept.Failed), true)
		}
		add(slices.Concat(present.Slow, kept.Slow), false)
	}
	slices.SortStableFunc(found, func(a, b SampleTrace) int {
		switch {
		case a.Failed && b.Failed:
			return cmp.Compare(b.Start, a.Start)
		case a.Failed:
			return -1
		case b.Failed:
			return 1
		}
		return cmp.Compare(slowness[b.Trace], slowness[a.Trace])
	})
	return found, nil
}

// exemplarsOf returns the first traces of found, failed before slow ones, as exemplars, the slow ones slowest first.
func exemplarsOf(found []SampleTrace) []contract.Exemplar {
	first := slices.Clone(found[:min(len(found), incidentExemplars)])
	failed := 0
	for failed < len(first) && first[failed].Failed {
		failed++
	}
	slices.SortStableFunc(first[failed:], func(a, b SampleTrace) int { return cmp.Compare(b.Duration, a.Duration) })
	all := []contract.Exemplar{}
	for i := range first {
		x, stratum := &first[i], contract.ExemplarStratumSlow
		if x.Failed {
			stratum = contract.ExemplarStratumFailed
		}
		all = append(all, contract.Exemplar{
			Trace: x.Trace.String(), Group: x.RequestType.String(), Stratum: stratum, Start: at(x.Start), DurationNs: x.Duration,
		})
	}
	return all
}

// maxEarlier limits the earlier incidents of an incident.
const maxEarlier = 10

// earlier returns the closed incidents with the same first suspect that opened before the one at an index, latest
// first.
func (s *snapshot) earlier(row int) []contract.EarlierIncident {
	all := []contract.EarlierIncident{}
	for i := row - 1; i >= 0 && len(all) < maxEarlier; i-- {
		if x := &s.incidents[i]; x.listed && x.Closed != nil && x.Service == s.incidents[row].Service {
			all = append(all, contract.EarlierIncident{
				ID:       x.ID,
				Severity: x.Severity,
				Onset:    x.Onset,
				Opened:   x.Opened,
				Ended:    *x.Ended,
				Closed:   *x.Closed,
				End:      *x.End,
				Sentence: x.Sentence,
			})
		}
	}
	return all
}

// commented returns comments as events.
func commented(all []contract.Comment) []contract.TimelineEntry {
	var events []contract.TimelineEntry
	for i := range all {
		events = append(events, contract.TimelineEntry{At: all[i].At, Kind: contract.TimelineEntryKindCommented, Text: all[i].By + ": " + all[i].Text})
	}
	return events
}

// AcknowledgeIncident implements contract.StrictServerInterface.
func (a *API) AcknowledgeIncident(ctx context.Context, r contract.AcknowledgeIncidentRequestObject) (contract.AcknowledgeIncidentResponseObject, error) {
	notes, err := a.note(ctx, aboutIncident, r.Incident, Acknowledged, r.Body)
	return contract.AcknowledgeIncident200JSONResponse(notes), err
}

// UnacknowledgeIncident implements contract.StrictServerInterface.
func (a *API) UnacknowledgeIncident(_ context.Context, r contract.UnacknowledgeIncidentRequestObject) (contract.UnacknowledgeIncidentResponseObject, error) {
	return contract.UnacknowledgeIncident204Response{}, a.removeNote(r.Incident, Acknowledged)
}

// MuteIncident implements contract.StrictServerInterface.
func (a *API) MuteIncident(ctx context.Context, r contract.MuteIncidentRequestObject) (contract.MuteIncidentResponseObject, error) {
	notes, err := a.note(ctx, aboutIncident, r.Incident, Muted, r.Body)
	return contract.MuteIncident200JSONResponse(notes), err
}

// UnmuteIncident implements contract.StrictServerInterface.
func (a *API) UnmuteIncident(_ context.Context, r contract.UnmuteIncidentRequestObject) (contract.UnmuteIncidentResponseObject, error) {
	return contract.UnmuteIncident204Response{}, a.removeNote(r.Incident, Muted)
}

// AcceptIncident implements contract.StrictServerInterface.
func (a *API) AcceptIncident(ctx context.Context, r contract.AcceptIncidentRequestObject) (contract.AcceptIncidentResponseObject, error) {
	s, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	i, known := s.incidentByID[r.Incident]
	if !known {
		return nil, notFound(string(aboutIncident))
	}
	change := engine.Change{Accept: s.incidents[i].id, By: caller(ctx).name}
	if r.Body != nil && r.Body.Text != nil {
		change.Text = *r.Body.Text
	}
	accepted, err := a.change(ctx, change)
	if err != nil {
		return nil, err
	}
	if !accepted {
		return nil, refusal.New(refusal.Conflict, "the incident is closed", "")
	}
	return contract.AcceptIncident204Response{}, nil
}
