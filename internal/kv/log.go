package kv

import (
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFS counts how often write-ahead logs are made durable, and leaves it to the system if it is quick: what was written then survives
// the process, not the machine. Pebble's own unsynced commits survive neither, because they are written later.
type logFS struct {
	vfs.FS
	quick bool
	syncs *atomic.Int64
}

// Create implements [vfs.FS].
func (fs logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.log(name, f), err
}

// ReuseForWrite implements [vfs.FS]. It makes a new file: what an old log leaves behind the end of a new one could not be told from damage.
func (fs logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

func (fs logFS) log(name string, f vfs.File) vfs.File {
	if f == nil || filepath.Ext(name) != ".log" {
		return f
	}
	return logFile{f, fs}
}

type logFile struct {
	vfs.File
	fs logFS
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
