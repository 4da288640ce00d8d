// Package store keeps the data that survives a restart: checkpoints, decisions, exemplars and undelivered messages. It
// reads no clock and starts no goroutine.
//
// All data is in one database; the first byte of a key names the kind of value. The format has a version: Open migrates
// an older one and refuses a newer one.
package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// First bytes of keys. They are part of the format.
const (
	keyVersion    = 'v' // version of the format
	keyCheckpoint = 'c' // the head of the last checkpoint; the rest is under keyState and keyClosed
	keyState      = 's' // pieces of states, by number; the head names those of the last checkpoint
	keyClosed     = 'k' // traces closed before a checkpoint, by time
	keyDecisions  = 'd' // by the end of their epoch
	keyExemplars  = 'e' // identities of exemplars, by group
	keyTraces     = 't' // traces of exemplars, by ID
	keyPositions  = 'p' // positions in sources that are read incrementally, by name of the source
	keyPeriods    = 'w' // windows of groups, by day, group and period
	keyDays       = 'x' // long windows of groups, by day and group
	keyEnded      = 'y' // closed problems as lists show them, by time and problem
	keyEvidence   = 'z' // closed problems with their evidence, by time and problem
	keyKept       = 'g' // exemplars kept for problems and incidents, by these and group
	keyLocated    = 'l' // evidence of located places, by problem or incident
	keyTicks      = 'm' // requests of groups by tick, of the last hours, by minute and group
	keyMinutes    = 'n' // requests of groups by minute, of the last days, by hour and group
)

// Version is the version of the format that this program writes, including the contents of checkpoints.
const Version = 9

// migrations holds the steps between versions, first the step from version 1 to 2. The changes that a step adds to the
// batch are committed together with the number of the version, so that a crash leaves either version.
var migrations = []func(*Store, *pebble.Batch) error{
	func(*Store, *pebble.Batch) error { return nil }, // to 2: trees lack the catalogue; decoders skip the one of version 1
	func(*Store, *pebble.Batch) error { return nil }, // to 3: sampled requests have times; decoders accept those of version 2 without
	func(*Store, *pebble.Batch) error { return nil }, // to 4: values are CBOR; decoders accept the gob of version 3
	func(*Store, *pebble.Batch) error { return nil }, // to 5: changes, messages and the state of the search are CBOR; decoders accept the JSON of version 4
	func(*Store, *pebble.Batch) error { return nil }, // to 6: tables lack the edges of whole contexts; decoders skip those of version 5
	func(*Store, *pebble.Batch) error { return nil }, // to 7: the pieces of a checkpoint begin with any number; those of version 6 with 0
	func(*Store, *pebble.Batch) error { return nil }, // to 8: has evidence of located places and ticks, which earlier versions would keep for ever
	func(*Store, *pebble.Batch) error { return nil }, // to 9: has minutes, which earlier versions would keep for ever
}

// Options are the options of [Open].
type Options struct {
	Dir    string
	Files  int // see [pebbledb.Options]
	Disk   *pebbledb.Disk
	Log    *slog.Logger
	GiveUp func(error) // see [pebbledb.Options]
}

// Store is the database of a service. It is safe for concurrent use.
type Store struct {
	db *pebbledb.DB
}

// Sizes of the database. Writes are large and rare, and most values are read once.
const (
	memTable = 16 << 20
	cache    = 32 << 20
)

// Open opens the store in a directory, or creates it there. An error wraps one of the reasons of [pebbledb.Open] unless
// the file system refused an operation.
func Open(o Options) (*Store, error) {
	db, err := pebbledb.Open(pebbledb.Options{Dir: o.Dir, MemTable: memTable, Cache: cache, Files: o.Files, Disk: o.Disk, Log: o.Log, GiveUp: o.GiveUp})
	if err != nil {
		return nil, err
	}
	s := &Store{db}
	if err := s.migrate(Version, migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Dir, err), s.Close())
	}
	if db.Truncated > 0 {
		o.Log.Warn("the end of the store's log was unreadable and has been moved", slog.Int64("bytes", db.Truncated), slog.String("to", db.Removed))
	}
	return s, nil
}

// Truncated returns the number of unreadable bytes that were removed from the log when the store was opened.
func (s *Store) Truncated() int64 { return s.db.Truncated }

// migrate migrates the data to a version, step by step.
func (s *Store) migrate(to uint64, steps []func(*Store, *pebble.Batch) error) error {
	value, err := s.get([]byte{keyVersion})
	if err != nil {
		return err
	}
	version := to // nothing was stored yet
	if value == nil {
		if err := s.between(nil, nil, func(_, _ []byte) error { return pebbledb.ErrForeign }); err != nil {
			return err
		}
	} else {
		r := codec.NewReader(value)
		if version = r.Uvarint(); version == 0 {
			return fmt.Errorf("%w: %w: version of the format", pebbledb.ErrDamaged, codec.ErrCorrupt)
		}
	}
	if version > to {
		return fmt.Errorf("%w, with version %d of the store", pebbledb.ErrNewer, version)
	}
	for ; version < to; version++ {
		if err := s.step(version+1, func(b *pebble.Batch) error { return steps[version-1](s, b) }); err != nil {
			return fmt.Errorf("migrate to version %d: %w", version+1, err)
		}
	}
	if value == nil {
		return s.step(to, func(*pebble.Batch) error { return nil })
	}
	return nil
}

// step migrates the data to a version: it commits the changes together with the number of the version.
func (s *Store) step(version uint64, change func(*pebble.Batch) error) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // it is committed or discarded
	if err := errors.Join(change(b), b.Set([]byte{keyVersion}, binary.AppendUvarint(nil, version), nil)); err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}

// get returns a copy of the value under key; nil if there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(value)), value...), closer.Close()
}

// numbered returns the key of a number under a first byte. Keys are ordered as their numbers are.
func numbered(first byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{first}, n) }

// each calls f with all keys and values under prefix, whose last byte must not be 255, in order. Key and value are
// valid during the call.
func (s *Store) each(prefix []byte, f func(key, value []byte) error) error {
	end := slices.Clone(prefix)
	end[len(end)-1]++
	return s.between(prefix, end, f)
}

// between calls f with all keys in [from, to) and their values, in order. Key and value are valid during the call.
func (s *Store) between(from, to []byte, f func(key, value []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := f(it.Key(), value); err != nil {
			return err
		}
	}
	return it.Error()
}

// Bytes returns the size of the store on disk.
func (s *Store) Bytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Close closes the store.
func (s *Store) Close() error { return s.db.Close() }
