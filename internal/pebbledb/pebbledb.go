// Package pebbledb opens Pebble databases for the service. Only one process can use a directory at a time. Torn ends of
// write-ahead logs are truncated and counted. Pebble cannot continue if it cannot write its log or its manifest. A
// [Disk] therefore reports that space is running out before Pebble must stop. If another program fills the disk, writes
// to these files wait until there is room.
package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Options configure a database.
type Options struct {
	Dir      string // created if it does not exist
	MemTable int    // bytes of a memtable, fewer on a small disk or with little memory; up to four wait to be written
	Cache    int64  // size of the block cache in bytes, less with little memory
	Memory   int64  // bytes of memory for the whole process; 0 means no limit
	Files    int    // approximate maximum of open files; 1000 if 0
	Ordered  bool   // keys ascend and are excised, so that compaction is useless
	Quick    bool   // a commit survives a crash of the process, but not of the machine
	Disk     *Disk  // the disk that Dir is on
	Log      *slog.Logger
	// GiveUp is called if a file that Pebble needs cannot be written for a reason other than a full disk, or if a file
	// is damaged. It must not return. All acknowledged data has been written, so a new process can continue unless a
	// file is damaged. If GiveUp is nil, the database panics.
	GiveUp func(error)
}

// DB is an open database.
type DB struct {
	*pebble.DB
	Truncated int64  // number of unreadable bytes that were removed from the end of the log on opening
	Removed   string // file that they were appended to, if any

	lock  *pebble.Lock
	syncs atomic.Int64
}

// Syncs returns the number of syncs of the log.
func (db *DB) Syncs() int64 { return db.syncs.Load() }

// Close closes the database and releases its directory.
func (db *DB) Close() error { return errors.Join(db.DB.Close(), db.lock.Close()) }

// Reasons why a database cannot be opened. Errors of [Open] wrap one of them, unless the file system refused an
// operation.
var (
	ErrLocked  = errors.New("another process uses it")
	ErrNewer   = errors.New("a newer version of sibyl wrote it")
	ErrForeign = errors.New("another program wrote it")
	ErrDamaged = errors.New("it is damaged")
)

// Exists reports whether dir contains a database, complete or not. If dir is empty, a crash has interrupted Open.
func Exists(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && (len(entries) == 0 || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "LOCK" || strings.HasPrefix(e.Name(), "marker.") // a copy lacks the lock
	}))
}

// InUse reports whether a process is using the database in dir.
func InUse(dir string) bool {
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err == nil {
		_ = lock.Close() // nobody else could take it
		return false
	}
	_, missing := errors.AsType[*os.PathError](err)
	return !missing
}

// Open opens or creates a database.
func Open(o Options) (*DB, error) {
	files := o.Disk.files
	if err := files.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := syncDir(files, filepath.Dir(o.Dir)); err != nil { // Pebble does it only if it creates the directory
		return nil, err
	}
	lock, err := pebble.LockDirectory(o.Dir, files)
	if _, ok := errors.AsType[*os.PathError](err); ok { // the lock file can't be opened
		return nil, fmt.Errorf("lock %s: %w", o.Dir, err)
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", o.Dir, ErrLocked)
	}
	db := &DB{lock: lock, Removed: o.Dir + DamagedSuffix}
	if err := db.open(&o); err != nil {
		if !errors.Is(err, ErrNewer) && !refusedBySystem(err) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return nil, errors.Join(fmt.Errorf("open database %s: %w", o.Dir, err), lock.Close())
	}
	return db, nil
}

// syncDir makes the names in dir survive a crash of the machine.
func syncDir(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (db *DB) open(o *Options) error {
	files := o.Disk.files
	manifest, err := atomicfs.ReadMarker(files, o.Dir, "manifest")
	if err != nil {
		return err
	}
	if err := checkFormat(files, o.Dir); err != nil {
		return err
	}
	logs, err := wal.Scan(wal.Dir{FS: files, Dirname: o.Dir})
	if err != nil {
		return err
	}
	if manifest != "" && len(logs) == 0 { // Pebble would treat it as empty
		o.Log.Warn("the log of a database is missing: writes that only the log held are lost; restore a backup, "+
			"or go on without them",
			slog.String("database", o.Dir))
	}
	// Pebble would hide part of it and reject the rest.
	if db.Truncated, err = truncateLogs(files, o.Dir, logs); err != nil {
		return err
	}
	db.DB, err = pebble.Open(o.Dir, o.pebble(db))
	return err
}

// checkFormat returns an error that wraps [ErrNewer] if this version of Pebble doesn't know the format of the database
// in dir.
func checkFormat(files vfs.FS, dir string) error {
	text, err := atomicfs.ReadMarker(files, dir, "format-version")
	if err != nil || text == "" {
		return err
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("format version %q: %w", text, err)
	}
	if version > uint64(pebble.FormatNewest) {
		return fmt.Errorf("%w, with format version %d of its files", ErrNewer, version)
	}
	return nil
}

// refusedBySystem reports whether err comes from a system call on an existing file, for example because permission or
// space is missing. All other errors on opening are due to missing files or their contents.
func refusedBySystem(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok && !errors.Is(err, fs.ErrNotExist)
}

func (o *Options) pebble(db *DB) *pebble.Options {
	options := &pebble.Options{
		Lock:                        db.lock,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                o.memTable(),
		MemTableStopWritesThreshold: 4,
		CacheSize:                   min(o.Cache, o.share()),
		MaxOpenFiles:                o.Files,
		Logger:                      logger{o.Log.With(slog.String("database", filepath.Base(o.Dir))), o.giveUp},
		EventListener:               &pebble.EventListener{DataCorruption: o.damaged},
		FS:                          logFS{o.Disk.fs(), o.Quick, o.Ordered, &db.syncs, o.Log, o.giveUp},
	}
	if o.Ordered {
		options.L0CompactionThreshold = 1 << 20
		options.L0CompactionFileThreshold = 1 << 20
		options.L0StopWritesThreshold = 1 << 20
		uncompressed := func() *sstable.CompressionProfile { return sstable.NoCompression } // values are compressed
		for i := range options.Levels {
			options.Levels[i].Compression = uncompressed
			options.TargetFileSizes[i] = int64(o.memTable())
		}
	}
	return options
}

func (o *Options) memTable() uint64 {
	return min(uint64(o.MemTable), o.Disk.size/memTableShare, uint64(o.share()))
}

// memoryShare limits a memtable, and the block cache, to 1/memoryShare of the memory.
const memoryShare = 64

// share returns the limit on a memtable and on the block cache.
func (o *Options) share() int64 {
	if o.Memory == 0 {
		return math.MaxInt64
	}
	return o.Memory / memoryShare
}

// giveUp passes err to o.GiveUp, or panics if that is nil. It does not return.
func (o *Options) giveUp(err error) {
	err = fmt.Errorf("database %s: %w", filepath.Base(o.Dir), err)
	if o.GiveUp != nil {
		o.GiveUp(err)
	}
	panic(err)
}

// damaged gives up because a file is damaged. Pebble's default listener would add a stack trace.
func (o *Options) damaged(info pebble.DataCorruptionInfo) {
	o.giveUp(fmt.Errorf("%w: file %s: %w", ErrDamaged, filepath.Base(info.Path), info.Details))
}

// logger logs errors of Pebble and drops its other messages.
type logger struct {
	log    *slog.Logger
	giveUp func(error)
}

// Infof implements [pebble.Logger].
func (l logger) Infof(string, ...any) {}

// Errorf implements [pebble.Logger].
func (l logger) Errorf(format string, args ...any) {
	l.log.Error("database", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf implements [pebble.Logger].
func (l logger) Fatalf(format string, args ...any) {
	l.giveUp(fmt.Errorf(format, args...))
}

// DamagedSuffix is appended to a directory's name to get the name of the file for the ends removed from its logs.
const DamagedSuffix = ".damaged"

// maxDamaged is the maximum size, in bytes, of a file with the DamagedSuffix.
const maxDamaged = 64 << 20

// truncateLogs truncates every write-ahead log of dir at the first damaged record, because that makes everything after
// it unreadable. It returns the number of bytes removed, and appends them to a file next to dir.
func truncateLogs(files FS, dir string, logs wal.Logs) (removed int64, err error) {
	for _, l := range logs {
		n, err := truncateLog(files, dir, l)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

func truncateLog(files FS, dir string, l wal.LogicalLog) (removed int64, err error) {
	r := l.OpenForRead()
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		_, at, err := r.NextRecord()
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if refusedBySystem(err) { // the rest may be intact, and readable at the next start
			return 0, err
		}
		path := at.PhysicalFile
		if !strings.HasPrefix(path, dir) {
			path = filepath.Join(dir, filepath.Base(path))
		}
		info, err := files.Stat(path)
		if err != nil {
			return 0, err
		}
		keepDamaged(dir+DamagedSuffix, path, at.Physical)
		return info.Size() - at.Physical, files.Truncate(path, at.Physical)
	}
}

// keepDamaged appends the bytes of the file log, from offset `from` on, to the file `to`. It starts that file over when
// it is full. It ignores errors, which only mean that the copy is incomplete: the service must start, even on a full
// disk.
func keepDamaged(to, log string, from int64) {
	src, err := os.Open(log)
	if err != nil {
		return
	}
	defer func() { _ = src.Close() }() // only read
	info, err := src.Stat()
	if err != nil {
		return
	}
	mode := os.O_APPEND
	if kept, err := os.Stat(to); err == nil && kept.Size()+info.Size()-from > maxDamaged {
		mode = os.O_TRUNC
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|mode, 0o600)
	if err != nil {
		return
	}
	_, _ = io.Copy(dst, io.NewSectionReader(src, from, maxDamaged))
	_ = dst.Close()
}

// Excise deletes the keys [from, to) and frees their files at once.
func (db *DB) Excise(ctx context.Context, from, to []byte) error {
	return db.DB.Excise(ctx, pebble.KeyRange{Start: from, End: to})
}
