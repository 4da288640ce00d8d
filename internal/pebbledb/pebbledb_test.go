package pebbledb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// optionsIn returns options for a small database in dir.
func optionsIn(t *testing.T, dir string) Options {
	t.Helper()
	disk, err := NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Dir:      filepath.Join(dir, "store"),
		MemTable: 1 << 20,
		Cache:    1 << 20,
		Disk:     disk,
		Log:      slog.New(slog.DiscardHandler),
	}
}

// A database with a damaged file gives up with an error that names the file, without a stack trace.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	var given error
	o := optionsIn(t, dir)
	o.GiveUp = func(err error) { given = err; panic(err) }
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
	want := "database store: it is damaged: file " + filepath.Base(files[0]) + ": "
	if got := fmt.Sprintf("%+v", given); !strings.HasPrefix(got, want) || strings.Contains(got, "stack") ||
		!pebble.IsCorruptionError(given) || !errors.Is(given, ErrDamaged) {
		t.Errorf("error %q, want one that begins with %q", got, want)
	}
}

// Only the owner can read a database and its checkpoints.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	o := optionsIn(t, dir)
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "copy", "store")
	if err := errors.Join(db.Checkpoint(copied), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{o.Dir, copied, filepath.Dir(copied)} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, %v", dir, info.Mode(), err)
		}
	}
}

// Only a directory that another process uses is reported as in use.
func TestUnusableLock(t *testing.T) {
	dir := t.TempDir()
	o := optionsIn(t, dir)
	if err := os.MkdirAll(filepath.Join(o.Dir, "LOCK"), 0o700); err != nil { // root may open all files
		t.Fatal(err)
	}
	if _, err := Open(o); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("the file of the lock cannot be opened: %v", err)
	}
	if err := os.Remove(filepath.Join(o.Dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := Open(o); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v, want ErrLocked", err)
	}
}

// The part of a log that is unreadable because of a damaged record is counted and kept.
func TestDamagedLogIsKept(t *testing.T) {
	dir := t.TempDir()
	o := optionsIn(t, dir)
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := db.Set(fmt.Appendf(nil, "key %03d", i), []byte("value"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(o.Dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, error %v, want one", logs, err)
	}
	content, err := os.ReadFile(logs[0]) // as a crash would leave it
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	crashed := o
	crashed.Dir = filepath.Join(dir, "crashed")
	if err := os.CopyFS(crashed.Dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(content), "key 050")
	content[at] ^= 1
	if err := os.WriteFile(filepath.Join(crashed.Dir, filepath.Base(logs[0])), content, 0o600); err != nil {
		t.Fatal(err)
	}
	const earlier = "of an earlier start"
	if err := os.WriteFile(crashed.Dir+DamagedSuffix, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(crashed)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	kept, err := os.ReadFile(again.Removed)
	if kept, ok := strings.CutPrefix(string(kept), earlier); err != nil || !ok || int64(len(kept)) != again.Truncated ||
		!strings.Contains(kept, "key 099") {
		t.Errorf("kept %d bytes, error %v, want the %d removed", len(kept), err, again.Truncated)
	}
}

// failing returns a disk on which operations of the given kinds on write-ahead logs, and reads of tables if they are
// among them, fail while broken is true.
func failing(t *testing.T, dir string, broken *atomic.Bool, kinds ...errorfs.OpKind) *Disk {
	t.Helper()
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		hit := filepath.Ext(op.Path) == ".log" || filepath.Ext(op.Path) == ".sst" && op.Kind == errorfs.OpFileReadAt
		if broken.Load() && hit && slices.Contains(kinds, op.Kind) {
			return &os.PathError{Op: "test", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}))
	disk, err := NewDiskOn(osFS{files}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// A log that cannot be read for the moment loses nothing: Open fails, and succeeds once the log is readable.
func TestUnreadableLog(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	o := Options{
		Dir:      filepath.Join(dir, "store"),
		MemTable: 1 << 20,
		Cache:    1 << 20,
		Disk:     failing(t, dir, &broken, errorfs.OpFileRead),
		Log:      slog.New(slog.DiscardHandler),
	}
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("key"), []byte("value"), pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if _, err := Open(o); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrDamaged) {
		t.Errorf("the log cannot be read: error %v, want EIO", err)
	}
	broken.Store(false)
	if db, err = Open(o); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	value, closer, err := db.Get([]byte("key"))
	if err != nil || db.Truncated != 0 {
		t.Fatalf("error %v, %d bytes removed", err, db.Truncated)
	}
	defer closer.Close() // value is valid until then
	if string(value) != "value" {
		t.Errorf("got %q", value)
	}
}

// A database whose log cannot be created, written or synced gives up with the error of the file system.
func TestUnwritableLog(t *testing.T) {
	for name, kinds := range map[string][]errorfs.OpKind{
		"create": {errorfs.OpCreate},
		"write":  {errorfs.OpFileWrite},
		"sync":   {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var broken atomic.Bool
			given := make(chan error, 8)
			db, err := Open(Options{
				Dir:      filepath.Join(dir, "store"),
				MemTable: 1 << 20,
				Cache:    1 << 20,
				Disk:     failing(t, dir, &broken, kinds...),
				Log:      slog.New(slog.DiscardHandler),
				GiveUp:   func(err error) { given <- err; select {} },
			})
			if err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			go func() { // it blocks, since giving up ends the process
				for i := range 100 { // enough for a second log
					_ = db.Set(fmt.Append(nil, i), make([]byte, 64<<10), pebble.Sync)
				}
			}()
			err = <-given
			if !errors.Is(err, syscall.EIO) || !strings.HasPrefix(err.Error(), "database store: test ") {
				t.Errorf("gave up with %v, want EIO", err)
			}
		})
	}
}

// If a table cannot be read while a part of it is excised, the database gives up and loses nothing of the rest.
func TestExciseUnreadable(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	given := make(chan error, 1)
	o := Options{
		Dir:      filepath.Join(dir, "journal"),
		MemTable: 1 << 20,
		Ordered:  true,
		Disk:     failing(t, dir, &broken, errorfs.OpFileReadAt),
		Log:      slog.New(slog.DiscardHandler),
		GiveUp:   func(err error) { given <- err; select {} },
	}
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 1000)
	for i := range byte(200) { // several blocks
		if err := db.Set([]byte{i}, value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if db, err = Open(o); err != nil {
		t.Fatal(err)
	}
	_, closer, err := db.Get([]byte{0}) // opens the table, but leaves most blocks unread
	if err != nil {
		t.Fatal(err)
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	excised := make(chan error, 1)
	go func() { excised <- db.Excise(t.Context(), []byte{0}, []byte{100}) }()
	select {
	case err := <-given:
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("gave up with %v", err)
		}
	case err := <-excised:
		t.Errorf("Excise returned %v", err)
	}
}
