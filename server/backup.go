package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/durable"
)

// backupName is the name of the backup's directory. The backup is in the data directory, because hard links can't cross
// file systems.
const backupName = "backup"

// backupAttempts limits the attempts to copy store and journal without a checkpoint that trims the journal in between.
// A few attempts suffice, because copying takes much less time than the interval between checkpoints.
const backupAttempts = 5

// backup replaces the backup with a copy of the data that the service can be restored from, and returns its directory.
// The copy contains everything that was acknowledged before the call.
func (t *tenant) backup() (string, error) {
	t.backingUp.Lock()
	defer t.backingUp.Unlock()
	data, err := filepath.Abs(t.config.DataDir)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(data, backupName)
	fresh := dir + ".new"
	for range backupAttempts {
		whole, err := t.copyTo(fresh)
		if err != nil {
			return "", errors.Join(fmt.Errorf("backup: %w", err), os.RemoveAll(fresh))
		}
		if !whole {
			continue
		}
		if err := replaceDir(dir, fresh); err != nil {
			return "", fmt.Errorf("backup: %w", err)
		}
		return dir, nil
	}
	return "", errors.Join(errors.New("backup: the journal keeps being trimmed; try again"), os.RemoveAll(fresh))
}

// copyTo copies the data to dir in an order that makes the copy consistent: first the files with people's input, which
// refer to incidents and problems in the store, then the store, then the journal. The copied journal then contains all
// records since the checkpoint in the copied store, unless the journal was trimmed in between. copyTo reports whether
// the copy is complete and on disk.
func (t *tenant) copyTo(dir string) (whole bool, err error) {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return false, err
	}
	for _, name := range append(api.Files(), access.FileName, tenantFile) {
		text, err := os.ReadFile(filepath.Join(t.config.DataDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return false, err
		}
	}
	oldest, err := t.store.Checkpoints.Oldest() // may be earlier than in the copy
	if err != nil {
		return false, err
	}
	if err := t.store.Backup(filepath.Join(dir, "store")); err != nil {
		return false, err
	}
	first, err := t.journal.Backup(filepath.Join(dir, "journal"))
	if err != nil {
		return false, err
	}
	if err := t.audit.Backup(dir); err != nil { // last, so that it has an entry of every change in the copy
		return false, err
	}
	return first <= max(1, oldest), syncAll(dir)
}

// syncAll flushes all files on the file system of dir to disk.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// replaceDir replaces the directory dir, which may be missing, with fresh. If it fails or the machine crashes, dir may
// be missing, but is never incomplete.
func replaceDir(dir, fresh string) error {
	old := dir + ".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(filepath.Dir(dir)), os.RemoveAll(old))
}
