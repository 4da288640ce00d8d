package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
)

// database is the database of a store. The types that keep the kinds of values share it, and each uses only its own
// keys.
type database struct{ *pebbledb.DB }

// get returns a copy of the value under key, or nil if the key doesn't exist.
func (d database) get(key []byte) ([]byte, error) {
	value, closer, err := d.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(value)), value...), closer.Close()
}

// errEnough ends an iteration successfully.
var errEnough = errors.New("enough")

// each calls f for each key with the given prefix, in order, and stops at the first error from f. It returns that
// error, or nil if it is errEnough. The last byte of prefix must not be 255. key and value are valid only until f
// returns.
func (d database) each(prefix []byte, f func(key, value []byte) error) error {
	end := slices.Clone(prefix)
	end[len(end)-1]++
	return d.between(prefix, end, f)
}

// between is like each, but for the keys in [from, to). A nil bound means that there is no bound.
func (d database) between(from, to []byte, f func(key, value []byte) error) error {
	return d.scan(from, to, (*pebble.Iterator).First, (*pebble.Iterator).Next, f)
}

// backward is like between, but in descending order.
func (d database) backward(from, to []byte, f func(key, value []byte) error) error {
	return d.scan(from, to, (*pebble.Iterator).Last, (*pebble.Iterator).Prev, f)
}

func (d database) scan(
	from, to []byte, first, next func(*pebble.Iterator) bool, f func(key, value []byte) error,
) (err error) {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := first(it); ok; ok = next(it) {
		value, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key(), value)
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return it.Error()
}

// first returns the first key in [from, to), or nil if there isn't one.
func (d database) first(from, to []byte) (key []byte, err error) {
	err = d.between(from, to, func(k, _ []byte) error {
		key = slices.Clone(k)
		return errEnough
	})
	return key, err
}

// commit commits the changes that f makes to a batch. If f returns an error, commit commits nothing and returns the
// error.
func (d database) commit(sync *pebble.WriteOptions, f func(b *pebble.Batch) error) error {
	b := d.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	if err := f(b); err != nil {
		return err
	}
	return b.Commit(sync)
}

// batchBytes is the size at which commitLarge commits a batch.
const batchBytes = 1 << 20

// commitLarge commits and empties b if it is large. The changes in b must not need to be atomic.
func commitLarge(b *pebble.Batch) error {
	if b.Len() < batchBytes {
		return nil
	}
	err := b.Commit(pebble.NoSync)
	b.Reset()
	return err
}

// during wraps err with the operation that failed. It returns nil if err is nil.
func during(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// numbered returns the key that consists of the byte `first` and the number n. Such keys sort by number.
func numbered(first byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{first}, n) }

// hashSize is the size of a hash in a key.
const hashSize = 16

func appendHash(key []byte, h analysis.Hash) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(key, h.Hi), h.Lo)
}

// hashAt returns the hash at the start of b.
func hashAt(b []byte) analysis.Hash {
	return analysis.Hash{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}
}

// subjectKey returns the key, with first as its first byte, of the problem or incident `of`. The kind comes last: it is
// never 255, so the key can be a prefix for [database.each].
func subjectKey(first byte, of search.Subject) []byte {
	return append(appendHash([]byte{first}, of.ID), byte(of.Kind))
}

const subjectKeySize = 1 + hashSize + 1

// subjectOf returns the subject at the start of key, which must have at least subjectKeySize bytes.
func subjectOf(key []byte) search.Subject {
	return search.Subject{Kind: search.SubjectKind(key[1+hashSize]), ID: hashAt(key[1:])}
}
