package store

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Exemplars holds the requests of one group that are stored in full for display. Statistics do not depend on them.
type Exemplars struct {
	Slow    []Exemplar // the slowest, slowest first
	Typical []Exemplar // around the median, fastest first
	Fast    []Exemplar // the fastest, fastest first
	Failed  []Exemplar // recent requests whose entry span is an error, oldest first; may also be in another list
	// Located holds requests that ran the located place of the problem or incident for which they are kept, longest
	// time there first. They may also be in another list.
	Located []Exemplar
}

// Lists returns pointers to the lists of e, in the order of the fields.
func (e *Exemplars) Lists() []*[]Exemplar {
	return []*[]Exemplar{&e.Slow, &e.Typical, &e.Fast, &e.Failed, &e.Located}
}

// Exemplar is a request in a stored trace. Records lists the records of the journal that contained its spans.
type Exemplar struct {
	Trace    trace.ID
	Root     trace.SpanID
	Start    trace.Nanos
	Duration int64 // ns
	Records  []uint64
}

// All yields all exemplars in the order of [Exemplars.Lists]. A request in two lists appears twice.
func (e *Exemplars) All() iter.Seq[*Exemplar] {
	return func(yield func(*Exemplar) bool) {
		for _, list := range e.Lists() {
			for i := range *list {
				if !yield(&(*list)[i]) {
					return
				}
			}
		}
	}
}

func groupKey(group analysis.Hash) []byte {
	return binary.BigEndian.AppendUint64(numbered(keyExemplars, group.Hi), group.Lo)
}

func traceKey(id trace.ID) []byte { return append([]byte{keyTraces}, id[:]...) }

// PutExemplars stores e as the exemplars of group and replaces earlier ones. It does not store or delete traces.
func (s *Store) PutExemplars(group analysis.Hash, e *Exemplars) error {
	return s.db.Set(groupKey(group), appendValue(e), pebble.NoSync)
}

// DeleteExemplars deletes the exemplars of group, but not their traces.
func (s *Store) DeleteExemplars(group analysis.Hash) error {
	return s.db.Delete(groupKey(group), pebble.NoSync)
}

// Exemplars returns the exemplars of group. The result is empty if the group is unknown.
func (s *Store) Exemplars(group analysis.Hash) (*Exemplars, error) {
	value, err := s.get(groupKey(group))
	if err != nil || value == nil {
		return &Exemplars{}, err
	}
	return decodeExemplars(value)
}

func decodeExemplars(value []byte) (*Exemplars, error) {
	e, err := decodeValue[Exemplars](value)
	if err != nil {
		return nil, fmt.Errorf("decode exemplars: %w", err)
	}
	return &e, nil
}

// EachExemplars calls f with the exemplars of every group. An error of f ends it.
func (s *Store) EachExemplars(f func(group analysis.Hash, e *Exemplars) error) error {
	return s.each([]byte{keyExemplars}, func(key, value []byte) error {
		if len(key) != 1+16 {
			return fmt.Errorf("%w: key of exemplars of %d bytes", codec.ErrCorrupt, len(key))
		}
		e, err := decodeExemplars(value)
		if err != nil {
			return err
		}
		return f(analysis.Hash{Hi: binary.BigEndian.Uint64(key[1:]), Lo: binary.BigEndian.Uint64(key[9:])}, e)
	})
}

// PutTrace stores the trace id, which request contains as an OTLP export request in protobuf.
func (s *Store) PutTrace(id trace.ID, request []byte) error {
	return s.db.Set(traceKey(id), s2.EncodeBetter(nil, request), pebble.NoSync)
}

// DeleteTrace deletes the trace id, if it is stored.
func (s *Store) DeleteTrace(id trace.ID) error { return s.db.Delete(traceKey(id), pebble.NoSync) }

// TraceSize returns the compressed size in bytes of the stored trace id, or 0 if it is not stored.
func (s *Store) TraceSize(id trace.ID) (int64, error) {
	packed, err := s.get(traceKey(id))
	return int64(len(packed)), err
}

// Trace returns the stored trace id as an OTLP export request in protobuf, or nil if it is not stored.
func (s *Store) Trace(id trace.ID) ([]byte, error) {
	packed, err := s.get(traceKey(id))
	if err != nil || packed == nil {
		return nil, err
	}
	request, err := decompress(packed)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", id, err)
	}
	return request, nil
}
