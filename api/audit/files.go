package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/internal/durable"
)

// series is a sequence of files, numbered from 1. Lines are appended to the last file.
type series struct {
	dir, name   string
	file, total int64      // sizes in bytes at which the next file is started and the oldest one deleted
	mu          sync.Mutex // held by the goroutine that waits for the lock of the directory, or holds it
}

const suffix = ".jsonl"

// path returns the path of the file with the given number.
func (s *series) path(number int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%06d%s", s.name, number, suffix))
}

// numbers returns the numbers of all files in ascending order.
func (s *series) numbers() ([]int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		text, isOwn := strings.CutPrefix(e.Name(), s.name+"-")
		n, err := strconv.Atoi(strings.TrimSuffix(text, suffix))
		if isOwn && err == nil && n > 0 && e.Name() == filepath.Base(s.path(n)) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// lock creates the directory if it doesn't exist, and locks it against other goroutines and processes. The caller must
// close the directory, which unlocks it, and unlock mu.
func (s *series) lock() (*os.File, error) {
	s.mu.Lock()
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW
	dir, err := os.OpenFile(s.dir, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = durable.MkdirAll(s.dir); err == nil {
			dir, err = os.OpenFile(s.dir, flags, 0)
		}
		if err == nil {
			err = durable.GiveToOwner(dir)
		}
	}
	if err == nil {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		_ = dir.Close() // it may be nil
		s.mu.Unlock()
		return nil, err
	}
	return dir, nil
}

// changed describes the side effects of an append.
type changed struct {
	cut     int64  // length of the incomplete line that was cut off, in bytes
	deleted string // path of the file that was deleted; empty: no file
}

// append appends text, which must consist of complete lines. The text is on disk when append returns. If append returns
// an error, the text isn't in the file, or is cut off by the next append.
func (s *series) append(text []byte) (done changed, err error) {
	dir, err := s.lock()
	if err != nil {
		return done, err
	}
	defer s.mu.Unlock()
	defer func() { err = errors.Join(err, dir.Close()) }()
	numbers, err := s.numbers()
	if err != nil {
		return done, err
	}
	number := 1
	if len(numbers) > 0 {
		number = numbers[len(numbers)-1]
	}
	f, size, err := s.open(dir, number)
	if err != nil {
		return done, err
	}
	if size >= s.file {
		if err := f.Close(); err != nil {
			return done, err
		}
		if done.deleted, err = s.shrink(numbers); err != nil {
			return done, err
		}
		if f, size, err = s.open(dir, number+1); err != nil {
			return done, err
		}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	whole, err := endOfLines(f, size)
	if err != nil {
		return done, err
	}
	if done.cut = size - whole; done.cut > 0 {
		if err := f.Truncate(whole); err != nil {
			return done, err
		}
	}
	_, err = f.WriteAt(text, whole)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(whole) // otherwise, the next append may find half of the text
	}
	return done, err
}

// open opens the file with the given number, creating it if it doesn't exist, and returns its size. dir is the open
// directory of s. open doesn't follow links, because root also writes to this directory, which belongs to a user who
// may not write elsewhere.
func (s *series) open(dir *os.File, number int) (*os.File, int64, error) {
	f, err := openAt(dir, s.path(number), 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = openAt(dir, s.path(number), unix.O_CREAT|unix.O_EXCL); err == nil {
			err = errors.Join(durable.GiveToOwner(f), dir.Sync())
		}
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err != nil {
		_ = f.Close() // it may be nil
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// openAt opens the file at path, which must be in dir, for reading and writing. It returns an error if the file is a
// symbolic link.
func openAt(dir *os.File, path string, flags int) (*os.File, error) {
	flags |= unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(path), flags, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// endOfLines returns the offset of the end of the last complete line of f, whose size is given, or 0 if no line is
// complete.
func endOfLines(f *os.File, size int64) (int64, error) {
	block := make([]byte, 4096)
	for end := size; end > 0; {
		part := block[:min(end, int64(len(block)))]
		end -= int64(len(part))
		if _, err := f.ReadAt(part, end); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return end + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// shrink deletes the oldest file, and returns its path, if the files with the given numbers together have reached their
// limit.
func (s *series) shrink(numbers []int) (deleted string, err error) {
	var sum int64
	for _, n := range numbers {
		info, err := os.Stat(s.path(n))
		if err != nil {
			return "", err
		}
		sum += info.Size()
	}
	if sum < s.total {
		return "", nil
	}
	deleted = s.path(numbers[0])
	return deleted, os.Remove(deleted)
}

// backup copies the files to the directory `to`, which it creates if there are any files. It makes hard links to all
// files but the last.
func (s *series) backup(to string) error {
	numbers, err := s.numbers()
	if err != nil || len(numbers) == 0 {
		return err
	}
	if err := durable.MkdirAll(to); err != nil {
		return err
	}
	for i, n := range numbers {
		path := filepath.Join(to, filepath.Base(s.path(n)))
		if i < len(numbers)-1 {
			err = os.Link(s.path(n), path)
		} else if text, readErr := os.ReadFile(s.path(n)); readErr == nil {
			err = os.WriteFile(path, text, 0o600)
		} else {
			err = readErr
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may just have become too old
			return err
		}
	}
	return nil
}

// parts is the number of files that are started within the maximum age of entries. Old entries are deleted by deleting
// whole files.
const parts = 12

// ages maps the name of a file to the time that the service has been running since the file was created. This doesn't
// depend on the wall clock, because a clock that is far ahead would make all files old.
type ages map[string]time.Duration

// agesName is the name of the file with the ages, in the directory of the log.
const agesName = "ages.json"

// readAges returns the ages stored in the directory dir. Files without an age are new.
func readAges(dir string) (all ages, err error) {
	data, err := os.ReadFile(filepath.Join(dir, agesName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	return all, err
}

// write replaces the ages in the directory dir.
func (a ages) write(dir string) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, agesName), data)
}

// trim deletes the files whose lines are all older than age, and starts a new file if the last one is older than
// age/parts. It adds the files that are left to next, with their ages in old plus trimInterval.
func (s *series) trim(old, next ages, age time.Duration) (err error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := s.lock()
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	defer func() { err = errors.Join(err, dir.Close()) }()
	numbers, err := s.numbers()
	if err != nil || len(numbers) == 0 {
		return err
	}
	var after time.Duration // age of the next file; all lines of this one are older
	for _, n := range slices.Backward(numbers) {
		if after > age {
			if err := os.Remove(s.path(n)); err != nil {
				return err
			}
			continue
		}
		name := filepath.Base(s.path(n))
		next[name] = old[name] + trimInterval
		after = next[name]
	}
	last := numbers[len(numbers)-1]
	if next[filepath.Base(s.path(last))] <= age/parts {
		return nil
	}
	if info, err := os.Stat(s.path(last)); err != nil || info.Size() == 0 {
		return err
	}
	f, _, err := s.open(dir, last+1)
	if err != nil {
		return err
	}
	return f.Close()
}
