// Package store keeps the data that survives a restart: checkpoints, decisions, exemplars and undelivered messages. It
// reads no clock and starts no goroutine.
//
// All data is in one database; the first byte of a key names the kind of value. The format has a version: Open refuses
// any other.
package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
)

// First bytes of keys. They are part of the format.
const (
	keyVersion    = 'v' // version of the format
	keyCheckpoint = 'c' // the head of the last checkpoint; the rest is under keyState and keyClosed
	keyState      = 's' // pieces of states, by number; the head has the numbers for the last checkpoint
	keyClosed     = 'k' // traces closed before a checkpoint, by time
	keyDecisions  = 'd' // decisions, by the end of their epoch
	keyExemplars  = 'e' // identities of exemplars, by group
	keyTraces     = 't' // traces of exemplars, by ID
	keyPositions  = 'p' // positions in sources that are read incrementally, by name of the source
	keyPeriods    = 'w' // windows of groups, by day, group and period
	keyDays       = 'x' // long windows of groups, by day and group
	keyEnded      = 'y' // closed problems as lists show them, by time and problem
	keyEvidence   = 'z' // closed problems with their evidence, by time and problem
	keyKept       = 'g' // exemplars kept for problems and incidents, by subject and group
	keyLocated    = 'l' // evidence of located places, by problem or incident
	keyTicks      = 'm' // requests of groups by tick, of the last hours, by minute and group
	keyMinutes    = 'n' // requests of groups by minute, of the last days, by hour and group
)

// Version is the version of the format, including the contents of checkpoints.
const Version = 3

// Options configures [Open].
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

// Open opens the store in o.Dir, or creates it. The error wraps one of the reasons of [pebbledb.Open] unless the file
// system refused an operation.
func Open(o Options) (*Store, error) {
	db, err := pebbledb.Open(pebbledb.Options{Dir: o.Dir, MemTable: memTable, Cache: cache, Files: o.Files, Disk: o.Disk, Log: o.Log, GiveUp: o.GiveUp})
	if err != nil {
		return nil, err
	}
	s := &Store{db}
	if err := s.checkVersion(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Dir, err), s.Close())
	}
	if db.Truncated > 0 {
		o.Log.Warn("the end of the store's log was unreadable and has been moved", slog.Int64("bytes", db.Truncated), slog.String("to", db.Removed))
	}
	return s, nil
}

// Truncated returns the number of unreadable bytes that Open removed from the end of the log.
func (s *Store) Truncated() int64 { return s.db.Truncated }

// checkVersion returns an error if the data has another version of the format. It writes the current version to an
// empty database.
func (s *Store) checkVersion() error {
	value, err := s.get([]byte{keyVersion})
	switch {
	case err != nil:
		return err
	case value == nil:
		return s.begin()
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

// begin writes the current version of the format to an empty database. It returns an error if the database contains
// other data.
func (s *Store) begin() error {
	if err := s.between(nil, nil, func(_, _ []byte) error { return pebbledb.ErrForeign }); err != nil {
		return err
	}
	return s.db.Set([]byte{keyVersion}, binary.AppendUvarint(nil, Version), pebble.Sync)
}

// get returns a copy of the value under key, or nil if the key doesn't exist.
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

// numbered returns the key for n under first. Keys are in the order of their numbers.
func numbered(first byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{first}, n) }

// subjectKey returns the key of the problem or incident `of` under first. The kind comes last because it is never 255,
// so that the key can be a prefix for [Store.each].
func subjectKey(first byte, of search.Subject) []byte {
	return append(binary.BigEndian.AppendUint64(numbered(first, of.ID.Hi), of.ID.Lo), byte(of.Kind))
}

const subjectKeySize = 1 + 16 + 1

// subjectOf returns the subject at the start of key, which must have at least subjectKeySize bytes.
func subjectOf(key []byte) search.Subject {
	return search.Subject{
		Kind: search.SubjectKind(key[17]),
		ID:   analysis.Hash{Hi: binary.BigEndian.Uint64(key[1:]), Lo: binary.BigEndian.Uint64(key[9:])},
	}
}

// each calls f with all keys and values under prefix, whose last byte must not be 255, in order. An error of f ends it.
// Key and value are valid during the call.
func (s *Store) each(prefix []byte, f func(key, value []byte) error) error {
	end := slices.Clone(prefix)
	end[len(end)-1]++
	return s.between(prefix, end, f)
}

// between calls f with all keys in [from, to) and their values, in order. An error of f ends it. Key and value are
// valid during the call.
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

// Bytes returns the size of the store on disk in bytes.
func (s *Store) Bytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Close closes the store.
func (s *Store) Close() error { return s.db.Close() }
