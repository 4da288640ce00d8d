package pebbledb

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// fullFS is a file system whose next writes fail for lack of space.
type fullFS struct {
	vfs.FS
	times int // number of writes that fail
}

func (fs *fullFS) full() error {
	if fs.times--; fs.times >= 0 {
		return &os.PathError{Op: "write", Err: unix.ENOSPC}
	}
	return nil
}

func (fs *fullFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.full(); err != nil {
		return nil, err
	}
	f, err := fs.FS.Create(name, category)
	return &fullFile{f, fs}, err
}

type fullFile struct {
	vfs.File
	fs *fullFS
}

// Write writes one byte before it fails.
func (f *fullFile) Write(b []byte) (int, error) {
	if err := f.fs.full(); err != nil {
		n, _ := f.File.Write(b[:1])
		return n, err
	}
	return f.File.Write(b)
}

// Writes to a log and to a manifest wait for free space and are then complete.
func TestLogWaitsForRoom(t *testing.T) {
	for _, name := range []string{"1.log", "MANIFEST-000001"} {
		t.Run(name, func(t *testing.T) { waitsForRoom(t, name) })
	}
}

func waitsForRoom(t *testing.T, name string) {
	t.Helper()
	full := &fullFS{FS: vfs.Default}
	var log strings.Builder
	fs := logFS{full, false, false, new(atomic.Int64), slog.New(slog.NewTextHandler(&log, nil)), nil}
	dir := t.TempDir()
	full.times = 2
	f, err := fs.Create(filepath.Join(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	full.times = 3
	if n, err := f.Write([]byte("all of it")); n != len("all of it") || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := vfs.Default.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	text := make([]byte, 20)
	if n, _ := got.Read(text); string(text[:n]) != "all of it" {
		t.Errorf("the log contains %q", text[:n])
	}
	if n := strings.Count(log.String(), "the disk is full"); n != 2 {
		t.Errorf("%d log messages about a full disk, want 2:\n%s", n, log.String())
	}
}

// Creating and writing other files fails after a delay, so that Pebble doesn't retry in a busy loop.
func TestOtherFilesFailSlowly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		full := &fullFS{FS: vfs.Default, times: 1}
		fs := logFS{full, false, false, new(atomic.Int64), slog.New(slog.DiscardHandler), nil}
		fails := func(name string, do func() error) {
			t.Helper()
			began := time.Now()
			if do() == nil {
				t.Errorf("%s succeeded on a full disk", name)
			}
			if took := time.Since(began); took != errorDelay {
				t.Errorf("%s failed after %v, want %v", name, took, errorDelay)
			}
		}
		create := func() (vfs.File, error) {
			return fs.Create(filepath.Join(dir, "1.sst"), vfs.WriteCategoryUnspecified)
		}
		fails("Create", func() error {
			_, err := create()
			return err
		})
		f, err := create()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		full.times = 1
		fails("Write", func() error {
			_, err := f.Write([]byte("table"))
			return err
		})
	})
}
