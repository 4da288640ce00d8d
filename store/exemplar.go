package store

import (
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Exemplars holds the requests of one group that are stored in full for display. Statistics do not depend on them.
type Exemplars struct {
	Slow    []Exemplar // slowest first
	Typical []Exemplar // around the median, fastest first
	Fast    []Exemplar // fastest first
	Failed  []Exemplar // recent requests whose entry span is an error, oldest first; may also be in another list
	// Located holds requests that ran the located place of the problem or incident that they are kept for, by
	// decreasing time spent there. A request may also be in another list.
	Located []Exemplar
}

// Lists returns pointers to the lists of e, in the order of the fields.
func (e *Exemplars) Lists() []*[]Exemplar {
	return []*[]Exemplar{&e.Slow, &e.Typical, &e.Fast, &e.Failed, &e.Located}
}

// Exemplar is a request in a stored trace. Records lists the journal records that contained the spans of the trace.
type Exemplar struct {
	Trace    trace.ID
	Root     trace.SpanID
	Start    trace.Nanos
	Duration int64 // in ns
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

// GroupExemplars keeps the exemplars of groups. [Traces] keeps their traces.
type GroupExemplars struct{ db database }

func groupKey(group analysis.Hash) []byte { return appendHash([]byte{keyExemplars}, group) }

// Put stores e as the exemplars of group, replacing earlier ones.
func (x GroupExemplars) Put(group analysis.Hash, e *Exemplars) error {
	return x.db.Set(groupKey(group), appendValue(e), pebble.NoSync)
}

// Delete deletes the exemplars of group.
func (x GroupExemplars) Delete(group analysis.Hash) error {
	return x.db.Delete(groupKey(group), pebble.NoSync)
}

// Of returns the exemplars of group. The result is empty if the group is unknown.
func (x GroupExemplars) Of(group analysis.Hash) (*Exemplars, error) {
	return x.db.exemplars(groupKey(group))
}

// exemplars returns the exemplars under key. The result is empty if the key doesn't exist.
func (d database) exemplars(key []byte) (*Exemplars, error) {
	value, err := d.get(key)
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

// Each calls f for the exemplars of each group, and stops at the first error from f, which it returns.
func (x GroupExemplars) Each(f func(group analysis.Hash, e *Exemplars) error) error {
	return x.db.eachExemplars([]byte{keyExemplars}, 1+hashSize, func(key []byte, e *Exemplars) error {
		return f(hashAt(key[1:]), e)
	})
}

// eachExemplars calls f for all exemplars with the given key prefix. It returns an error if such a key doesn't have the
// given size.
func (d database) eachExemplars(prefix []byte, size int, f func(key []byte, e *Exemplars) error) error {
	return d.each(prefix, func(key, value []byte) error {
		if len(key) != size {
			return fmt.Errorf("%w: key of exemplars of %d bytes", codec.ErrCorrupt, len(key))
		}
		e, err := decodeExemplars(value)
		if err != nil {
			return err
		}
		return f(key, e)
	})
}

// KeptExemplars keeps exemplars for problems and incidents, by group, even after the groups have newer ones. [Traces]
// keeps their traces.
type KeptExemplars struct{ db database }

// keptKey returns the key of the exemplars of group that are kept for the problem or incident `of`.
func keptKey(of search.Subject, group analysis.Hash) []byte {
	return appendHash(subjectKey(keyKept, of), group)
}

// Put stores e as the exemplars of group that are kept for the problem or incident `of`, replacing earlier ones. If e
// is empty, it only deletes the earlier ones.
func (x KeptExemplars) Put(of search.Subject, group analysis.Hash, e *Exemplars) error {
	if len(e.Slow)+len(e.Typical)+len(e.Fast)+len(e.Failed)+len(e.Located) == 0 {
		return x.db.Delete(keptKey(of, group), pebble.NoSync)
	}
	return x.db.Set(keptKey(of, group), appendValue(e), pebble.NoSync)
}

// Of returns the exemplars of group that are kept for the problem or incident `of`. The result may be empty, but is
// never nil unless there is an error.
func (x KeptExemplars) Of(of search.Subject, group analysis.Hash) (*Exemplars, error) {
	return x.db.exemplars(keptKey(of, group))
}

// Each calls f for all kept exemplars, by subject and group, and stops at the first error from f, which it returns.
func (x KeptExemplars) Each(f func(of search.Subject, group analysis.Hash, e *Exemplars) error) error {
	return x.each([]byte{keyKept}, f)
}

// EachFor calls f for the exemplars kept for the problem or incident `of`, by group, and stops at the first error from
// f, which it returns.
func (x KeptExemplars) EachFor(of search.Subject, f func(group analysis.Hash, e *Exemplars) error) error {
	return x.each(subjectKey(keyKept, of), func(_ search.Subject, group analysis.Hash, e *Exemplars) error {
		return f(group, e)
	})
}

func (x KeptExemplars) each(prefix []byte, f func(of search.Subject, group analysis.Hash, e *Exemplars) error) error {
	return x.db.eachExemplars(prefix, subjectKeySize+hashSize, func(key []byte, e *Exemplars) error {
		return f(subjectOf(key), hashAt(key[subjectKeySize:]), e)
	})
}

// Traces keeps the traces of exemplars.
type Traces struct{ db database }

func traceKey(id trace.ID) []byte { return append([]byte{keyTraces}, id[:]...) }

// Put stores the trace with the given id, as a protobuf-encoded OTLP export request.
func (t Traces) Put(id trace.ID, request []byte) error {
	return t.db.Set(traceKey(id), s2.EncodeBetter(nil, request), pebble.NoSync)
}

// Delete deletes the trace with the given id, if it is stored.
func (t Traces) Delete(id trace.ID) error { return t.db.Delete(traceKey(id), pebble.NoSync) }

// Size returns the compressed size in bytes of the trace with the given id, or 0 if it is not stored.
func (t Traces) Size(id trace.ID) (int64, error) {
	packed, err := t.db.get(traceKey(id))
	return int64(len(packed)), err
}

// Get returns the trace with the given id as a protobuf-encoded OTLP export request, or nil if it is not stored.
func (t Traces) Get(id trace.ID) ([]byte, error) {
	packed, err := t.db.get(traceKey(id))
	if err != nil || packed == nil {
		return nil, err
	}
	request, err := decompress(packed)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", id, err)
	}
	return request, nil
}
