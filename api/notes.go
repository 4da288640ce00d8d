package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// NoteKind is the kind of a note about a problem.
type NoteKind string

// The kinds of note.
const (
	Acknowledged NoteKind = "acknowledged" // the author takes care of the problem
	Muted        NoteKind = "muted"        // lists omit the problem
)

// Notes stores people's notes about problems in a file of the data directory. Notes expire. It is safe for concurrent
// use.
type Notes struct {
	path string
	mu   sync.Mutex                       // guards all
	all  map[analysis.Hash]contract.Notes // immutable; changes replace it
}

// notesFile is the name of the file.
const notesFile = "notes.json"

// Limits of notes.
const (
	maxNotes       = 10_000 // problems with notes
	defaultNoteAge = 24 * time.Hour
	maxNoteAge     = 30 * 24 * time.Hour
)

// OpenNotes reads the notes in a data directory.
func OpenNotes(dir string) (*Notes, error) {
	n := &Notes{path: filepath.Join(dir, notesFile), all: make(map[analysis.Hash]contract.Notes)}
	data, err := os.ReadFile(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	var byID map[string]contract.Notes
	if err == nil {
		err = json.Unmarshal(data, &byID)
	}
	for id, x := range byID {
		h, parseErr := analysis.ParseHash(id)
		n.all[h] = x
		err = errors.Join(err, parseErr)
	}
	if err != nil {
		return nil, fmt.Errorf("read notes about problems: %s: %w", n.path, err)
	}
	return n, nil
}

// All returns the notes that have not expired, by problem. The map is immutable.
func (n *Notes) All(now time.Time) map[analysis.Hash]contract.Notes {
	n.mu.Lock()
	defer n.mu.Unlock()
	if anyExpired(n.all, now) {
		n.all = unexpired(n.all, now)
	}
	return n.all
}

func anyExpired(all map[analysis.Hash]contract.Notes, now time.Time) bool {
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

// unexpired returns a copy of all without the notes that have expired.
func unexpired(all map[analysis.Hash]contract.Notes, now time.Time) map[analysis.Hash]contract.Notes {
	left := make(map[analysis.Hash]contract.Notes, len(all))
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

// Set sets the note of a kind about a problem, or removes it if note is nil. It returns all notes about the problem.
// The change is on disk when Set returns; after an error nothing has changed.
func (n *Notes) Set(problem analysis.Hash, kind NoteKind, note *contract.Note, now time.Time) (contract.Notes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := unexpired(n.all, now)
	x := next[problem]
	if kind == Muted {
		x.Muted = note
	} else {
		x.Acknowledged = note
	}
	delete(next, problem)
	if x != (contract.Notes{}) {
		next[problem] = x
	}
	if len(next) > maxNotes {
		return contract.Notes{}, refusal.New(refusal.Conflict, "too many problems have notes", "remove some")
	}
	byID := make(map[string]contract.Notes, len(next))
	for id, x := range next {
		byID[id.String()] = x
	}
	data, err := json.Marshal(byID)
	if err == nil {
		err = renameio.WriteFile(n.path, data, 0o600, renameio.WithTempDir(filepath.Dir(n.path)))
	}
	if err != nil {
		return contract.Notes{}, fmt.Errorf("store notes about problems: %w", err)
	}
	n.all = next
	return x, nil
}

// note sets a note about an open problem.
func (a *API) note(ctx context.Context, problem string, kind NoteKind, body *contract.NoteRequest) (contract.Notes, error) {
	s, err := a.current(ctx)
	if err != nil {
		return contract.Notes{}, err
	}
	id, err := analysis.ParseHash(problem)
	if _, open := s.byID[problem]; err != nil || !open {
		return contract.Notes{}, notFound("problem")
	}
	now := a.options.Clock().UTC()
	expires := value(body.Expires, now.Add(defaultNoteAge)).UTC()
	if !expires.After(now) || expires.After(now.Add(maxNoteAge)) {
		return contract.Notes{}, refusal.New(refusal.Invalid, "expires: want a time within the next 30 days", "")
	}
	by := caller(ctx).name
	notes, err := a.notes.Set(id, kind, &contract.Note{By: by, At: now, Expires: &expires, Text: value(body.Text, "")}, now)
	if err == nil {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "note about a problem set", slog.String("problem", problem),
			slog.String("kind", string(kind)), slog.String("by", by))
	}
	return notes, err
}

// removeNote removes a note.
func (a *API) removeNote(problem string, kind NoteKind) error {
	id, err := analysis.ParseHash(problem)
	if err != nil {
		return notFound("problem")
	}
	_, err = a.notes.Set(id, kind, nil, a.options.Clock())
	return err
}
