package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// firstKey and lastKey enclose all keys.
var (
	firstKey = []byte{0}
	lastKey  = []byte{255}
)

// EstimateSize returns the approximate size of the store on disk in bytes. It includes replaced and deleted values
// that are not yet compacted. It excludes the newest values, up to memTable, which are only in the write-ahead log.
func (s *Store) EstimateSize() (int64, error) {
	n, err := s.db.EstimateDiskUsage(firstKey, lastKey)
	if err != nil {
		return 0, fmt.Errorf("estimate the size of the store: %w", err)
	}
	return int64(n), nil
}

// Compact frees the space of replaced and deleted values. It takes as long as reading and writing all other values.
func (s *Store) Compact(ctx context.Context) error {
	err := s.db.Flush()
	if err == nil {
		err = s.db.Compact(ctx, firstKey, lastKey, false)
	}
	if err != nil {
		return fmt.Errorf("compact the store: %w", err)
	}
	return nil
}

// Epoch summarizes the decisions at the end of one epoch for retention.
type Epoch struct {
	At       trace.Nanos      // end of the epoch
	Size     int64            // bytes on disk
	Subjects []search.Subject // problems and incidents that the decisions are about
}

// Epochs yields the epochs with decisions, oldest first. An error ends the sequence.
func (s *Store) Epochs() iter.Seq2[Epoch, error] {
	return func(yield func(Epoch, error) bool) {
		err := s.eachEpoch(yield)
		if err != nil {
			yield(Epoch{}, fmt.Errorf("read decisions: %w", err))
		}
	}
}

// eachEpoch yields the epochs with decisions until yield returns false. It returns an error if an epoch can't be read.
func (s *Store) eachEpoch(yield func(Epoch, error) bool) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyDecisions}, UpperBound: []byte{keyDecisions + 1}})
	if err != nil {
		return err
	}
	defer func() {
		if e := it.Close(); err == nil {
			err = e
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		packed, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		of, err := decodeDecisions(packed)
		if err != nil {
			return err
		}
		e := Epoch{At: trace.Nanos(binary.BigEndian.Uint64(it.Key()[1:])), Size: int64(len(packed))}
		for i := range of {
			e.Subjects = append(e.Subjects, of[i].Subject)
		}
		if !yield(e, nil) {
			return nil
		}
	}
	return it.Error()
}

// DeleteDecisions deletes the decisions of the epoch that ended at the time at.
func (s *Store) DeleteDecisions(at trace.Nanos) error {
	if err := s.db.Delete(numbered(keyDecisions, uint64(at)), pebble.NoSync); err != nil {
		return fmt.Errorf("delete decisions: %w", err)
	}
	return nil
}
