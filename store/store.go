// Package store keeps what must survive a restart: the state that a checkpoint took, decisions, exemplars, and what is still to be
// delivered. Time is passed in; nothing here reads a clock or starts a goroutine.
//
// Everything is in one database, by the first byte of the key: see the constants. The format carries a version: an older one is
// migrated when it is opened, a newer one refused.
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

// What the first byte of a key says. These are on disk.
const (
	keyVersion    = 'v' // version of the format
	keyCheckpoint = 'c' // the last checkpoint; what it holds follows below keyState and keyClosed
	keyState      = 's' // pieces of the state, by number
	keyClosed     = 'k' // traces closed before a checkpoint, by the number of its record
	keyDecisions  = 'd' // by the end of their epoch
	keyExemplars  = 'e' // which traces are exemplars, by group
	keyTraces     = 't' // of exemplars, by their ID
	keyPositions  = 'p' // in sources that are read bit by bit, by their name
)

// Version is the version of the format that this program writes, with what checkpoints hold.
const Version = 5

// migrations make of the data of a version those of the next, the first one of version 1: what each adds to the batch is committed with
// the number of the version, so that a crash leaves the one or the other.
var migrations = []func(*Store, *pebble.Batch) error{
	func(*Store, *pebble.Batch) error { return nil }, // to 2: trees are kept without the catalogue, which is left out when those of 1 are read
	func(*Store, *pebble.Batch) error { return nil }, // to 3: requests sampled say when they came, but those of 2, which are read as they are
	func(*Store, *pebble.Batch) error { return nil }, // to 4: values are CBOR; the gob of 3 is read as it is
	func(*Store, *pebble.Batch) error { return nil }, // to 5: changes, messages and the state of the search are CBOR; the JSON of 4 is read as it is
}

// ErrNewer is wrapped by errors of [Open] when a newer program wrote the data.
var ErrNewer = errors.New("it was written by a newer version of sibyl: use that one, or another data directory")

// Options choose where a store is.
type Options struct {
	Dir    string
	Files  int // see [pebbledb.Options]
	Disk   *pebbledb.Disk
	Log    *slog.Logger
	GiveUp func(error) // see [pebbledb.Options]
}

// Store is safe for concurrent use.
type Store struct {
	db *pebbledb.DB
}

// Sizes of the database: what is written is large and seldom, what is read is read once.
const (
	memTable = 16 << 20
	cache    = 32 << 20
)

// Open opens or makes the store in a directory.
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
		o.Log.Warn("the end of the store's log could not be read and was cut off", slog.Int64("bytes", db.Truncated))
	}
	return s, nil
}

// migrate brings the data to a version, step by step.
func (s *Store) migrate(to uint64, steps []func(*Store, *pebble.Batch) error) error {
	value, err := s.get([]byte{keyVersion})
	if err != nil {
		return err
	}
	version := to // nothing was stored yet
	if value != nil {
		r := codec.NewReader(value)
		if version = r.Uvarint(); version == 0 {
			return fmt.Errorf("%w: version of the format", codec.ErrCorrupt)
		}
	}
	if version > to {
		return fmt.Errorf("version %d: %w", version, ErrNewer)
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

// step makes the data those of a version.
func (s *Store) step(version uint64, change func(*pebble.Batch) error) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // it is committed, or of no use
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

// numbered returns the key of a number below a first byte; keys are in the order of numbers.
func numbered(first byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{first}, n) }

// each calls f with all keys and values that begin with the given bytes, the last of which is not 255, in order. They are valid during the
// call.
func (s *Store) each(prefix []byte, f func(key, value []byte) error) (err error) {
	end := slices.Clone(prefix)
	end[len(end)-1]++
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
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

// Bytes returns what the store takes on disk.
func (s *Store) Bytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Close closes the store.
func (s *Store) Close() error { return s.db.Close() }
