// Package durable writes files and directories that survive a crash of the machine. A file system may keep the contents
// of a synced file and yet lose its name, unless the directory is synced, too.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Replace replaces the file at path with data. After a crash, the file is the old or the new one; it is the new one if
// Replace has returned nil. If Replace returns an error, the file is still the old one, unless the disk failed at the
// very end. Only the owner can read the file. A file that root writes belongs to the owner of the directory, because a
// service that doesn't run as root must be able to read it.
func Replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, GiveToOwner(f.File)); err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err = errors.Join(err, f.Cleanup()); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Full reports whether err means that the disk is full or a disk quota is exceeded.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// GiveToOwner gives a file or directory created by root to the owner of its directory; see [Replace].
func GiveToOwner(f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var dir unix.Stat_t
	if err := unix.Stat(filepath.Dir(f.Name()), &dir); err != nil {
		return &os.PathError{Op: "stat", Path: filepath.Dir(f.Name()), Err: err}
	}
	return f.Chown(int(dir.Uid), int(dir.Gid))
}

// MkdirAll creates the directory path and its missing parents, accessible only to their owner, and makes their names
// durable.
func MkdirAll(path string) error {
	var parents []string // of the missing directories
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parents = append(parents, filepath.Dir(dir))
	}
	err := os.MkdirAll(path, 0o700)
	for _, dir := range parents {
		if err == nil {
			err = SyncDir(dir)
		}
	}
	return err
}

// SyncDir makes the names in dir durable, that is, the entries of the directory.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
