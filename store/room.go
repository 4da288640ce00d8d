package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// What all keys lie between.
var (
	firstKey = []byte{0}
	lastKey  = []byte{255}
)

// Takes returns about how many bytes on disk all takes that is kept, with what was replaced or forgotten and is not yet cleared away, and without
// what came last: up to memTable stands in a log of its own.
func (s *Store) Takes() (int64, error) {
	n, err := s.db.EstimateDiskUsage(firstKey, lastKey)
	if err != nil {
		return 0, fmt.Errorf("measure the store: %w", err)
	}
	return int64(n), nil
}

// Clear clears away what was replaced or forgotten. It takes as long as reading and writing all the rest.
func (s *Store) Clear(ctx context.Context) error {
	err := s.db.Flush()
	if err == nil {
		err = s.db.Compact(ctx, firstKey, lastKey, false)
	}
	if err != nil {
		return fmt.Errorf("clear the store: %w", err)
	}
	return nil
}

// Decided is what was decided when one epoch ended, as far as it takes to forget it.
type Decided struct {
	At       trace.Nanos
	Size     int64           // bytes on disk
	Problems []analysis.Hash // that decisions are about
}

// Decided yields what was decided, epoch by epoch, oldest first. An error is the last thing that is yielded.
func (s *Store) Decided() iter.Seq2[Decided, error] {
	return func(yield func(Decided, error) bool) {
		err := s.eachDecided(yield)
		if err != nil {
			yield(Decided{}, fmt.Errorf("read decisions: %w", err))
		}
	}
}

// eachDecided yields what was decided until somebody has enough, or it cannot be read.
func (s *Store) eachDecided(yield func(Decided, error) bool) (err error) {
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
		d := Decided{At: trace.Nanos(binary.BigEndian.Uint64(it.Key()[1:])), Size: int64(len(packed))}
		for i := range of {
			d.Problems = append(d.Problems, of[i].Investigation)
		}
		if !yield(d, nil) {
			return nil
		}
	}
	return it.Error()
}

// ForgetDecided forgets what was decided when the epoch ended that ended at a time.
func (s *Store) ForgetDecided(at trace.Nanos) error {
	if err := s.db.Delete(numbered(keyDecisions, uint64(at)), pebble.NoSync); err != nil {
		return fmt.Errorf("forget decisions: %w", err)
	}
	return nil
}
