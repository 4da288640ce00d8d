package pebbledb

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// Disk watches the free space of the disk that holds a directory. It keeps a ballast file in the directory, and removes
// it when a write fails for lack of space, so that the write can be repeated. It is safe for concurrent use.
type Disk struct {
	files   FS
	dir     string
	size    uint64
	reserve uint64
	checked atomic.Int64 // time of the last check, in ns since the epoch
	free    atomic.Uint64
	spent   atomic.Bool // the ballast has been removed
}

const (
	// maxReserve is the space kept free for data that databases hold in memory, and for compactions.
	maxReserve = 256 << 20
	// reserveShare limits the reserve on a small disk to 1/reserveShare of its size.
	reserveShare = 4
	// spentShare stops all writes once less than 1/spentShare of the reserve is free.
	spentShare = 4
	// ballastShare makes the ballast take 1/ballastShare of the reserve.
	ballastShare = 8
	// memTableShare limits a memtable to 1/memTableShare of the disk, because a memtable takes the same space in the
	// log, and again in files.
	memTableShare = 32
	// checkInterval is the minimum interval between checks.
	checkInterval = 50 * time.Millisecond
)

// FS is the file system of a [Disk].
type FS interface {
	vfs.FS
	Truncate(name string, size int64) error
}

// osFS is the file system of the operating system.
type osFS struct{ vfs.FS }

// Truncate implements [FS].
func (osFS) Truncate(name string, size int64) error { return os.Truncate(name, size) }

// NewDisk returns a Disk for the directory dir, which must exist.
func NewDisk(dir string) (*Disk, error) { return NewDiskOn(osFS{vfs.Default}, dir) }

// NewDiskOn is like [NewDisk], but for a directory of the file system files. Tests pass a file system that crashes or
// fails.
func NewDiskOn(files FS, dir string) (*Disk, error) {
	d := &Disk{files: files, dir: dir}
	usage, err := files.GetDiskUsage(dir)
	if err != nil {
		return nil, fmt.Errorf("measure the disk of %s: %w", dir, err)
	}
	d.size = usage.TotalBytes
	d.reserve = min(maxReserve, d.size/reserveShare)
	d.free.Store(usage.AvailBytes)
	d.createBallast()
	return d, nil
}

// Full reports whether the free space at time now is below the reserve, so that no requests should be accepted. If
// there is enough space and the ballast has been removed, Full creates it again.
func (d *Disk) Full(now time.Time) bool {
	free := d.Free(now)
	if free < d.reserve {
		return true
	}
	if d.spent.CompareAndSwap(true, false) {
		d.createBallast()
	}
	return false
}

// Fits reports whether 1/spentShare of the reserve stays free if bytes are written at time now. If bytes is 0, it only
// reports false if other programs have used most of the reserve, so that nothing should be written.
func (d *Disk) Fits(now time.Time, bytes uint64) bool {
	return d.Free(now) >= d.reserve/spentShare+bytes
}

// Free returns the free bytes as of now, or at most checkInterval earlier.
func (d *Disk) Free(now time.Time) uint64 {
	if last := d.checked.Load(); now.UnixNano()-last > checkInterval.Nanoseconds() &&
		d.checked.CompareAndSwap(last, now.UnixNano()) {
		if usage, err := d.files.GetDiskUsage(d.dir); err == nil {
			d.free.Store(usage.AvailBytes)
		}
	}
	return d.free.Load()
}

// BallastName is the name of the ballast in the directory of a [Disk].
const BallastName = "ballast"

func (d *Disk) ballast() string { return filepath.Join(d.dir, BallastName) }

// createBallast creates the ballast if there is room. Without a ballast, failed writes can't be repeated.
func (d *Disk) createBallast() {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(d.reserve/ballastShare)); err != nil {
		_ = os.Remove(f.Name()) // a partial ballast is useless
	}
	_ = f.Close() // nothing was written
}

// fs returns a file system that removes the ballast when a write fails for lack of space.
func (d *Disk) fs() vfs.FS {
	return vfs.OnDiskFull(d.files, func() {
		d.spent.Store(true)
		_ = os.Remove(d.ballast()) // if it doesn't exist, the repeated write reports the error
	})
}
