package cases

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the parts of an incident that are shown.
const (
	listedSuspects    = 3 // in lists
	incidentExemplars = 10
)

// newIncidentList returns an empty list of incidents.
func newIncidentList() *query.List[uint64] {
	return query.NewList(cmp.Compare[uint64], render.Hex16[uint64], render.ParseIncident)
}

// ListIncidents implements contract.StrictServerInterface.
func (a *Cases) ListIncidents(
	ctx context.Context, r contract.ListIncidentsRequestObject,
) (contract.ListIncidentsResponseObject, error) {
	var s *epoch.Snapshot
	var attention []contract.ServiceAttention
	var refused error
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s = a.reader.Refresh(c)
		attention, refused = a.options.Services.Attention(c, s)
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	q := &r.Params
	notes := a.options.Notes.All(a.options.Clock())
	from, to, err := query.ParseInterval(q.From, q.To)
	if err != nil {
		return nil, err
	}
	state := string(query.Value(q.State, contract.ListIncidentsParamsStateAll))
	muted := query.Value(q.Muted, contract.ListIncidentsParamsMutedFalse)
	silenced := a.Silenced(s)
	matches := func(i int32) bool {
		x := &s.Incidents[i]
		if !x.Listed || state != string(contract.ListIncidentsParamsStateAll) && state != string(x.State) {
			return false
		}
		is := silenced[x.Number] != nil
		return query.Value(q.Silenced, is) == is && query.Value(q.Service, x.Service) == x.Service &&
			query.Value(q.Severity, x.Severity) == x.Severity && query.Value(q.Kind, x.Kind) == x.Kind &&
			x.Overlaps(from, to)
	}
	isMuted := func(i int32) bool { return notes[s.Incidents[i].ID].Muted != nil }
	keep := func(i int32) bool {
		asked := muted == contract.ListIncidentsParamsMutedAll ||
			isMuted(i) == (muted == contract.ListIncidentsParamsMutedTrue)
		return asked && matches(i)
	}
	order := newIncidentList()
	for i := range s.Incidents {
		order.Add(s.Incidents[i].Key(), s.Incidents[i].Number, int32(i))
	}
	order.Sort()
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "incidents"), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListIncidents200JSONResponse{
		Items:          make([]contract.Incident, 0, len(items)),
		NextCursor:     next,
		Total:          order.Count(keep),
		Epoch:          s.Epoch(),
		Learning:       !s.Watching,
		LearningLeftNs: render.Remaining(s.Unwatched),
		Open:           s.Tally.OpenIncidents,
		Silenced:       len(silenced),
		Attention:      attention,
	}
	if muted == contract.ListIncidentsParamsMutedFalse {
		list.Muted = order.Count(func(i int32) bool { return matches(i) && isMuted(i) })
	}
	for _, i := range items {
		x := s.Incidents[i].Incident
		x.Silenced = silenced[s.Incidents[i].Number]
		x.Notes, x.Suspects = notes[x.ID], x.Suspects[:min(len(x.Suspects), listedSuspects)]
		x.Comments = int64(len(a.options.Comments.Of(x.ID)))
		a.addDirectory(&x, s.Ended)
		list.Items = append(list.Items, x)
	}
	return list, nil
}

// addDirectory adds the owners of x and its suspects, and links to pages about the suspects. It must run for each
// request to the API, because the directory may have been reloaded since the epoch ended.
func (a *Cases) addDirectory(x *contract.Incident, ended trace.Nanos) {
	d, end := a.options.Directory(), ended
	if x.Closed != nil {
		end = trace.Nanos(x.Closed.UnixNano())
	}
	x.Suspects = slices.Clone(x.Suspects) // because the snapshot shares them
	for i := range x.Suspects {
		s := &x.Suspects[i]
		s.Owner = render.Owner(d, s.Service)
		r := &directory.Request{Service: s.Service, Incident: x.ID, Start: trace.Nanos(x.Onset.UnixNano()), End: end}
		if len(s.Operations) > 0 {
			r.Operation = s.Operations[0].Operation
		}
		for _, part := range s.Instances {
			r.AddInstance(part.Key, part.Value)
		}
		if links := d.ServiceLinks(r); len(links) > 0 {
			s.Links = new(render.Links(links))
		}
	}
	x.Owner = render.Owner(d, x.Service)
}

// GetIncident implements contract.StrictServerInterface.
func (a *Cases) GetIncident(
	ctx context.Context, r contract.GetIncidentRequestObject,
) (contract.GetIncidentResponseObject, error) {
	var d *contract.GetIncident200JSONResponse
	var s *epoch.Snapshot
	var types []engine.AffectedType
	var id uint64
	var onset, closed, ended trace.Nanos
	var subjects []search.Subject
	enabled := make(map[string]bool)
	share := 0. // share of the place
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s = a.reader.Refresh(c)
		row, ok := s.IncidentByID[r.Incident]
		if !ok {
			return
		}
		all := c.Incidents.All()
		i := slices.IndexFunc(all, func(x engine.Incident) bool { return x.ID == s.Incidents[row].Number })
		if i < 0 {
			return
		}
		x, names := &all[i], renderer{s.Renderer(c)}
		id, types, onset, closed, ended = x.ID, slices.Clone(x.Types), x.Onset, x.Closed(), c.Ended
		if x.Place.Operation != 0 {
			subjects = []search.Subject{x.Place.Of}
		}
		enabled = names.enabled()
		v := c.Searches.Investigation(search.OfIncident(x.ID))
		next := describe.Advice(names.Names, x, v, c.Annotations)
		d = &contract.GetIncident200JSONResponse{
			Incident:  s.Incidents[row].Incident,
			Earlier:   earlier(s, row, a.options.Comments.Of),
			Next:      next.String(),
			NextParts: render.Sentence(names.Names, next),
			Timeline:  names.timeline(x),
		}
		if v != nil {
			d.Investigation = names.InvestigationDetail(v)
			shareOfAll(&d.Investigation.Investigation, x, v)
		}
		share = x.Place.Share
	})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, query.NotFound(string(aboutIncident))
	}
	d.Incident.Notes = a.options.Notes.All(a.options.Clock())[r.Incident]
	d.Incident.Silenced = a.Silenced(s)[id]
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
	sorting.SliceStable(d.Timeline, func(x, y contract.TimelineEntry) int { return x.At.Compare(y.At) })
	samples, err := SampleTraces(a.store, id, types, onset, closed)
	d.Exemplars = exemplarsOf(samples)
	return d, err
}

// shareOfAll rescales the shares of d's suspects from the first suspect of x to the whole added latency of x, as the
// texts about incidents do.
func shareOfAll(d *contract.Investigation, x *engine.Incident, v *search.Investigation) {
	whole := x.ShareOf(v, 1)
	for i := range d.Suspects {
		scale(&d.Suspects[i].Share, whole)
	}
}

// framesOfAll is like shareOfAll, but rescales the evidence for the place. share is the place's share of the added
// latency. If share or the place's share in d is unknown or not positive, framesOfAll changes nothing.
func framesOfAll(d *contract.LocatedPlace, share float64) {
	located := query.Value(d.Share.Value, 0)
	if share <= 0 || located <= 0 {
		return
	}
	d.Of = contract.LocatedPlaceOfAddedLatency
	scale(&d.Share, share/located)
	for i := range d.Frames {
		scale(&d.Frames[i].Share, share/located)
	}
}

// scale multiplies the value and the bounds of x by factor, except for those that are nil.
func scale(x *contract.Interval, factor float64) {
	for _, bound := range []**float64{&x.Value, &x.Low, &x.High} {
		if *bound != nil {
			*bound = new(**bound * factor)
		}
	}
}

// timelineKinds maps the state after a transition to the kind of its timeline entry.
var timelineKinds = [...]contract.TimelineEntryKind{
	incident.Open:     contract.TimelineEntryKindOpened,
	incident.Steady:   contract.TimelineEntryKindSteady,
	incident.Closed:   contract.TimelineEntryKindClosed,
	incident.Merged:   contract.TimelineEntryKindClosed,
	incident.Accepted: contract.TimelineEntryKindClosed,
}

// timeline returns the events of an incident, except for notes and comments, in any order. Past events don't change.
func (r renderer) timeline(x *engine.Incident) []contract.TimelineEntry {
	var events []contract.TimelineEntry
	add := func(when trace.Nanos, kind contract.TimelineEntryKind, text describe.Sentence) {
		events = append(events, contract.TimelineEntry{
			At: render.At(when), Kind: kind, Text: text.String(), TextParts: render.Sentence(r.Names, text),
		})
	}
	add(x.Onset, contract.TimelineEntryKindOnset, describe.Say("The change began, by estimate."))
	for i := range x.History {
		t := &x.History[i]
		add(t.At, timelineKinds[t.State], describe.Transition(r.Names, t))
	}
	for _, a := range x.Annotations(r.Core.Annotations) {
		add(a.At, contract.TimelineEntryKindAnnotation, describe.Annotation(r.Names, &a))
	}
	format := "Sibyl located the place: %s."
	for i := range x.Milestones {
		if m := &x.Milestones[i]; m.Place == 0 {
			add(m.At, contract.TimelineEntryKindProblem, describe.ProblemOpened(r.Names, m))
		} else {
			add(m.At, contract.TimelineEntryKindLocated, describe.Say(format, describe.Name(r.Op(m.Place))))
			format = "The place changed to %s."
		}
	}
	return events
}

// byPerson returns an event for a note or a comment. Its text is a single phrase of plain words.
func byPerson(at time.Time, kind contract.TimelineEntryKind, text string) contract.TimelineEntry {
	said := contract.Sentence{{Text: text, Kind: contract.PhraseKindWords}}
	return contract.TimelineEntry{At: at, Kind: kind, Text: text, TextParts: said}
}

// noted returns the notes on an incident as events.
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
		events = append(events, byPerson(x.note.At, x.kind, text))
	}
	return events
}

// SampleTrace is a slow or failed trace of a request type that an incident affects.
type SampleTrace struct {
	store.Exemplar
	RequestType analysis.Hash
	Failed      bool
}

// SampleTraces returns stored traces of the affected request types that started between the onset and the end of an
// incident. closed must be 0 for an open incident. The result starts with failed traces, latest first, of request types
// that suffer more from failures than from added latency. Slow traces follow, with the slowest relative to their type's
// usual duration first. For a closed incident, it contains only traces kept for the incident, so it no longer changes.
func SampleTraces(
	s *store.Store, incident uint64, types []engine.AffectedType, onset, closed trace.Nanos,
) ([]SampleTrace, error) {
	var found []SampleTrace
	slowness := make(map[trace.ID]float64)
	for i := range types {
		t := &types[i]
		present := &store.Exemplars{}
		if closed == 0 {
			var err error
			if present, err = s.Exemplars.Of(t.RequestType); err != nil {
				return nil, err
			}
		}
		kept, err := s.Kept.Of(search.OfIncident(incident), t.RequestType)
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
	sorting.SliceStable(found, func(a, b SampleTrace) int {
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

// exemplarsOf returns the first traces of found as exemplars: failed ones, followed by slow ones, slowest first.
func exemplarsOf(found []SampleTrace) []contract.Exemplar {
	first := slices.Clone(found[:min(len(found), incidentExemplars)])
	failed := 0
	for failed < len(first) && first[failed].Failed {
		failed++
	}
	sorting.SliceStable(first[failed:], func(a, b SampleTrace) int { return cmp.Compare(b.Duration, a.Duration) })
	all := []contract.Exemplar{}
	for i := range first {
		x, stratum := &first[i], contract.ExemplarStratumSlow
		if x.Failed {
			stratum = contract.ExemplarStratumFailed
		}
		all = append(all, contract.Exemplar{
			Trace:      x.Trace.String(),
			Group:      x.RequestType.String(),
			Stratum:    stratum,
			Start:      render.At(x.Start),
			DurationNs: x.Duration,
		})
	}
	return all
}

// maxEarlier limits the number of earlier incidents that are listed with an incident.
const maxEarlier = 10

// earlier returns at most maxEarlier closed incidents that opened before the incident at index row and have the same
// first suspect. Incidents of the same kind with the same place come first; apart from that, the latest come first.
// comments returns the comments on an incident.
func earlier(
	s *epoch.Snapshot, row int, comments func(incident string) []contract.Comment,
) []contract.EarlierIncident {
	all := []contract.EarlierIncident{}
	of := &s.Incidents[row].Incident
	for i := row - 1; i >= 0; i-- {
		x := &s.Incidents[i]
		if !x.Listed || x.Closed == nil || x.Service != of.Service {
			continue
		}
		e := contract.EarlierIncident{
			ID:       x.ID,
			Severity: x.Severity,
			Onset:    x.Onset,
			Opened:   x.Opened,
			Ended:    *x.Ended,
			Closed:   *x.Closed,
			End:      *x.End,
			Sentence: x.Sentence,
			Helped:   helped(comments(x.ID)),
		}
		if place := placeOf(&x.Incident); place != "" {
			e.Place, e.Alike = &place, x.Kind == of.Kind && place == placeOf(of)
		}
		all = append(all, e)
	}
	sorting.SliceStable(all, func(a, b contract.EarlierIncident) int { return trace.CompareBools(b.Alike, a.Alike) })
	return all[:min(len(all), maxEarlier)]
}

// placeOf returns the located place of x or, if there is none, the operation of its first suspect with the largest
// score. It returns "" if neither is known.
func placeOf(x *contract.Incident) string {
	switch {
	case x.Place != nil:
		return *x.Place
	case len(x.Suspects) > 0 && len(x.Suspects[0].Operations) > 0:
		return x.Suspects[0].Operations[0].Operation
	}
	return ""
}

// helped returns the text of the latest comment that is marked as having helped, or nil if there is no such comment.
func helped(comments []contract.Comment) *string {
	for _, c := range slices.Backward(comments) {
		if c.Helped != nil && *c.Helped {
			return &c.Text
		}
	}
	return nil
}

// commented returns comments as events.
func commented(all []contract.Comment) []contract.TimelineEntry {
	var events []contract.TimelineEntry
	for i := range all {
		events = append(events,
			byPerson(all[i].At, contract.TimelineEntryKindCommented, all[i].By+": "+all[i].Text))
	}
	return events
}

// AcknowledgeIncident implements contract.StrictServerInterface.
func (a *Cases) AcknowledgeIncident(
	ctx context.Context, r contract.AcknowledgeIncidentRequestObject,
) (contract.AcknowledgeIncidentResponseObject, error) {
	notes, err := a.note(ctx, aboutIncident, r.Incident, Acknowledged, r.Body)
	return contract.AcknowledgeIncident200JSONResponse(notes), err
}

// UnacknowledgeIncident implements contract.StrictServerInterface.
func (a *Cases) UnacknowledgeIncident(
	_ context.Context, r contract.UnacknowledgeIncidentRequestObject,
) (contract.UnacknowledgeIncidentResponseObject, error) {
	return contract.UnacknowledgeIncident204Response{}, a.removeNote(r.Incident, Acknowledged)
}

// MuteIncident implements contract.StrictServerInterface.
func (a *Cases) MuteIncident(
	ctx context.Context, r contract.MuteIncidentRequestObject,
) (contract.MuteIncidentResponseObject, error) {
	notes, err := a.note(ctx, aboutIncident, r.Incident, Muted, r.Body)
	return contract.MuteIncident200JSONResponse(notes), err
}

// UnmuteIncident implements contract.StrictServerInterface.
func (a *Cases) UnmuteIncident(
	_ context.Context, r contract.UnmuteIncidentRequestObject,
) (contract.UnmuteIncidentResponseObject, error) {
	return contract.UnmuteIncident204Response{}, a.removeNote(r.Incident, Muted)
}

// incident returns the incident with the given ID, or the refusal of a request for an incident that doesn't exist.
func (a *Cases) incident(ctx context.Context, id string) (*epoch.IncidentRow, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	i, known := s.IncidentByID[id]
	if !known {
		return nil, query.NotFound(string(aboutIncident))
	}
	return &s.Incidents[i], nil
}

// AcceptIncident implements contract.StrictServerInterface.
func (a *Cases) AcceptIncident(
	ctx context.Context, r contract.AcceptIncidentRequestObject,
) (contract.AcceptIncidentResponseObject, error) {
	x, err := a.incident(ctx, r.Incident)
	if err != nil {
		return nil, err
	}
	change := engine.Change{Accept: x.Number, By: access.Caller(ctx).Name}
	if r.Body != nil && r.Body.Text != nil {
		change.Text = *r.Body.Text
	}
	accepted, err := a.reader.Change(ctx, change)
	if err != nil {
		return nil, err
	}
	if !accepted {
		return nil, refusal.New(refusal.Conflict, "the incident is closed", "")
	}
	return contract.AcceptIncident204Response{}, nil
}
