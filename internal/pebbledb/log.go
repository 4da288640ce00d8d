package pebbledb

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// logFS counts the syncs of write-ahead logs. If quick is true, it omits them, so that written data survives a crash of
// the process, but not of the machine. We do not use Pebble's own unsynced commits, because Pebble writes them later,
// so that they survive neither.
//
// Pebble cannot continue if it cannot write its log, its manifest or its options. If the disk is full, creating or
// writing one of them therefore waits until there is room. Any other error of these files and of the directory ends the
// database at once. Otherwise, Pebble would panic in some cases, with a stack trace instead of the error: it does so if
// it can't start a new log, and in the background if opening fails at its end.
//
// The tables of a database whose keys are excised are needed, too: if Pebble can't read a table of which it excises a
// part, it treats the rest of the table as empty.
type logFS struct {
	vfs.FS
	quick  bool
	tables bool // Pebble needs the tables, too
	syncs  *atomic.Int64
	log    *slog.Logger
	giveUp func(error) // does not return
}

// retryInterval is the interval between attempts to write a log to a full disk.
const retryInterval = 100 * time.Millisecond

// errorDelay is the delay before the error for a file that cannot be created or written is returned, because Pebble
// retries at once and without limit, and logs each error.
const errorDelay = time.Second

// waitForRoom repeats write until it succeeds, or fails for a reason other than a full disk.
func (fs logFS) waitForRoom(write func() error) {
	for waiting := false; ; waiting = true {
		if err := write(); !errors.Is(err, unix.ENOSPC) {
			if waiting {
				fs.log.Info("the disk has free space again")
			}
			return
		}
		if !waiting {
			fs.log.Error("the disk is full: writes wait until there is free space")
		}
		time.Sleep(retryInterval) // the caller must wait, and can't pass a clock
	}
}

// Create implements [vfs.FS]. It makes the names of manifests and markers durable. Pebble syncs the directory only
// after it has created the marker that names a manifest and removed the previous marker. A crash of the machine could
// therefore leave a marker without its manifest or no marker at all, and thus a damaged or an empty database.
func (fs logFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	isLog, isManifest := filepath.Ext(name) == ".log", strings.HasPrefix(filepath.Base(name), "MANIFEST-")
	if !isLog && !isManifest && filepath.Ext(name) != ".dbtmp" {
		if f, err = fs.FS.Create(name, category); err != nil {
			time.Sleep(errorDelay)
			return nil, err
		}
		if strings.HasPrefix(filepath.Base(name), "marker.") {
			err = syncDir(fs, filepath.Dir(name))
		}
		return repeatedFile{f}, err
	}
	fs.waitForRoom(func() error {
		f, err = fs.FS.Create(name, category)
		return err
	})
	if fs.checked(err) != nil {
		return nil, err
	}
	if isLog {
		return logFile{neededFile{f, fs}}, nil
	}
	if isManifest {
		err = syncDir(fs, filepath.Dir(name))
	}
	return neededFile{f, fs}, err
}

// MkdirAll implements [vfs.FS]. Only the owner can use the directory; Pebble lets everybody read its checkpoints.
func (fs logFS) MkdirAll(dir string, _ os.FileMode) error { return fs.FS.MkdirAll(dir, 0o700) }

// ReuseForWrite implements [vfs.FS]. It creates a new file, because the rest of an old log after a new one would look
// like corruption.
func (fs logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.checked(fs.Remove(oldname)); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

// Open implements [vfs.FS].
func (fs logFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, options...)
	if err == nil && fs.tables && filepath.Ext(name) == ".sst" {
		return neededFile{f, fs}, nil
	}
	return f, err
}

// Rename implements [vfs.FS]. Pebble renames only its options file.
func (fs logFS) Rename(oldname, newname string) error {
	return fs.checked(fs.FS.Rename(oldname, newname))
}

// List implements [vfs.FS].
func (fs logFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return names, fs.checked(err)
}

// OpenDir implements [vfs.FS].
func (fs logFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if fs.checked(err) != nil {
		return nil, err
	}
	return neededFile{f, fs}, nil
}

// checked returns nil if err is nil. Otherwise it gives up and does not return.
func (fs logFS) checked(err error) error {
	if err != nil {
		fs.giveUp(err)
	}
	return err
}

// repeatedFile is a file that Pebble writes again if writing it fails.
type repeatedFile struct{ vfs.File }

// Write implements [vfs.File].
func (f repeatedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if err != nil {
		time.Sleep(errorDelay)
	}
	return n, err
}

// neededFile is a file or directory that Pebble needs to go on.
type neededFile struct {
	vfs.File
	fs logFS
}

// Write implements [vfs.File].
func (f neededFile) Write(b []byte) (written int, err error) {
	f.fs.waitForRoom(func() error {
		var n int
		n, err = f.File.Write(b[written:])
		written += n
		return err
	})
	return written, f.fs.checked(err)
}

// ReadAt implements [vfs.File].
func (f neededFile) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(b, offset)
	if !errors.Is(err, io.EOF) {
		err = f.fs.checked(err)
	}
	return n, err
}

// Sync implements [vfs.File].
func (f neededFile) Sync() error { return f.fs.checked(f.File.Sync()) }

// SyncData implements [vfs.File].
func (f neededFile) SyncData() error { return f.fs.checked(f.File.SyncData()) }

// SyncTo implements [vfs.File].
func (f neededFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.fs.checked(err)
}

// Stat implements [vfs.File].
func (f neededFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return info, f.fs.checked(err)
}

// logFile is a write-ahead log.
type logFile struct{ neededFile }

// Sync implements [vfs.File].
func (f logFile) Sync() error {
	if f.fs.quick {
		return nil
	}
	f.fs.syncs.Add(1)
	return f.neededFile.Sync()
}

// SyncData implements [vfs.File].
func (f logFile) SyncData() error {
	if f.fs.quick {
		return nil
	}
	f.fs.syncs.Add(1)
	return f.neededFile.SyncData()
}

// SyncTo implements [vfs.File].
func (f logFile) SyncTo(length int64) (fullSync bool, err error) {
	if f.fs.quick {
		return true, nil
	}
	return f.neededFile.SyncTo(length)
}
