package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/durable"
)

// sharedFiles gives all replicas the files in the data directory that contain people's input, and the tokens. The
// replica that leads puts each new content into the journal; the others write it to their data directories.
type sharedFiles struct {
	tenant *tenant
	reload []func() error // read the files again; complete before the tenant runs

	mu   sync.Mutex        // guards seen, and is held while files are shared
	seen map[string][]byte // by name: content that the other replicas have
}

// sharedNames returns the names of the files. Keys of sessions are not among them: people log in again at the replica
// that takes over.
func sharedNames() []string { return append(api.Files(), access.FileName) }

// shareInterval is the interval between searches for files that another program, such as sibyl token create, has
// changed.
const shareInterval = time.Second

func newSharedFiles(t *tenant) *sharedFiles {
	return &sharedFiles{
		tenant: t,
		seen:   make(map[string][]byte),
		reload: []func() error{t.notes.Reload, t.silences.Reload, t.edits.Reload},
	}
}

// share puts the files that have changed into the journal, and returns once the other replicas have them. It does
// nothing unless this replica leads.
func (s *sharedFiles) share(ctx context.Context) {
	t := s.tenant
	if !t.config.Clustered() || !t.live.Ready() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sharedNames() {
		data, err := os.ReadFile(filepath.Join(t.config.DataDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && bytes.Equal(s.seen[name], data) {
			continue
		}
		if err == nil {
			_, err = t.live.Change(ctx, engine.Change{File: &engine.File{Name: name, Data: data}})
		}
		if err != nil {
			t.log.WarnContext(ctx, "the other replicas don't have the latest content of a file",
				slog.String("file", name), slog.Any("error", err))
			return
		}
		s.seen[name] = data
	}
}

// run shares files that other programs change, until ctx is done.
func (s *sharedFiles) run(ctx context.Context) error {
	select {
	case <-s.tenant.live.Started():
	case <-ctx.Done():
		return nil
	}
	ticks := time.NewTicker(shareInterval)
	defer ticks.Stop()
	for {
		s.share(ctx)
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// take stores a file that the leading replica shares. It does nothing if this replica leads, because its files are
// newer.
func (s *sharedFiles) take(x *engine.File) error {
	if s.tenant.live.Ready() || !slices.Contains(sharedNames(), x.Name) {
		return nil
	}
	path := filepath.Join(s.tenant.config.DataDir, x.Name)
	if err := durable.Replace(path, x.Data); err != nil {
		return fmt.Errorf("store %s: %w", x.Name, err)
	}
	for _, reload := range s.reload {
		if err := reload(); err != nil {
			return err
		}
	}
	return nil
}
