package pebbledb

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// logFS counts the syncs of write-ahead logs. If quick is true, it omits them, so that written data survives a crash
// of the process, but not of the machine. We do not use Pebble's own unsynced commits, because Pebble writes them
// later, so they survive neither.
//
// Pebble cannot continue if its log or its manifest cannot be written. If the disk is full, creating or writing one of
// them therefore waits until there is room. Any other error of a log ends the database at once, because Pebble might
// panic later, with a stack trace instead of the error.
type logFS struct {
	vfs.FS
	quick bool
	syncs *atomic.Int64
	log   *slog.Logger
	// failed is called with the error of a log.
	failed func(error)
}

// retryInterval is the interval between attempts to write a log to a full disk.
const retryInterval = 100 * time.Millisecond

// createDelay is the delay before the error of a file that cannot be created. Pebble retries at once and without limit,
// and logs each error.
const createDelay = time.Second

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

// Create implements [vfs.FS].
func (fs logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	isLog := filepath.Ext(name) == ".log"
	if !isLog && !strings.HasPrefix(filepath.Base(name), "MANIFEST-") {
		f, err := fs.FS.Create(name, category)
		if err != nil {
			time.Sleep(createDelay)
		}
		return f, err
	}
	var f vfs.File
	var err error
	fs.waitForRoom(func() error {
		f, err = fs.FS.Create(name, category)
		return err
	})
	switch {
	case err == nil && isLog:
		return logFile{waitingFile{f, fs}}, nil
	case err == nil:
		return waitingFile{f, fs}, nil
	case isLog:
		fs.failed(err)
	}
	return nil, err
}

// ReuseForWrite implements [vfs.FS]. It creates a new file, because the rest of an old log after a new one would look
// like corruption.
func (fs logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

// waitingFile is a file whose writes wait until there is room.
type waitingFile struct {
	vfs.File
	fs logFS
}

// Write implements [vfs.File].
func (f waitingFile) Write(b []byte) (written int, err error) {
	f.fs.waitForRoom(func() error {
		var n int
		n, err = f.File.Write(b[written:])
		written += n
		return err
	})
	return written, err
}

// logFile is a write-ahead log.
type logFile struct{ waitingFile }

// Write implements [vfs.File].
func (f logFile) Write(b []byte) (written int, err error) {
	written, err = f.waitingFile.Write(b)
	return written, f.checked(err)
}

// Sync implements [vfs.File].
func (f logFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements [vfs.File].
func (f logFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f logFile) sync(sync func() error) error {
	if f.fs.quick {
		return nil
	}
	f.fs.syncs.Add(1)
	return f.checked(sync())
}

// SyncTo implements [vfs.File].
func (f logFile) SyncTo(length int64) (fullSync bool, err error) {
	if f.fs.quick {
		return true, nil
	}
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.checked(err)
}

// checked returns err. It reports it unless it is nil.
func (f logFile) checked(err error) error {
	if err != nil {
		f.fs.failed(err)
	}
	return err
}
