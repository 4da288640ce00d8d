package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// openIn opens the store in a directory.
func openIn(t *testing.T, dir string) (*Store, error) {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Open(Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
}

// A directory of version 1 is migrated to later versions step by step. Each step is made once, and entirely or not at
// all.
func TestMigration(t *testing.T) {
	dir := t.TempDir()
	s, err := openIn(t, dir)
	must(t, err)
	must(t, s.SavePosition("source", time.Unix(7, 0)))
	must(t, s.step(1, func(*pebble.Batch) error { return nil }))
	var made []string
	failing := errors.New("no")
	steps := []func(*Store, *pebble.Batch) error{
		func(s *Store, b *pebble.Batch) error {
			made = append(made, "2")
			at, err := s.Position("source")
			if err != nil || at.Unix() != 7 {
				t.Errorf("data of version 1: %v, %v", at, err)
			}
			return b.Set([]byte("new"), []byte("2"), nil)
		},
		func(_ *Store, b *pebble.Batch) error {
			made = append(made, "3")
			return errors.Join(b.Set([]byte("new"), []byte("3"), nil), failing)
		},
	}
	if err := s.migrate(3, steps); !errors.Is(err, failing) || !strings.Contains(err.Error(), "to version 3") {
		t.Errorf("failing step: %v", err)
	}
	check(t, "steps", strings.Join(made, " "), "2 3")
	if value, err := s.get([]byte("new")); err != nil || string(value) != "2" {
		t.Errorf("after a failed step: %q, %v", value, err)
	}
	failing, made = nil, nil
	must(t, s.migrate(3, steps))
	check(t, "remaining steps", strings.Join(made, " "), "3")
	made = nil
	must(t, s.migrate(3, steps))
	check(t, "steps of the current version", strings.Join(made, " "), "")
	must(t, s.step(Version+1, func(*pebble.Batch) error { return nil }))
	must(t, s.Close())

	if _, err := openIn(t, dir); !errors.Is(err, pebbledb.ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version+1)) {
		t.Errorf("an older program: %v", err)
	}
}

// A new store has the current version and can be opened again.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s, err := openIn(t, dir)
		must(t, err)
		value, err := s.get([]byte{keyVersion})
		must(t, err)
		if version, _ := binary.Uvarint(value); version != Version {
			t.Errorf("version %d, want %d", version, Version)
		}
		must(t, s.Close())
	}
}
