package cases

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/datafile"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// NoteKind is the kind of a note on an incident or a problem.
type NoteKind string

// The kinds of notes.
const (
	Acknowledged NoteKind = "acknowledged" // the author is working on it
	Muted        NoteKind = "muted"        // it is omitted from lists and doesn't trigger webhooks
)

// Notes stores people's notes on incidents and problems in a file in the data directory, until the notes expire. It is
// safe for concurrent use.
type Notes struct {
	path string
	mu   sync.Mutex                // guards all
	all  map[string]contract.Notes // by ID, see noteID; immutable; changes replace it
}

// noteID matches the IDs of incidents, which have 16 digits, and of problems.
var noteID = regexp.MustCompile(`^([0-9a-f]{16}|[0-9a-f]{32})$`)

// NotesFile is the name of the note file in the data directory.
const NotesFile = "notes.json"

// Limits on notes.
const (
	maxNotes       = 10_000 // incidents and problems with notes
	defaultNoteAge = 24 * time.Hour
	maxNoteAge     = 30 * 24 * time.Hour
)

// OpenNotes reads the notes in the data directory dir. The file needn't exist.
func OpenNotes(dir string) (*Notes, error) {
	n := &Notes{path: filepath.Join(dir, NotesFile), all: make(map[string]contract.Notes)}
	if err := datafile.Read(n.path, &n.all); err != nil {
		return nil, err
	}
	for id := range n.all {
		if !noteID.MatchString(id) {
			return nil, datafile.Unreadable(n.path, fmt.Errorf("%q is not the ID of an incident or a problem", id))
		}
	}
	return n, nil
}

// Reload reads the file again, which another replica has changed.
func (n *Notes) Reload() error {
	again, err := OpenNotes(filepath.Dir(n.path))
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = again.all
	return nil
}

// IsMuted reports whether an incident is muted.
func (n *Notes) IsMuted(incident uint64, now time.Time) bool {
	return n.All(now)[render.Hex16(incident)].Muted != nil
}

// Acknowledgement returns the acknowledgement of an incident, or nil if there is no acknowledgement in force.
func (n *Notes) Acknowledgement(incident uint64, now time.Time) *contract.Note {
	return n.All(now)[render.Hex16(incident)].Acknowledged
}

// All returns the unexpired notes, by the ID of the incident or problem. The caller must not modify the map.
func (n *Notes) All(now time.Time) map[string]contract.Notes {
	n.mu.Lock()
	defer n.mu.Unlock()
	if anyExpired(n.all, now) {
		n.all = unexpired(n.all, now)
	}
	return n.all
}

func anyExpired(all map[string]contract.Notes, now time.Time) bool {
	for _, x := range all {
		if expired(x.Acknowledged, now) || expired(x.Muted, now) {
			return true
		}
	}
	return false
}

func expired(x *contract.Note, now time.Time) bool {
	return x != nil && x.Expires != nil && !now.Before(*x.Expires)
}

// unexpired returns a copy of all without expired notes.
func unexpired(all map[string]contract.Notes, now time.Time) map[string]contract.Notes {
	left := make(map[string]contract.Notes, len(all))
	for id, x := range all {
		if expired(x.Acknowledged, now) {
			x.Acknowledged = nil
		}
		if expired(x.Muted, now) {
			x.Muted = nil
		}
		if x != (contract.Notes{}) {
			left[id] = x
		}
	}
	return left
}

// Set sets the note of the given kind on an incident or a problem, or removes it if note is nil. It returns all notes
// on the incident or problem. The change is on disk when Set returns. If Set returns an error, nothing has changed.
func (n *Notes) Set(id string, kind NoteKind, note *contract.Note, now time.Time) (contract.Notes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := unexpired(n.all, now)
	x := next[id]
	if kind == Muted {
		x.Muted = note
	} else {
		x.Acknowledged = note
	}
	delete(next, id)
	if x != (contract.Notes{}) {
		next[id] = x
	}
	if len(next) > maxNotes {
		return contract.Notes{},
			refusal.New(refusal.Conflict, "too many incidents and problems have notes", "remove some")
	}
	if err := datafile.Replace(n.path, next); err != nil {
		return contract.Notes{}, err
	}
	n.all = next
	return x, nil
}

// subject is the kind of object that a note is about.
type subject string

const (
	aboutIncident subject = "incident"
	aboutProblem  subject = "problem"
)

// has reports whether s contains the incident or problem with the given ID.
func has(s *epoch.Snapshot, about subject, id string) bool {
	all := s.ByID
	if about == aboutIncident {
		all = s.IncidentByID
	}
	_, ok := all[id]
	return ok
}

// note sets a note on an incident or an open problem. It returns a refusal if there is no such incident or problem, or
// if the note would expire in the past or after more than maxNoteAge.
func (a *Cases) note(
	ctx context.Context, about subject, id string, kind NoteKind, body *contract.NoteRequest,
) (contract.Notes, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return contract.Notes{}, err
	}
	if !has(s, about, id) {
		return contract.Notes{}, query.NotFound(string(about))
	}
	now := a.options.Clock().UTC()
	expires := query.Value(body.Expires, now.Add(defaultNoteAge)).UTC()
	if !expires.After(now) || expires.After(now.Add(maxNoteAge)) {
		return contract.Notes{}, refusal.New(refusal.Invalid, "expires: want a time within the next 30 days", "")
	}
	by := access.Caller(ctx).Name
	notes, err := a.options.Notes.Set(id, kind,
		&contract.Note{By: by, At: now, Expires: &expires, Text: query.Value(body.Text, "")}, now)
	if err == nil {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "note set", slog.String(string(about), id),
			slog.String("kind", string(kind)), slog.String("by", by))
	}
	return notes, err
}

// removeNote removes the note of the given kind from an incident or a problem, if there is one.
func (a *Cases) removeNote(id string, kind NoteKind) error {
	_, err := a.options.Notes.Set(id, kind, nil, a.options.Clock())
	return err
}
