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
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// Names of the databases below the data directory.
const (
	journalName = "journal"
	storeName   = "store"
)

// without describes, for each database, the effect of moving its folder away.
var without = map[string]string{
	journalName: "Sibyl then loses the requests since its last checkpoint, and the traces that were open",
	storeName:   "Sibyl then relearns from the rest of the journal, and loses its incidents, problems and kept traces",
}

// explain adds a remedy to err, an error from the database called name in dataDir.
func explain(err error, dataDir, name string) error {
	dir := filepath.Join(dataDir, name)
	const another = "name another directory with --data-dir"
	aside := fmt.Sprintf("move it away (mv %s %s) and start again: %s", dir, asideName(dir), without[name])
	switch {
	case errors.Is(err, pebbledb.ErrLocked):
		return fmt.Errorf("the data directory %s is in use by another sibyl: stop that one, or %s", dataDir, another)
	case errors.Is(err, pebbledb.ErrNewer):
		return fmt.Errorf("%w: use that version, restore a backup that this one made, or %s", err, another)
	case errors.Is(err, pebbledb.ErrForeign):
		return fmt.Errorf("%w: %s, or, if %s belongs to nobody else, %s", err, another, dataDir, aside)
	case errors.Is(err, pebbledb.ErrDamaged):
		return fmt.Errorf("%w. Look for errors of the disk, then restore a backup; or %s", err, aside)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is a file: %s, or move the file away", err, dir, another)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: let the user of sibyl own the data directory and all below it, or %s", err, another)
	}
	return err
}

// explained returns a function that adds a remedy to its error, as explain does, and passes it to giveUp. It returns
// nil if giveUp is nil.
func explained(giveUp func(error), dataDir, name string) func(error) {
	if giveUp == nil {
		return nil
	}
	return func(err error) { giveUp(explain(err, dataDir, name)) }
}

// asideSuffix, followed by a number, is the suffix of the names that error messages propose for files that users move
// away.
const asideSuffix = ".aside"

// asideName returns an unused name next to path.
func asideName(path string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s%s%d", path, asideSuffix, i)
		if _, err := os.Lstat(name); err != nil {
			return name
		}
	}
}

// CheckDataDir returns an error if dir cannot be a data directory because it is a file, or contains only files that
// are not Sibyl's. Hidden files do not count, nor does lost+found, which exists in a new file system.
func CheckDataDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // New creates it
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("the data directory %s is a file, or below one", dir)
	case err != nil:
		return fmt.Errorf("read the data directory: %w", err)
	}
	var others []string
	for _, e := range entries {
		switch name := e.Name(); {
		case isOwn(dir, name):
			return nil
		case name != "lost+found" && !strings.HasPrefix(name, "."):
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	const shown = 3
	list := strings.Join(others[:min(shown, len(others))], ", ")
	if more := len(others) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("the data directory %s has no data of Sibyl but other files (%s)", dir, list)
}

// isOwn reports whether the file called name in dataDir proves that Sibyl has written to the directory.
func isOwn(dataDir, name string) bool {
	switch base, _, _ := strings.Cut(name, asideSuffix); base {
	case journalName, storeName: // other programs have a journal, too
		return pebbledb.Exists(filepath.Join(dataDir, name))
	case audit.DirName: // other programs may have one, too
		return audit.Exists(dataDir)
	case backupName:
		return pebbledb.Exists(filepath.Join(dataDir, name, storeName))
	case access.FileName, login.KeyFile, pebbledb.BallastName,
		journalName + pebbledb.DamagedSuffix, storeName + pebbledb.DamagedSuffix:
		return true
	default:
		return slices.Contains(api.Files(), base)
	}
}

// warnOfMissing logs a warning if dataDir contains only one of the two databases, because they belong together.
func warnOfMissing(dataDir string, log *slog.Logger) {
	var missing []string
	for _, name := range []string{journalName, storeName} {
		if _, err := os.Lstat(filepath.Join(dataDir, name)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 1 {
		log.Warn("a folder of the data directory is missing: "+
			"stop sibyl and put it back or restore a backup, or go on without it",
			slog.String("missing", filepath.Join(dataDir, missing[0])), slog.String("effect", without[missing[0]]))
	}
}
