package pebbledb

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// Disk watches the space that is left where a directory is. It keeps a file there, the ballast, and gives it up when a write finds no
// space all the same, so that the write can be repeated.
type Disk struct {
	dir     string
	size    uint64
	reserve uint64
	looked  atomic.Int64 // when, in ns since the epoch
	free    atomic.Uint64
	short   atomic.Bool // a write found no space since the ballast was last laid
}

const (
	// maxReserve is left free: what databases hold in memory must find room, and compactions too.
	maxReserve = 256 << 20
	// reserveShare of a small disk is left free in place of that.
	reserveShare = 4
	// spentShare of the reserve is what must be left for anything to be written.
	spentShare = 4
	// ballastShare of the reserve is the ballast.
	ballastShare = 8
	// memTableShare of the disk is what a database collects in memory at most, as it takes as much in its log, and again in files.
	memTableShare = 32
	// lookEvery bounds how often the system is asked.
	lookEvery = 50 * time.Millisecond
)

// NewDisk watches the disk of dir, which must exist.
func NewDisk(dir string) (*Disk, error) {
	d := &Disk{dir: dir}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	d.size = s.Blocks * uint64(s.Bsize)
	d.reserve = min(maxReserve, d.size/reserveShare)
	d.free.Store(s.Bavail * uint64(s.Bsize))
	d.lay()
	return d, nil
}

// Full reports whether no requests should be taken, as less than the reserve is left at time now.
func (d *Disk) Full(now time.Time) bool {
	free := d.Free(now)
	if free < d.reserve {
		return true
	}
	if d.short.CompareAndSwap(true, false) {
		d.lay()
	}
	return false
}

// Spent reports whether so little is left at time now that nothing at all should be written: somebody else took the reserve.
func (d *Disk) Spent(now time.Time) bool { return d.Free(now) < d.reserve/spentShare }

// Free returns the bytes that were free a moment before now.
func (d *Disk) Free(now time.Time) uint64 {
	if last := d.looked.Load(); now.UnixNano()-last > lookEvery.Nanoseconds() && d.looked.CompareAndSwap(last, now.UnixNano()) {
		var s unix.Statfs_t
		if err := unix.Statfs(d.dir, &s); err == nil {
			d.free.Store(s.Bavail * uint64(s.Bsize))
		}
	}
	return d.free.Load()
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// lay makes the ballast where there is room for it. Without it there is less warning, and no other harm.
func (d *Disk) lay() {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(d.reserve/ballastShare)); err != nil {
		_ = os.Remove(f.Name()) // half a ballast helps nobody
	}
	_ = f.Close() // nothing was written through it
}

// fs returns a file system that gives up the ballast when a write finds no space.
func (d *Disk) fs() vfs.FS {
	return vfs.OnDiskFull(vfs.Default, func() {
		d.short.Store(true)
		_ = os.Remove(d.ballast()) // if it is gone already, the write fails again, and is reported
	})
}
