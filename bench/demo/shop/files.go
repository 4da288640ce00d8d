package shop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of files. A faulty call of the disk takes much longer than the thread then waits for a CPU, even if many
// programs want the CPUs.
const (
	recordBytes  = 4 << 10 // of a log
	loggedBytes  = 1 << 20 // of a record with the fault [Fsync]
	archiveBytes = 32 << 20
	readBytes    = 64 << 10
	coldBytes    = 1 << 20 // of a read with the fault [Disk]
	alignment    = 4 << 10 // of reads past the page cache
)

// appends returns a function that writes a record to a log and syncs it. The fault [Fsync] makes records longer and
// syncs them repeatedly for diskDelay.
func (s *service) appends(name string) (step, error) {
	file, err := s.open(name + ".log")
	if err != nil {
		return step{}, err
	}
	record := bytes.Repeat([]byte("0123456789abcdef"), loggedBytes/16)
	return s.leaf(name, func(c *call) error {
		if s.faultAt(Fsync, name) == nil {
			return rewrite(file, record[:recordBytes], c.request)
		}
		return repeat(diskDelay, func() error { return rewrite(file, record, c.request) })
	}), nil
}

// open opens a new file of the service, which is closed with it.
func (s *service) open(name string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprintf("%d-%s", s.instance, name)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s.files = append(s.files, file)
	return file, nil
}

// repeat repeats do for d, at least once.
func repeat(d time.Duration, do func() error) error {
	for began := time.Now(); ; {
		if err := do(); err != nil || time.Since(began) >= d {
			return err
		}
	}
}

// logSlots is the number of records that a log keeps.
const logSlots = 16

// rewrite replaces a record in a file, so that the file does not grow, and syncs it.
func rewrite(file *os.File, record []byte, q *Request) error {
	if _, err := file.WriteAt(record, int64(q.Seed%logSlots)*loggedBytes); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file.Name()), err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(file.Name()), err)
	}
	return nil
}

// reads returns a function that reads from an archive, which is in the page cache. The fault [Disk] makes it read from
// the disk for diskDelay, as if there were no memory for the cache.
func (s *service) reads(name string) (step, error) {
	file, err := s.open(name + ".archive")
	if err != nil {
		return step{}, err
	}
	if err := file.Truncate(archiveBytes); err != nil {
		return step{}, fmt.Errorf("fill %s: %w", name, err)
	}
	a := newArchive(file)
	s.archives[name] = a
	return s.leaf(name, func(*call) error {
		if s.faultAt(Disk, name) == nil {
			return a.read(a.file, readBytes)
		}
		cold, err := a.cold()
		if err != nil {
			return err
		}
		return repeat(diskDelay, func() error { return a.read(cold, coldBytes) })
	}), nil
}

// archive is a file with parts of equal size.
type archive struct {
	file    *os.File
	cold    func() (*os.File, error) // the same file past the page cache, with contents
	buffers sync.Pool                // of *[]byte
}

func newArchive(file *os.File) *archive {
	a := &archive{file: file}
	a.buffers.New = func() any {
		b := make([]byte, coldBytes+alignment)
		skip := -uintptr(unsafe.Pointer(&b[0])) % alignment
		b = b[skip : skip+coldBytes]
		return &b
	}
	a.cold = sync.OnceValues(func() (*os.File, error) {
		part := bytes.Repeat([]byte("picture of the product; "), coldBytes/24+1)[:coldBytes]
		for at := int64(0); at < archiveBytes; at += coldBytes {
			if _, err := file.WriteAt(part, at); err != nil {
				return nil, fmt.Errorf("fill %s: %w", filepath.Base(file.Name()), err)
			}
		}
		if err := file.Sync(); err != nil {
			return nil, fmt.Errorf("fill %s: %w", filepath.Base(file.Name()), err)
		}
		return openCold(file.Name()) // the file stays open until the process ends
	})
	return a
}

// read reads a random part of n bytes from file. n must be at most coldBytes.
func (a *archive) read(file *os.File, n int64) error {
	b, _ := a.buffers.Get().(*[]byte) // New makes nothing else
	defer a.buffers.Put(b)
	if _, err := file.ReadAt((*b)[:n], rand.Int64N(archiveBytes/n)*n); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(file.Name()), err)
	}
	return nil
}

// locked returns a function that computes under a file lock, for requests of several types. Threads wait for such a
// lock, as they do for the mutexes of most languages; only goroutines would wait for a Go mutex. The fault [Lock] is a
// job that holds the lock for most of the time.
func (s *service) locked(name string, rounds int) step {
	usual := compute(rounds)
	return s.leaf(name, func(c *call) error {
		return s.withLock(name, func() error { return usual.do(c) })
	})
}

// withLock calls do while it holds a lock.
func (s *service) withLock(name string, do func() error) (err error) {
	path := filepath.Join(s.dir, fmt.Sprintf("%d-%s.lock", s.instance, name))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }() // this releases the lock
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX); {
		case errors.Is(err, unix.EINTR): // by the runtime
		case err != nil:
			return fmt.Errorf("lock %s: %w", name, err)
		default:
			return do()
		}
	}
}

// Times of the job that holds a lock.
const (
	lockHeld = 240 * time.Millisecond
	lockFree = 60 * time.Millisecond
)

// holdLock runs a job that repeatedly takes a lock until ctx ends, like a backup that uploads while it holds the lock.
func (s *service) holdLock(ctx context.Context, name string) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		if err := s.withLock(name, func() error { pause(lockHeld); return nil }); err != nil {
			return // requests report the same error
		}
		pause(lockFree)
	}
}
