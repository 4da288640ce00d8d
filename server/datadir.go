package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// Names of the databases below the data directory.
const (
	journalName = "journal"
	storeName   = "store"
)

// without holds, by database, the loss if its folder is moved away.
var without = map[string]string{
	journalName: "Sibyl then lacks the requests since its last checkpoint, and the traces that were open",
	storeName:   "Sibyl then learns anew, with the rest of the journal, and lacks its incidents, problems and kept traces",
}

// explain adds the remedy to the error of a database of the data directory.
func explain(err error, dataDir, name string) error {
	dir := filepath.Join(dataDir, name)
	aside := fmt.Sprintf("move it away (mv %s %s) and start again: %s", dir, asideName(dir), without[name])
	switch {
	case errors.Is(err, pebbledb.ErrLocked):
		return fmt.Errorf("the data directory %s is in use by another sibyl: stop that one, or name another directory with --data-dir", dataDir)
	case errors.Is(err, pebbledb.ErrNewer):
		return fmt.Errorf("%w: use that version, restore a backup that this one made, or name another directory with --data-dir", err)
	case errors.Is(err, pebbledb.ErrForeign):
		return fmt.Errorf("%w: name another directory with --data-dir, or, if %s belongs to nobody else, %s", err, dataDir, aside)
	case errors.Is(err, pebbledb.ErrDamaged):
		return fmt.Errorf("%w. Look for errors of the disk, then restore a backup; or %s", err, aside)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is a file: name another directory with --data-dir, or move the file away", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: let the user of sibyl own the data directory and all below it, or name another one with --data-dir", err)
	}
	return err
}

// explained returns giveUp for a database of the data directory, with errors that tell the remedy.
func explained(giveUp func(error), dataDir, name string) func(error) {
	if giveUp == nil {
		return nil
	}
	return func(err error) { giveUp(explain(err, dataDir, name)) }
}

// asideName returns a name beside path that is free.
func asideName(path string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s.aside%d", path, i)
		if _, err := os.Lstat(name); err != nil {
			return name
		}
	}
}

// shownFiles is the number of files that a message names.
const shownFiles = 3

// warnOfContents logs that a directory has only one of the databases, which belong together, or has none but files of
// something else: its user may have meant another.
func warnOfContents(dataDir string, log *slog.Logger) {
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return // opening the databases reports it
	}
	own := append(api.Files(), access.FileName, "ballast", backupName, "lost+found")
	var others []string
	missing := []string{journalName, storeName}
	for _, e := range entries {
		name := e.Name()
		missing = slices.DeleteFunc(missing, func(database string) bool { return database == name })
		if !slices.Contains(own, name) && name != journalName && name != storeName && !strings.HasPrefix(name, ".") {
			others = append(others, name)
		}
	}
	switch {
	case len(missing) == 1:
		log.Warn("a folder of the data directory is missing: stop sibyl and put it back or restore a backup, or go on without it",
			slog.String("missing", filepath.Join(dataDir, missing[0])), slog.String("effect", without[missing[0]]))
	case len(missing) == 2 && len(others) > 0:
		log.Warn("the data directory holds no data of Sibyl but other files, which stay as they are: if you meant another directory, stop sibyl and name it with --data-dir",
			slog.String("directory", dataDir), slog.Int("files", len(others)), slog.Any("first", others[:min(shownFiles, len(others))]))
	}
}
