package pebbledb

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// logFS counts how often write-ahead logs are made durable, and leaves it to the system if it is quick: what was written then survives
// the process, not the machine. Pebble's own unsynced commits survive neither, because they are written later.
//
// Pebble cannot go on when its log cannot be written. So where a disk is full, making or writing a log waits until there is room.
type logFS struct {
	vfs.FS
	quick bool
	syncs *atomic.Int64
	log   *slog.Logger
}

// retryEvery is how long it takes until it is tried again to write a log on a full disk.
const retryEvery = 100 * time.Millisecond

// failedWait is how long it takes until a file that cannot be made counts as that: Pebble tries again at once, for as long as that may be, with
// a line in the log each time.
const failedWait = time.Second

// insist calls write until it returns another error than that the disk is full, or none.
func (fs logFS) insist(write func() error) {
	for waiting := false; ; waiting = true {
		if err := write(); !errors.Is(err, unix.ENOSPC) {
			if waiting {
				fs.log.Info("there is room on the disk again")
			}
			return
		}
		if !waiting {
			fs.log.Error("the disk is full: what is to be written waits until there is room")
		}
		time.Sleep(retryEvery) // the writer must wait, and has no clock to hand in
	}
}

// Create implements [vfs.FS].
func (fs logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if filepath.Ext(name) != ".log" {
		f, err := fs.FS.Create(name, category)
		if err != nil {
			time.Sleep(failedWait)
		}
		return f, err
	}
	var f vfs.File
	var err error
	fs.insist(func() error {
		f, err = fs.FS.Create(name, category)
		return err
	})
	if err != nil {
		return nil, err
	}
	return logFile{f, fs}, nil
}

// ReuseForWrite implements [vfs.FS]. It makes a new file: what an old log leaves behind the end of a new one could not be told from damage.
func (fs logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

type logFile struct {
	vfs.File
	fs logFS
}

// Write implements [vfs.File].
func (f logFile) Write(b []byte) (written int, err error) {
	f.fs.insist(func() error {
		var n int
		n, err = f.File.Write(b[written:])
		written += n
		return err
	})
	return written, err
}

// Sync implements [vfs.File].
func (f logFile) Sync() error {
	if f.fs.quick {
		return nil
	}
	f.fs.syncs.Add(1)
	return f.File.Sync()
}

// SyncData implements [vfs.File].
func (f logFile) SyncData() error {
	if f.fs.quick {
		return nil
	}
	f.fs.syncs.Add(1)
	return f.File.SyncData()
}

// SyncTo implements [vfs.File].
func (f logFile) SyncTo(length int64) (fullSync bool, err error) {
	if f.fs.quick {
		return true, nil
	}
	return f.File.SyncTo(length)
}
