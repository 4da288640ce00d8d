package cases

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/datafile"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Silences stores people's silences in a file in the data directory. It also remembers the incidents that opened while
// a silence covered them, because notifications about them are due once no silence covers them any more. It is safe for
// concurrent use.
type Silences struct {
	path string
	mu   sync.Mutex   // guards kept
	kept keptSilences // immutable; changes replace it
}

// keptSilences is the contents of the silence file.
type keptSilences struct {
	Silences []contract.Silence `json:"silences"` // in the order in which they were added
	Held     []uint64           `json:"held"`     // open incidents that nobody has been notified of
}

// SilencesFile is the name of the file with the silences in the data directory.
const SilencesFile = "silences.json"

// Limits on silences.
const (
	maxSilences   = 500
	maxSilenceAge = 90 * 24 * time.Hour
	silencePast   = 7 * 24 * time.Hour // retention of ended silences, and time that a preview looks back
)

// OpenSilences reads the silences in the data directory dir. The file needn't exist.
func OpenSilences(dir string) (*Silences, error) {
	s := &Silences{path: filepath.Join(dir, SilencesFile)}
	return s, datafile.Read(s.path, &s.kept)
}

// Reload reads the file again, which another replica has changed.
func (s *Silences) Reload() error {
	again, err := OpenSilences(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = again.kept
	return nil
}

// All returns all silences with their states: first those in force, then scheduled ones, then ended ones. Within each
// state, the silence added last comes first.
func (s *Silences) All(now time.Time) []contract.Silence {
	byState := make(map[contract.SilenceState][]contract.Silence)
	for _, x := range slices.Backward(s.snapshot().Silences) {
		x.State = stateOf(&x, now)
		byState[x.State] = append(byState[x.State], x)
	}
	all := []contract.Silence{} // not nil: it is an empty list in JSON
	for _, state := range []contract.SilenceState{
		contract.SilenceStateInForce, contract.SilenceStateScheduled, contract.SilenceStateEnded,
	} {
		all = append(all, byState[state]...)
	}
	return all
}

// InForce reports whether any silence is in force.
func (s *Silences) InForce(now time.Time) bool {
	return slices.ContainsFunc(s.snapshot().Silences, func(x contract.Silence) bool {
		_, covers := windowAt(&x, now)
		return covers
	})
}

// Held returns the incidents that opened while a silence covered them, if nobody has been notified of them since.
func (s *Silences) Held() []uint64 { return s.snapshot().Held }

func (s *Silences) snapshot() keptSilences {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// Hold replaces the incidents that Held returns. The change is on disk when Hold returns.
func (s *Silences) Hold(incidents []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.kept.Held, incidents) {
		return nil
	}
	return s.replace(keptSilences{s.kept.Silences, incidents})
}

// add adds a silence and returns it with its ID. It deletes silences that ended more than silencePast ago and, if there
// are still too many, the first one that has ended. It returns a refusal if there is no room.
func (s *Silences) add(x contract.Silence, now time.Time) (contract.Silence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.kept.Silences {
		x.ID = max(x.ID, s.kept.Silences[i].ID)
	}
	x.ID++
	next := slices.DeleteFunc(slices.Clone(s.kept.Silences), func(old contract.Silence) bool {
		return now.Sub(old.Until) > silencePast
	})
	if len(next) >= maxSilences { // scripts may add and end many in a week
		ended := func(old contract.Silence) bool { return !now.Before(old.Until) }
		i := slices.IndexFunc(next, ended)
		if i < 0 {
			return x, refusal.New(refusal.Conflict, fmt.Sprintf("there are %d silences", len(next)), "end some")
		}
		next = slices.Delete(next, i, i+1)
	}
	x.State = stateOf(&x, now)
	return x, s.replace(keptSilences{append(next, x), s.kept.Held})
}

// end ends the silence with the given ID now, if it hasn't ended yet. A silence that hasn't started yet is deleted.
func (s *Silences) end(id int64, by string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.kept.Silences, func(x contract.Silence) bool { return x.ID == id })
	if i < 0 {
		return query.NotFound("silence")
	}
	next := slices.Clone(s.kept.Silences)
	switch x := &next[i]; {
	case !now.Before(x.Until):
		return nil
	case now.Before(x.From):
		next = slices.Delete(next, i, i+1)
	default:
		x.Until, x.EndedBy = now, &by
	}
	return s.replace(keptSilences{next, s.kept.Held})
}

// replace writes kept to the file of s, then sets s.kept. The caller must hold s.mu.
func (s *Silences) replace(kept keptSilences) error {
	if err := datafile.Replace(s.path, kept); err != nil {
		return err
	}
	s.kept = kept
	return nil
}

func stateOf(x *contract.Silence, now time.Time) contract.SilenceState {
	if _, covers := windowAt(x, now); covers {
		return contract.SilenceStateInForce
	}
	if now.Before(x.Until) {
		return contract.SilenceStateScheduled
	}
	return contract.SilenceStateEnded
}

// zones caches the time zones in use by name, because loading one from its file takes longer than the rest of a match.
var zones struct {
	mu    sync.Mutex // guards known
	known map[string]*time.Location
}

// zoneOf returns the time zone with the given name.
func zoneOf(name string) (*time.Location, error) {
	zones.mu.Lock()
	defer zones.mu.Unlock()
	if zone := zones.known[name]; zone != nil {
		return zone, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	if zones.known == nil || len(zones.known) >= maxSilences {
		zones.known = make(map[string]*time.Location)
	}
	zones.known[name] = zone
	return zone, nil
}

// windowAt reports whether x covers the time now. If so, until is the time when it stops: its own end, or the end of
// its current weekly window.
func windowAt(x *contract.Silence, now time.Time) (until time.Time, covers bool) {
	w := x.Weekly
	switch {
	case now.Before(x.From) || !now.Before(x.Until):
		return until, false
	case w == nil:
		return x.Until, true
	}
	zone, err1 := zoneOf(w.Zone)
	at, err2 := time.Parse("15:04", w.Start)
	if err1 != nil || err2 != nil { // the file has been edited, or this machine no longer knows the zone
		return until, false
	}
	for _, back := range []int{0, -1} { // the window of yesterday may end today
		year, month, day := now.In(zone).AddDate(0, 0, back).Date()
		start := time.Date(year, month, day, at.Hour(), at.Minute(), 0, 0, zone)
		name := contract.Weekday(strings.ToLower(start.Weekday().String()))
		end := start.Add(time.Duration(w.LengthNs))
		if slices.Contains(w.Days, name) && !now.Before(start) && now.Before(end) {
			if x.Until.Before(end) {
				end = x.Until
			}
			return end.UTC(), true
		}
	}
	return until, false
}

// ListSilences implements contract.StrictServerInterface.
func (a *Cases) ListSilences(
	context.Context, contract.ListSilencesRequestObject,
) (contract.ListSilencesResponseObject, error) {
	return contract.ListSilences200JSONResponse{Items: a.options.Silences.All(a.options.Clock())}, nil
}

// AddSilence implements contract.StrictServerInterface.
func (a *Cases) AddSilence(
	ctx context.Context, r contract.AddSilenceRequestObject,
) (contract.AddSilenceResponseObject, error) {
	now, by := a.options.Clock().UTC(), access.Caller(ctx).Name
	x := contract.Silence{
		Match:  r.Body.Match,
		By:     by,
		At:     now,
		From:   query.Value(r.Body.From, now).UTC(),
		Until:  r.Body.Until.UTC(),
		Weekly: r.Body.Weekly,
		Text:   strings.TrimSpace(r.Body.Text),
	}
	if err := checkMatch(&x.Match); err != nil {
		return nil, err
	}
	if !x.Until.After(now) || !x.Until.After(x.From) || x.Until.After(now.Add(maxSilenceAge)) {
		return nil, refusal.New(refusal.Invalid, "until: want a time after from, within the next 90 days", "")
	}
	if x.Weekly != nil {
		if _, err := time.LoadLocation(x.Weekly.Zone); err != nil {
			return nil, refusal.New(refusal.Invalid, "weekly.zone: Sibyl's machine knows no such time zone",
				"use a name like Europe/Berlin; if the machine knows none, install tzdata there, or use UTC")
		}
	}
	x, err := a.options.Silences.add(x, now)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "silence added", slog.Int64("id", x.ID), slog.String("by", by),
		slog.Time("until", x.Until))
	return contract.AddSilence201JSONResponse(x), nil
}

// EndSilence implements contract.StrictServerInterface.
func (a *Cases) EndSilence(
	ctx context.Context, r contract.EndSilenceRequestObject,
) (contract.EndSilenceResponseObject, error) {
	by := access.Caller(ctx).Name
	err := a.options.Silences.end(r.Silence, by, a.options.Clock().UTC())
	if err == nil {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "silence ended", slog.Int64("id", r.Silence),
			slog.String("by", by))
	}
	return contract.EndSilence204Response{}, err
}

// PreviewSilence implements contract.StrictServerInterface.
func (a *Cases) PreviewSilence(
	ctx context.Context, r contract.PreviewSilenceRequestObject,
) (contract.PreviewSilenceResponseObject, error) {
	if err := checkMatch(r.Body); err != nil {
		return nil, err
	}
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	preview := contract.PreviewSilence200JSONResponse{Items: []contract.SilenceMatched{}}
	since := trace.Nanos(a.options.Clock().Add(-silencePast).UnixNano())
	var found []*epoch.IncidentRow
	for i := range s.Incidents {
		if x := &s.Incidents[i]; x.Listed && x.Overlaps(since, 0) && a.matches(r.Body, x) {
			found = append(found, x)
		}
	}
	sorting.Slice(found, func(x, y *epoch.IncidentRow) int { return cmp.Compare(x.Key(), y.Key()) })
	for _, x := range found {
		if x.Closed == nil {
			preview.Open++
		}
		preview.Items = append(preview.Items, contract.SilenceMatched{
			ID:       x.ID,
			Severity: x.Severity,
			Service:  x.Service,
			Onset:    x.Onset,
			Ended:    x.Ended,
			Sentence: x.Sentence,
		})
	}
	return preview, nil
}

// Silenced returns the silences that cover open incidents of s, by incident number. If several silences cover an
// incident, it returns the one that ends last.
func (a *Cases) Silenced(s *epoch.Snapshot) map[uint64]*contract.Silenced {
	now, found := a.options.Clock(), make(map[uint64]*contract.Silenced)
	for _, x := range a.options.Silences.snapshot().Silences {
		until, covers := windowAt(&x, now)
		if !covers {
			continue
		}
		for i := range s.Incidents {
			row := &s.Incidents[i]
			known := found[row.Number]
			if row.Closed == nil && (known == nil || known.Until.Before(until)) && a.matches(&x.Match, row) {
				found[row.Number] = &contract.Silenced{Silence: x.ID, By: x.By, Until: until, Text: x.Text}
			}
		}
	}
	return found
}
