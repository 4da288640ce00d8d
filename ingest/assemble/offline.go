// Package assemble turns batches of spans into closed traces.
//
// [Offline] is for finite input such as files, where traces close at the end of the input. It returns complete traces
// in the order of their IDs, regardless of the order of the batches and the memory available. When open traces exceed a
// memory limit, it sorts them and writes them to disk, and merges them at the end. This external merge sort doesn't
// depend on the distribution of trace IDs, which matters because many tracers use only half of the bits. [Online] is
// for input that does not end.
//
// The package does not interpret spans; it leaves duplicates and missing parents to the analysis. Traces on disk don't
// need a dictionary, because symbols are hashes of their content. An assembler is not safe for concurrent use. It
// starts no goroutines and reads no clock.
package assemble

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// DefaultMemory is the default limit on the memory of open traces, in bytes.
const DefaultMemory = 2 << 30

// traceCost is the memory of an open trace in addition to its spans, in bytes: its entry in the map, at the lowest load
// factor, and its entry in the sorted list of IDs.
const traceCost = 96

// Options configures the memory and disk of an assembler.
type Options struct {
	Memory  int64  // bytes of open traces kept in memory; DefaultMemory if 0
	TempDir string // directory for open traces beyond Memory; if empty, the system's directory for temporary files
}

// Offline assembles the traces of a finite input. Call its methods in this order: Add any number of times, Next until
// it returns io.EOF, Find any number of times, Close.
type Offline struct {
	options Options
	arena   arena
	open    map[trace.ID]chain
	spill   spill

	spans int64
	merge *merger // nil until the first Next
	order order
}

// chain is the list of an open trace's fragments in the arena.
type chain struct{ first, last ref }

// NewOffline returns an empty assembler.
func NewOffline(options Options) *Offline {
	if options.Memory <= 0 {
		options.Memory = DefaultMemory
	}
	chunk := min(max(options.Memory/64, 1<<12), 1<<20)
	return &Offline{
		options: options,
		arena:   arena{chunkSize: int(chunk)},
		open:    make(map[trace.ID]chain),
		spill:   spill{dir: options.TempDir},
	}
}

// Add copies the spans of b into the open traces. It returns an error only if it can't write traces to disk; the
// assembler is then unusable.
func (o *Offline) Add(b *ingest.Batch) error {
	attrs, joins := b.Attrs, b.Joins
	for i := 0; i < len(b.Spans); {
		j := i + 1
		for j < len(b.Spans) && b.Traces[j] == b.Traces[i] {
			j++
		}
		f := fragment{base: int32(i), spans: b.Spans[i:j]}
		f.attrs, attrs = upTo(attrs, int32(j), func(a *trace.Attr) int32 { return a.Span })
		f.joins, joins = upTo(joins, int32(j), func(a *trace.Join) int32 { return a.Span })
		o.add(b.Traces[i], &f)
		i = j
	}
	o.spans += int64(len(b.Spans))
	if o.memory() > o.options.Memory {
		return o.spillAll()
	}
	return nil
}

// upTo splits s before the first element with a span of end or later. s must be ascending by span.
func upTo[T any](s []T, end int32, span func(*T) int32) (before, rest []T) {
	n := 0
	for n < len(s) && span(&s[n]) < end {
		n++
	}
	return s[:n], s[n:]
}

func (o *Offline) add(id trace.ID, f *fragment) {
	at := o.arena.put(f)
	c, ok := o.open[id]
	if ok {
		o.arena.link(c.last, at)
	} else {
		c.first = at
	}
	c.last = at
	o.open[id] = c
}

// memory returns the memory used by open traces, in bytes.
func (o *Offline) memory() int64 { return o.arena.bytes + int64(len(o.open))*traceCost }

// Spans returns the number of spans added.
func (o *Offline) Spans() int64 { return o.spans }

// Spilled returns the number of bytes written to temporary files.
func (o *Offline) Spilled() int64 { return o.spill.written }

// spillAll moves all open traces to disk, as one sorted run.
func (o *Offline) spillAll() error {
	if err := o.spill.run(newMemorySource(o)); err != nil {
		return fmt.Errorf("spill open traces larger than %d B to disk (allow more memory, or set TMPDIR to a "+
			"directory with room): %w",
			o.options.Memory, err)
	}
	o.arena.reset()
	clear(o.open)
	return nil
}

// Next copies the next trace, in the order of IDs, into t, replacing its contents. Spans are ordered by start, then ID,
// attributes and joins by span. Next returns io.EOF after the last trace.
func (o *Offline) Next(t *trace.Trace) error {
	if o.merge == nil {
		merge, err := o.spill.merger(newMemorySource(o))
		if err != nil {
			return err
		}
		o.merge = merge
	}
	return o.next(o.merge, t)
}

// next copies the next trace of m into t, replacing its contents. It returns io.EOF after the last trace.
func (o *Offline) next(m *merger, t *trace.Trace) error {
	id, err := m.next()
	if err != nil {
		return err
	}
	t.Reset()
	t.ID = id
	if err := m.take(func(fragments []byte) error { return decodeAll(fragments, t) }); err != nil {
		return fmt.Errorf("read trace %s back from disk: %w", id, err)
	}
	o.order.apply(t)
	return nil
}

// All yields the traces that [Offline.Next] would return. Each is valid until the next one is yielded. The sequence
// ends after an error.
func (o *Offline) All() iter.Seq2[*trace.Trace, error] {
	return each(o.Next)
}

// Find yields the traces with the given IDs again, in the order of their IDs. Each is valid until the next one is
// yielded. The sequence ends after an error. Find may be called after the last call to Next. Each call reads all data
// on disk again.
func (o *Offline) Find(ids []trace.ID) iter.Seq2[*trace.Trace, error] {
	m, err := o.spill.find(ids, o)
	return each(func(t *trace.Trace) error {
		if err != nil {
			return err
		}
		return o.next(m, t)
	})
}

// each yields the traces that next stores in its argument, until next returns io.EOF. It yields any other error last.
func each(next func(*trace.Trace) error) iter.Seq2[*trace.Trace, error] {
	return func(yield func(*trace.Trace, error) bool) {
		var t trace.Trace
		for {
			err := next(&t)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&t, nil) {
				return
			}
		}
	}
}

// Close frees memory and disk space. It may be called at any time and more than once.
func (o *Offline) Close() error {
	o.arena, o.open, o.merge = arena{chunkSize: o.arena.chunkSize}, nil, nil
	return o.spill.close()
}

// order sorts the spans of traces, so that the result doesn't depend on the order of arrival. Its fields are buffers.
type order struct {
	perm   []int32 // index of each span before sorting
	attrAt []int32 // attributes of span i are attrs[attrAt[i]:attrAt[i+1]]; joinAt likewise
	joinAt []int32
	out    trace.Trace
}

// apply sorts the spans of t and adjusts its attributes and joins, which must be ascending by span.
func (o *order) apply(t *trace.Trace) {
	o.perm = o.perm[:0]
	for i := range t.Spans {
		o.perm = append(o.perm, int32(i))
	}
	o.attrAt = offsets(o.attrAt[:0], len(t.Spans), t.Attrs, func(a *trace.Attr) int32 { return a.Span })
	o.joinAt = offsets(o.joinAt[:0], len(t.Spans), t.Joins, func(j *trace.Join) int32 { return j.Span })
	slices.SortStableFunc(o.perm, func(i, j int32) int { return o.compare(t, i, j) })
	o.out.Reset()
	for k, i := range o.perm {
		o.out.Spans = append(o.out.Spans, t.Spans[i])
		for _, a := range t.Attrs[o.attrAt[i]:o.attrAt[i+1]] {
			a.Span = int32(k)
			o.out.Attrs = append(o.out.Attrs, a)
		}
		for _, j := range t.Joins[o.joinAt[i]:o.joinAt[i+1]] {
			j.Span = int32(k)
			o.out.Joins = append(o.out.Joins, j)
		}
	}
	o.out.ID = t.ID
	*t, o.out = o.out, *t
}

// offsets appends to at, for each of n spans, the index of its first element in s, followed by len(s). s must be
// ascending by span.
func offsets[T any](at []int32, n int, s []T, span func(*T) int32) []int32 {
	k := int32(0)
	for i := range int32(n) {
		for int(k) < len(s) && span(&s[k]) < i {
			k++
		}
		at = append(at, k)
	}
	return append(at, int32(len(s)))
}

func (o *order) compare(t *trace.Trace, i, j int32) int {
	a, b := &t.Spans[i], &t.Spans[j]
	if c := cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID)); c != 0 {
		return c
	}
	return cmp.Or( // duplicates and conflicts: rare
		cmp.Compare(a.End, b.End), cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Op, b.Op),
		cmp.Compare(a.Service, b.Service), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Tracepoint, b.Tracepoint),
		cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Flags, b.Flags),
		slices.CompareFunc(t.Attrs[o.attrAt[i]:o.attrAt[i+1]], t.Attrs[o.attrAt[j]:o.attrAt[j+1]], compareAttrs),
		slices.CompareFunc(t.Joins[o.joinAt[i]:o.joinAt[i+1]], t.Joins[o.joinAt[j]:o.joinAt[j+1]], compareJoins),
	)
}

func compareJoins(x, y trace.Join) int {
	return cmp.Or(cmp.Compare(x.Linked, y.Linked), trace.CompareBools(x.Message, y.Message))
}

func compareAttrs(x, y trace.Attr) int {
	return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Text, y.Text), cmp.Compare(x.Number, y.Number))
}
