package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// PutDecisions stores the decisions of the epoch that ended at the time at. It replaces those stored for the same time.
func (s *Store) PutDecisions(at trace.Nanos, decisions []search.Decision) error {
	if err := s.db.Set(numbered(keyDecisions, uint64(at)), s2.Encode(nil, appendValue(decisions)), pebble.Sync); err != nil {
		return fmt.Errorf("store decisions: %w", err)
	}
	return nil
}

// Decisions returns the decisions of whole epochs that ended in [from, to), oldest first. It reads epochs from the
// oldest on, or from the newest back if newest is true, until it has at least limit decisions.
func (s *Store) Decisions(from, to trace.Nanos, limit int, newest bool) (all []search.Decision, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: numbered(keyDecisions, uint64(max(0, from))), UpperBound: numbered(keyDecisions, uint64(max(0, to))),
	})
	if err != nil {
		return nil, fmt.Errorf("read decisions: %w", err)
	}
	defer func() {
		if e := it.Close(); err == nil && e != nil {
			err = fmt.Errorf("read decisions: %w", e)
		}
	}()
	first, next := it.First, it.Next
	if newest {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok && len(all) < limit; ok = next() {
		packed, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read decisions: %w", err)
		}
		of, err := decodeDecisions(packed)
		if err != nil {
			return nil, fmt.Errorf("decisions of %d: %w", binary.BigEndian.Uint64(it.Key()[1:]), err)
		}
		if newest {
			of = append(of, all...)
			all = of
		} else {
			all = slices.Concat(all, of)
		}
	}
	return all, nil
}

// EncodedDecisions yields the encoded decisions of each epoch, oldest first. Each slice is valid until the next
// iteration. An error ends the sequence.
func (s *Store) EncodedDecisions() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		stop := errors.New("enough")
		err := s.each([]byte{keyDecisions}, func(_, packed []byte) error {
			data, err := decompress(packed)
			if err == nil && !yield(data, nil) {
				err = stop
			}
			return err
		})
		if err != nil && !errors.Is(err, stop) {
			yield(nil, fmt.Errorf("read decisions: %w", err))
		}
	}
}

func decodeDecisions(packed []byte) ([]search.Decision, error) {
	data, err := decompress(packed)
	if err != nil {
		return nil, err
	}
	return decodeValue[[]search.Decision](data)
}

// DeleteDecisionsBefore deletes the decisions of epochs that ended before the given time.
func (s *Store) DeleteDecisionsBefore(before trace.Nanos) error {
	err := s.db.DeleteRange(numbered(keyDecisions, 0), numbered(keyDecisions, uint64(max(0, before))), pebble.NoSync)
	if err != nil {
		return fmt.Errorf("delete decisions: %w", err)
	}
	return nil
}
