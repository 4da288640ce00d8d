package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// openIn opens the store in dir.
func openIn(t *testing.T, dir string) (*Store, error) {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Open(Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
}

// Data of another version is refused.
func TestOtherVersion(t *testing.T) {
	dir := t.TempDir()
	s, err := openIn(t, dir)
	must(t, err)
	must(t, s.db.Set([]byte{keyVersion}, binary.AppendUvarint(nil, Version+1), pebble.Sync))
	must(t, s.Close())
	_, err = openIn(t, dir)
	if !errors.Is(err, pebbledb.ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version+1)) {
		t.Errorf("version %d: %v", Version+1, err)
	}
}

// A new store has the current version and can be opened again.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s, err := openIn(t, dir)
		must(t, err)
		value, err := s.db.get([]byte{keyVersion})
		must(t, err)
		if version, _ := binary.Uvarint(value); version != Version {
			t.Errorf("version %d, want %d", version, Version)
		}
		must(t, s.Close())
	}
}
