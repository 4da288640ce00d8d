// Package store keeps the data that survives a restart: checkpoints, decisions, exemplars and undelivered messages.
// Each kind of data has an owner, a field of [Store]. The package reads no clock and starts no goroutine.
//
// All data is in one database. The first byte of a key identifies the kind of value. The format has a version, and Open
// refuses data of any other version.
package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// First bytes of keys. They are part of the format.
const (
	keyVersion    = 'v' // version of the format
	keyCheckpoint = 'c' // the head of the last checkpoint; the rest is under keyState and keyClosed
	keyState      = 's' // pieces of states, by number; the head has the numbers of the last checkpoint's pieces
	keyClosed     = 'k' // traces closed before a checkpoint, by time
	keyDecisions  = 'd' // decisions, by the end of their epoch
	keyExemplars  = 'e' // exemplars without their traces, by group
	keyTraces     = 't' // traces of exemplars, by ID
	keyPositions  = 'p' // positions in sources that are read incrementally, by name of the source
	keyPeriods    = 'w' // windows of groups, by day, group and period
	keyDays       = 'x' // long windows of groups, by day and group
	keyEnded      = 'y' // closed problems as shown in lists, by time and problem
	keyEvidence   = 'z' // evidence of closed problems, by time and problem
	keyKept       = 'g' // exemplars kept for problems and incidents, by subject and group
	keyLocated    = 'l' // evidence of located places, by problem or incident
	keyTicks      = 'm' // requests of groups by tick, of the last hours, by minute and group
	keyMinutes    = 'n' // requests of groups by minute, of the last days, by hour and group
)

// Version is the version of the format, including the contents of checkpoints.
const Version = 5

// Options configures [Open].
type Options struct {
	Dir  string
	Disk *pebbledb.Disk
	Log  *slog.Logger
	// See [pebbledb.Options].
	Files  int
	Memory int64
	GiveUp func(error)
}

// Store is the database of a service. Each field is the only reader and writer of its kind of data. A Store is safe for
// concurrent use.
type Store struct {
	Checkpoints Checkpoints
	Decisions   Decisions
	Exemplars   GroupExemplars
	Kept        KeptExemplars
	Traces      Traces
	Closed      ClosedProblems
	Places      Places
	Past        Past
	Ticks       Ticks
	Positions   Positions

	db database
}

// Sizes of the database. Writes are large and rare, and most values are read once.
const (
	memTable = 16 << 20
	cache    = 32 << 20
)

// Open opens the store in o.Dir, or creates it. Errors wrap one of the errors of [pebbledb.Open], unless the file
// system failed.
func Open(o Options) (*Store, error) {
	opened, err := pebbledb.Open(pebbledb.Options{
		Dir:      o.Dir,
		MemTable: memTable,
		Cache:    cache,
		Memory:   o.Memory,
		Files:    o.Files,
		Disk:     o.Disk,
		Log:      o.Log,
		GiveUp:   o.GiveUp,
	})
	if err != nil {
		return nil, err
	}
	db := database{opened}
	if err := checkVersion(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Dir, err), db.Close())
	}
	if db.Truncated > 0 {
		o.Log.Warn("the end of the store's log was unreadable and has been moved",
			slog.Int64("bytes", db.Truncated), slog.String("to", db.Removed))
	}
	return &Store{
		Checkpoints: Checkpoints{db},
		Decisions:   Decisions{db},
		Exemplars:   GroupExemplars{db},
		Kept:        KeptExemplars{db},
		Traces:      Traces{db},
		Closed:      ClosedProblems{db},
		Places:      Places{db},
		Past:        Past{db},
		Ticks:       Ticks{db},
		Positions:   Positions{db},
		db:          db,
	}, nil
}

// Truncated returns the number of unreadable bytes that Open removed from the end of the log.
func (s *Store) Truncated() int64 { return s.db.Truncated }

// checkVersion returns an error if the data has a different version of the format. It writes the current version to an
// empty database, and returns an error if the database isn't empty but has no version.
func checkVersion(db database) error {
	value, err := db.get([]byte{keyVersion})
	if err != nil {
		return err
	}
	if value == nil {
		if err := db.between(nil, nil, func(_, _ []byte) error { return pebbledb.ErrForeign }); err != nil {
			return err
		}
		return db.Set([]byte{keyVersion}, binary.AppendUvarint(nil, Version), pebble.Sync)
	}
	r := codec.NewReader(value)
	switch version := r.Uvarint(); version {
	case Version:
		return nil
	case 0:
		return fmt.Errorf("%w: %w: version of the format", pebbledb.ErrDamaged, codec.ErrCorrupt)
	default:
		return fmt.Errorf("%w, with version %d of the store", pebbledb.ErrNewer, version)
	}
}

// Backup writes a consistent copy of the store to dir, a new directory, with hard links where possible. It doesn't
// block writes.
func (s *Store) Backup(dir string) error {
	return during("back up the store", s.db.Checkpoint(dir, pebble.WithFlushedWAL()))
}

// firstKey and lastKey enclose all keys.
var (
	firstKey = []byte{0}
	lastKey  = []byte{255}
)

// EstimateSize returns the approximate size of the store on disk in bytes. The size includes replaced and deleted
// values that have not been compacted yet. It excludes the newest values, up to memTable bytes, which are only in the
// write-ahead log.
func (s *Store) EstimateSize() (int64, error) {
	n, err := s.db.EstimateDiskUsage(firstKey, lastKey)
	return int64(n), during("estimate the size of the store", err)
}

// Compact frees the space of replaced and deleted values. It takes about as long as reading and writing all remaining
// values.
func (s *Store) Compact(ctx context.Context) error {
	err := s.db.Flush()
	if err == nil {
		err = s.db.Compact(ctx, firstKey, lastKey, false)
	}
	return during("compact the store", err)
}

// Bytes returns the size of the store on disk in bytes.
func (s *Store) Bytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Close closes the store.
func (s *Store) Close() error { return s.db.Close() }
