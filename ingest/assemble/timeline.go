package assemble

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Timeline sorts closed traces by time. It uses the storage of [Offline], so its memory is bounded, too: it stores the
// n-th trace under a key made of the trace's time and n, with the trace's ID as an additional attribute. Call the
// methods in this order: Add any number of times, All once, Close.
type Timeline struct {
	sorted *Offline
	n      uint64
	attrs  []trace.Attr // scratch
}

// NewTimeline returns an empty Timeline.
func NewTimeline(options Options) *Timeline { return &Timeline{sorted: NewOffline(options)} }

// Add adds a copy of t with the time at. Traces with equal times keep their order. Add returns an error only if it
// can't write traces to disk; the Timeline is then unusable.
func (s *Timeline) Add(at trace.Nanos, t *trace.Trace) error {
	var key trace.ID
	binary.BigEndian.PutUint64(key[:8], uint64(at))
	binary.BigEndian.PutUint64(key[8:], s.n)
	s.n++
	id := trace.Attr{
		Key:  trace.Symbol(binary.BigEndian.Uint64(t.ID[:8])),
		Text: trace.Symbol(binary.BigEndian.Uint64(t.ID[8:])),
	}
	s.attrs = append(append(s.attrs[:0], id), t.Attrs...)
	s.sorted.add(key, &fragment{spans: t.Spans, attrs: s.attrs, joins: t.Joins})
	if s.sorted.memory() > s.sorted.options.Memory {
		return s.sorted.spillAll()
	}
	return nil
}

// All yields the traces in ascending order of time. Each is valid until the next one is yielded. The sequence ends
// after an error.
func (s *Timeline) All() iter.Seq2[*trace.Trace, error] {
	merge, err := s.sorted.spill.merger(newMemorySource(s.sorted))
	return each(func(t *trace.Trace) error {
		if err != nil {
			return err
		}
		return nextTimed(merge, t)
	})
}

// nextTimed copies the next trace of m into t and restores its ID. It returns io.EOF after the last trace.
func nextTimed(m *merger, t *trace.Trace) error {
	if _, err := m.next(); err != nil {
		return err
	}
	t.Reset()
	if err := m.take(func(fragments []byte) error { return decodeAll(fragments, t) }); err != nil {
		return fmt.Errorf("read a trace back from disk: %w", err)
	}
	if len(t.Attrs) == 0 {
		return errCorrupt
	}
	binary.BigEndian.PutUint64(t.ID[:8], uint64(t.Attrs[0].Key))
	binary.BigEndian.PutUint64(t.ID[8:], uint64(t.Attrs[0].Text))
	t.Attrs = slices.Delete(t.Attrs, 0, 1)
	return nil
}

// Close frees memory and disk space. It may be called at any time and more than once.
func (s *Timeline) Close() error { return s.sorted.Close() }
