package pebbledb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// A database with a damaged file gives up with an error that names the file, without a stack trace.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	disk, err := NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	var given error
	o := Options{
		Dir: filepath.Join(dir, "store"), MemTable: 1 << 20, Cache: 1 << 20, Disk: disk, Log: slog.New(slog.DiscardHandler),
		GiveUp: func(err error) { given = err; panic(err) },
	}
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("key"), []byte("value"), pebble.Sync), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(o.Dir, "*.sst"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, error %v, want one file", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	content[0] ^= 1
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err = Open(o); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, closer, err := db.Get([]byte("key"))
		t.Errorf("read from a damaged file: %v, %v, want a call of GiveUp", closer, err)
	}()
	want := "database store: " + filepath.Base(files[0]) + " is damaged: "
	if got := fmt.Sprintf("%+v", given); !strings.HasPrefix(got, want) || strings.Contains(got, "stack") || !pebble.IsCorruptionError(given) {
		t.Errorf("error %q, want one that begins with %q", got, want)
	}
}
