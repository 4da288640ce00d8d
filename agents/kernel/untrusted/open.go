// Package untrusted reads the files and the memory of the observed processes. All of them may be hostile: names may
// lead to pipes and devices, reads may never return, and tables may contain wrong sizes.
package untrusted

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// MaxName is the maximum length of names chosen by processes, in bytes.
const MaxName = 256

// Name returns a name chosen by a process as valid UTF-8, cut off after [MaxName] bytes.
func Name(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), MaxName)], "\uFFFD")
}

// Open opens a regular file. It returns an error for other files, because opening them may block or have side effects.
func Open(name string) (*os.File, error) { return open(name, os.Stat, os.OpenFile) }

// OpenIn is like [Open], but interprets name as a process with the given root folder would. It never opens files
// outside of that root.
func OpenIn(root, name string) (*os.File, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the root of a process: %w", err)
	}
	defer func() { _ = r.Close() }() // read only
	return open(strings.TrimPrefix(path.Clean("/"+name), "/"), r.Stat, r.OpenFile)
}

// WrittenFor reports whether a file belongs to root or to the user of a process. folder is the process's folder in the
// proc file system, which belongs to that user.
func WrittenFor(f *os.File, folder string) bool {
	file, err1 := f.Stat()
	process, err2 := os.Stat(folder)
	if err1 != nil || err2 != nil {
		return false
	}
	owner, ok1 := file.Sys().(*syscall.Stat_t)
	user, ok2 := process.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && (owner.Uid == 0 || owner.Uid == user.Uid)
}

func open(
	name string, stat func(string) (fs.FileInfo, error), openFile func(string, int, fs.FileMode) (*os.File, error),
) (*os.File, error) {
	info, err := stat(name) // opening a device may have an effect
	if err := regular(name, info, err); err != nil {
		return nil, err
	}
	f, err := openFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err = f.Stat() // another file may have the name by now
	if err := regular(name, info, err); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func regular(name string, info fs.FileInfo, err error) error {
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: %w", name, cmp.Or(err, os.ErrInvalid))
	}
	return nil
}
