package store

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Decisions keeps decisions by the end of their epoch.
type Decisions struct{ db database }

func epochKey(at trace.Nanos) []byte { return numbered(keyDecisions, uint64(max(0, at))) }

func epochOf(key []byte) trace.Nanos { return trace.Nanos(binary.BigEndian.Uint64(key[1:])) }

// Put stores the decisions of the epoch that ended at time at, replacing any decisions stored for the same time.
func (d Decisions) Put(at trace.Nanos, decisions []search.Decision) error {
	err := d.db.Set(epochKey(at), s2.Encode(nil, appendValue(decisions)), pebble.Sync)
	return during("store decisions", err)
}

// Between returns the decisions of epochs that ended in [from, to), oldest first. It reads whole epochs, starting with
// the oldest or, if newest is true, the newest, until it has at least limit decisions.
func (d Decisions) Between(from, to trace.Nanos, limit int, newest bool) ([]search.Decision, error) {
	scan := d.db.between
	if newest {
		scan = d.db.backward
	}
	var epochs [][]search.Decision
	n := 0
	err := scan(epochKey(from), epochKey(to), func(key, packed []byte) error {
		if n >= limit {
			return errEnough
		}
		decisions, err := decodeDecisions(packed)
		if err != nil {
			return fmt.Errorf("decisions of %d: %w", epochOf(key), err)
		}
		epochs = append(epochs, decisions)
		n += len(decisions)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read decisions: %w", err)
	}
	if newest {
		slices.Reverse(epochs)
	}
	return slices.Concat(epochs...), nil
}

// Encoded yields the encoded decisions of each epoch, oldest first. The sequence ends after the first error.
func (d Decisions) Encoded() iter.Seq2[[]byte, error] {
	return yieldEpochs(d, func(_ trace.Nanos, packed []byte) ([]byte, error) { return decompress(packed) })
}

// Epoch summarizes the decisions of one epoch, for retention.
type Epoch struct {
	At       trace.Nanos      // end of the epoch
	Size     int64            // bytes on disk
	Subjects []search.Subject // problems and incidents that the decisions are about
}

// Epochs yields the epochs with decisions, oldest first. The sequence ends after the first error.
func (d Decisions) Epochs() iter.Seq2[Epoch, error] {
	return yieldEpochs(d, func(at trace.Nanos, packed []byte) (Epoch, error) {
		decisions, err := decodeDecisions(packed)
		e := Epoch{At: at, Size: int64(len(packed))}
		for i := range decisions {
			e.Subjects = append(e.Subjects, decisions[i].Subject)
		}
		return e, err
	})
}

// yieldEpochs yields the result of read for each epoch, oldest first. The sequence ends after the first error.
func yieldEpochs[T any](d Decisions, read func(at trace.Nanos, packed []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := d.db.each([]byte{keyDecisions}, func(key, packed []byte) error {
			x, err := read(epochOf(key), packed)
			if err == nil && !yield(x, nil) {
				err = errEnough
			}
			return err
		})
		if err != nil {
			var zero T
			yield(zero, fmt.Errorf("read decisions: %w", err))
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

// Delete deletes the decisions of the epoch that ended at time at.
func (d Decisions) Delete(at trace.Nanos) error {
	return during("delete decisions", d.db.Delete(epochKey(at), pebble.NoSync))
}

// DeleteBefore deletes the decisions of epochs that ended before the given time.
func (d Decisions) DeleteBefore(before trace.Nanos) error {
	return during("delete decisions", d.db.DeleteRange(epochKey(0), epochKey(before), pebble.NoSync))
}
