package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// ClosedProblem is a problem as of when it closed. Package api defines the encoding; the store does not read it.
type ClosedProblem struct {
	At       trace.Nanos // end of the epoch when it closed
	ID       analysis.Hash
	Row      []byte // problem as lists show it
	Evidence []byte // evidence for its page; empty if not kept
}

// MaxClosed limits the number of closed problems that are kept.
const MaxClosed = 2000

// closedProblemKey returns the key under first of the problem id that closed at the time at.
func closedProblemKey(first byte, at trace.Nanos, id analysis.Hash) []byte {
	key := binary.BigEndian.AppendUint64(numbered(first, uint64(max(0, at))), id.Hi)
	return binary.BigEndian.AppendUint64(key, id.Lo)
}

const closedProblemKeySize = 1 + 8 + 16

// PutClosedProblems stores all, and replaces problems with the same time and identity. They are durable once the next
// checkpoint is.
func (s *Store) PutClosedProblems(all []ClosedProblem) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	for i := range all {
		p := &all[i]
		if err := b.Set(closedProblemKey(keyEnded, p.At, p.ID), s2.Encode(nil, p.Row), nil); err != nil {
			return err
		}
		if len(p.Evidence) == 0 {
			continue
		}
		if err := b.Set(closedProblemKey(keyEvidence, p.At, p.ID), s2.Encode(nil, p.Evidence), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("store closed problems: %w", err)
	}
	return nil
}

// ClosedProblems returns up to MaxClosed closed problems without their evidence, the latest first.
func (s *Store) ClosedProblems() (all []ClosedProblem, err error) {
	err = s.eachClosed(func(p ClosedProblem, packed []byte) (more bool, err error) {
		p.Row, err = decompress(packed)
		all = append(all, p)
		return len(all) < MaxClosed, err
	})
	return all, err
}

// eachClosed calls f with the closed problems, the latest first, until f returns false or an error. packed is the
// compressed row, which is valid during the call.
func (s *Store) eachClosed(f func(p ClosedProblem, packed []byte) (more bool, err error)) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyEnded}, UpperBound: []byte{keyEnded + 1}})
	if err != nil {
		return fmt.Errorf("read closed problems: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.Last(); ok; ok = it.Prev() {
		key := it.Key()
		if len(key) != closedProblemKeySize {
			return fmt.Errorf("%w: key of a closed problem of %d bytes", codec.ErrCorrupt, len(key))
		}
		packed, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read closed problems: %w", err)
		}
		p := ClosedProblem{
			At: trace.Nanos(binary.BigEndian.Uint64(key[1:])),
			ID: analysis.Hash{Hi: binary.BigEndian.Uint64(key[9:]), Lo: binary.BigEndian.Uint64(key[17:])},
		}
		if more, err := f(p, packed); err != nil || !more {
			return err
		}
	}
	return it.Error()
}

// ClosedProblem returns the problem id as of when it last closed, or nil if it is not kept.
func (s *Store) ClosedProblem(id analysis.Hash) (*ClosedProblem, error) {
	var found *ClosedProblem
	err := s.eachClosed(func(p ClosedProblem, packed []byte) (more bool, err error) {
		if p.ID != id {
			return true, nil
		}
		found = &p
		found.Row, err = decompress(packed)
		return false, err
	})
	if err != nil || found == nil {
		return nil, err
	}
	packed, err := s.get(closedProblemKey(keyEvidence, found.At, id))
	if err != nil || packed == nil {
		return found, err
	}
	found.Evidence, err = decompress(packed)
	return found, err
}

// TrimClosedProblems deletes the problems that closed before the given time, and the oldest beyond MaxClosed.
func (s *Store) TrimClosedProblems(before trace.Nanos) error {
	n := 0
	err := s.eachClosed(func(p ClosedProblem, _ []byte) (more bool, err error) {
		if n++; n > MaxClosed {
			before = max(before, p.At+1)
		}
		return n <= MaxClosed, nil
	})
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	for _, first := range []byte{keyEnded, keyEvidence} {
		if err := b.DeleteRange([]byte{first}, numbered(first, uint64(max(0, before))), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("delete closed problems: %w", err)
	}
	return nil
}

// keptKey returns the key of the exemplars of group that are kept for the problem or incident `of`.
func keptKey(of search.Subject, group analysis.Hash) []byte {
	key := binary.BigEndian.AppendUint64(subjectKey(keyKept, of), group.Hi)
	return binary.BigEndian.AppendUint64(key, group.Lo)
}

const keptKeySize = subjectKeySize + 16

// PutKept stores e as the exemplars of group that are kept for the problem or incident `of`, and replaces earlier ones.
// If e is empty, it only deletes the earlier ones. It does not store or delete traces.
func (s *Store) PutKept(of search.Subject, group analysis.Hash, e *Exemplars) error {
	if len(e.Slow)+len(e.Typical)+len(e.Fast)+len(e.Failed)+len(e.Located) == 0 {
		return s.db.Delete(keptKey(of, group), pebble.NoSync)
	}
	return s.db.Set(keptKey(of, group), appendValue(e), pebble.NoSync)
}

// Kept returns the exemplars of group that are kept for the problem or incident `of`. The result is empty if there are
// none.
func (s *Store) Kept(of search.Subject, group analysis.Hash) (*Exemplars, error) {
	value, err := s.get(keptKey(of, group))
	if err != nil || value == nil {
		return &Exemplars{}, err
	}
	return decodeExemplars(value)
}

// EachKept calls f with all exemplars kept for problems and incidents, by subject and group. An error of f ends it.
func (s *Store) EachKept(f func(of search.Subject, group analysis.Hash, e *Exemplars) error) error {
	return s.eachKept([]byte{keyKept}, f)
}

// EachKeptFor calls f with the exemplars kept for the problem or incident `of`, by group. An error of f ends it.
func (s *Store) EachKeptFor(of search.Subject, f func(group analysis.Hash, e *Exemplars) error) error {
	return s.eachKept(subjectKey(keyKept, of), func(_ search.Subject, group analysis.Hash, e *Exemplars) error { return f(group, e) })
}

func (s *Store) eachKept(prefix []byte, f func(of search.Subject, group analysis.Hash, e *Exemplars) error) error {
	return s.each(prefix, func(key, value []byte) error {
		if len(key) != keptKeySize {
			return fmt.Errorf("%w: key of kept exemplars of %d bytes", codec.ErrCorrupt, len(key))
		}
		e, err := decodeExemplars(value)
		if err != nil {
			return err
		}
		of, group := subjectOf(key), key[subjectKeySize:]
		return f(of, analysis.Hash{Hi: binary.BigEndian.Uint64(group), Lo: binary.BigEndian.Uint64(group[8:])}, e)
	})
}
