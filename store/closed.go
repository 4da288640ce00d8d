package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// ClosedProblem is a problem as it was when it closed. Package api defines the encoding of Row and Evidence, which is
// opaque to the store.
type ClosedProblem struct {
	At       trace.Nanos // end of the epoch when it closed
	ID       analysis.Hash
	Row      []byte // problem as shown in lists
	Evidence []byte // evidence for its page; empty if not kept
}

// MaxClosed is the maximum number of closed problems that are kept.
const MaxClosed = 2000

// ClosedProblems keeps the problems that closed most recently, by time.
type ClosedProblems struct{ db database }

// closedProblemKey returns the key, with first as its first byte, of the problem with the given id that closed at time
// at.
func closedProblemKey(first byte, at trace.Nanos, id analysis.Hash) []byte {
	return appendHash(numbered(first, uint64(max(0, at))), id)
}

const closedProblemKeySize = 1 + 8 + hashSize

// Put stores all, replacing problems with the same time and ID. The problems become durable with the next checkpoint.
func (c ClosedProblems) Put(all []ClosedProblem) error {
	err := c.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		for i := range all {
			p := &all[i]
			if err := b.Set(closedProblemKey(keyEnded, p.At, p.ID), s2.Encode(nil, p.Row), nil); err != nil {
				return err
			}
			if len(p.Evidence) == 0 {
				continue
			}
			err := b.Set(closedProblemKey(keyEvidence, p.At, p.ID), s2.Encode(nil, p.Evidence), nil)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return during("store closed problems", err)
}

// All returns up to [MaxClosed] closed problems without their evidence, latest first.
func (c ClosedProblems) All() (all []ClosedProblem, err error) {
	err = c.each(func(p ClosedProblem, packed []byte) (err error) {
		if len(all) == MaxClosed {
			return errEnough
		}
		p.Row, err = decompress(packed)
		all = append(all, p)
		return err
	})
	return all, err
}

// each calls f for each closed problem, latest first, and stops at the first error from f. It returns that error, or
// nil if it is errEnough. packed is the compressed row and is valid only until f returns.
func (c ClosedProblems) each(f func(p ClosedProblem, packed []byte) error) error {
	err := c.db.backward([]byte{keyEnded}, []byte{keyEnded + 1}, func(key, packed []byte) error {
		if len(key) != closedProblemKeySize {
			return fmt.Errorf("%w: key of a closed problem of %d bytes", codec.ErrCorrupt, len(key))
		}
		return f(ClosedProblem{At: trace.Nanos(binary.BigEndian.Uint64(key[1:])), ID: hashAt(key[9:])}, packed)
	})
	return during("read closed problems", err)
}

// Get returns the problem with the given id as it was when it last closed, or nil if it is not kept.
func (c ClosedProblems) Get(id analysis.Hash) (*ClosedProblem, error) {
	var found *ClosedProblem
	err := c.each(func(p ClosedProblem, packed []byte) (err error) {
		if p.ID != id {
			return nil
		}
		found = &p
		if found.Row, err = decompress(packed); err != nil {
			return err
		}
		return errEnough
	})
	if err != nil || found == nil {
		return nil, err
	}
	packed, err := c.db.get(closedProblemKey(keyEvidence, found.At, id))
	if err != nil || packed == nil {
		return found, err
	}
	found.Evidence, err = decompress(packed)
	return found, err
}

// Trim deletes the problems that closed before the given time, and the oldest problems beyond [MaxClosed].
func (c ClosedProblems) Trim(before trace.Nanos) error {
	n := 0
	err := c.each(func(p ClosedProblem, _ []byte) error {
		if n++; n <= MaxClosed {
			return nil
		}
		before = max(before, p.At+1)
		return errEnough
	})
	if err != nil {
		return err
	}
	err = c.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		to := uint64(max(0, before))
		return errors.Join(
			b.DeleteRange([]byte{keyEnded}, numbered(keyEnded, to), nil),
			b.DeleteRange([]byte{keyEvidence}, numbered(keyEvidence, to), nil),
		)
	})
	return during("delete closed problems", err)
}
