package assemble

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/sibyl-trace/sibyl/trace"
)

// ref is a position in an arena: chunk<<32 | offset.
type ref uint64

// arena holds the fragments of open traces in large chunks without pointers, so that the cost of garbage collection
// does not grow with the number of open spans.
type arena struct {
	chunkSize int
	chunks    [][]byte
	bytes     int64 // total capacity of all chunks
}

// Sizes of the parts of a fragment.
const (
	linkSize   = 8  // for the position of the trace's next fragment; in memory only
	headerSize = 12 // for the counts of spans, attributes and joins
	spanSize   = 9*8 + 4 + 2
	attrSize   = 3*8 + 4 + 1
	joinSize   = 4 + 8 + 1
)

// fragment is the part of a trace in one batch. The Span fields of its attributes and joins are indexes in that batch.
// The fragment's spans start at index base of the batch.
type fragment struct {
	base  int32
	spans []trace.Span
	attrs []trace.Attr
	joins []trace.Join
}

func (f *fragment) size() int {
	return headerSize + len(f.spans)*spanSize + len(f.attrs)*attrSize + len(f.joins)*joinSize
}

// put encodes f at the end of the arena and returns its position.
func (a *arena) put(f *fragment) ref {
	need := linkSize + f.size()
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < need {
		chunk := make([]byte, 0, max(a.chunkSize, need))
		a.chunks = append(a.chunks, chunk)
		a.bytes += int64(cap(chunk))
		last++
	}
	at := ref(last)<<32 | ref(len(a.chunks[last]))
	a.chunks[last] = f.append(append(a.chunks[last], make([]byte, linkSize)...))
	return at
}

// link makes next the successor of the fragment at r.
func (a *arena) link(r, next ref) {
	binary.LittleEndian.PutUint64(a.chunks[r>>32][uint32(r):], uint64(next)+1) // 0 means that there is no next fragment
}

// at returns the encoded fragment at r and the position of its successor. more is false if there is no successor.
func (a *arena) at(r ref) (data []byte, next ref, more bool) {
	data = a.chunks[r>>32][uint32(r):]
	n := binary.LittleEndian.Uint64(data)
	data = data[linkSize:]
	return data[:encodedSize(data)], ref(n - 1), n != 0
}

// reset empties the arena. It keeps one chunk of the usual size for reuse.
func (a *arena) reset() {
	kept := a.chunks[:0]
	a.bytes = 0
	for _, c := range a.chunks {
		if cap(c) == a.chunkSize && len(kept) == 0 {
			kept = append(kept, c[:0])
			a.bytes += int64(cap(c))
		}
	}
	clear(a.chunks[len(kept):])
	a.chunks = kept
}

func (f *fragment) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(f.spans)))
	b = le.AppendUint32(b, uint32(len(f.attrs)))
	b = le.AppendUint32(b, uint32(len(f.joins)))
	for i := range f.spans {
		n := len(b)
		b = append(b, make([]byte, spanSize)...)
		putSpan(b[n:], &f.spans[i])
	}
	for i := range f.attrs {
		a := &f.attrs[i]
		b = le.AppendUint64(b, uint64(a.Key))
		b = le.AppendUint64(b, uint64(a.Text))
		b = le.AppendUint64(b, math.Float64bits(a.Number))
		b = le.AppendUint32(b, uint32(a.Span-f.base))
		b = append(b, flag(a.Numeric))
	}
	for i := range f.joins {
		j := &f.joins[i]
		b = le.AppendUint32(b, uint32(j.Span-f.base))
		b = le.AppendUint64(b, uint64(j.Linked))
		b = append(b, flag(j.Message))
	}
	return b
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// putSpan encodes s into the first spanSize bytes of b.
func putSpan(b []byte, s *trace.Span) {
	le := binary.LittleEndian
	_ = b[spanSize-1]
	le.PutUint64(b, uint64(s.ID))
	le.PutUint64(b[8:], uint64(s.Parent))
	le.PutUint64(b[16:], uint64(s.Start))
	le.PutUint64(b[24:], uint64(s.End))
	le.PutUint64(b[32:], uint64(s.Op))
	le.PutUint64(b[40:], uint64(s.Service))
	le.PutUint64(b[48:], uint64(s.Host))
	le.PutUint64(b[56:], uint64(s.Tracepoint))
	le.PutUint64(b[64:], uint64(s.Peer))
	le.PutUint32(b[72:], uint32(s.Address))
	b[76], b[77] = byte(s.Kind), byte(s.Flags)
}

// getSpan decodes the first spanSize bytes of b.
func getSpan(b []byte) trace.Span {
	le := binary.LittleEndian
	_ = b[spanSize-1]
	return trace.Span{
		ID:         trace.SpanID(le.Uint64(b)),
		Parent:     trace.SpanID(le.Uint64(b[8:])),
		Start:      trace.Nanos(le.Uint64(b[16:])),
		End:        trace.Nanos(le.Uint64(b[24:])),
		Op:         trace.Op(le.Uint64(b[32:])),
		Service:    trace.Symbol(le.Uint64(b[40:])),
		Host:       trace.Symbol(le.Uint64(b[48:])),
		Tracepoint: trace.Symbol(le.Uint64(b[56:])),
		Peer:       trace.Op(le.Uint64(b[64:])),
		Address:    trace.Address(le.Uint32(b[72:])),
		Kind:       trace.Kind(b[76]),
		Flags:      trace.Flags(b[77]),
	}
}

// encodedSize returns the encoded size of the fragment at the start of b, which must contain its header.
func encodedSize(b []byte) int {
	le := binary.LittleEndian
	return headerSize + int(le.Uint32(b))*spanSize + int(le.Uint32(b[4:]))*attrSize + int(le.Uint32(b[8:]))*joinSize
}

// errCorrupt is returned if data read back from disk can't be the data that was written.
var errCorrupt = errors.New("the temporary file was modified by another process")

// errTraceSize is returned for a trace with more spans, attributes or joins than an int32 can index.
var errTraceSize = errors.New("more than 2147483647 spans or attributes in one trace")

// decodeAll appends the fragments in b to t. It returns errCorrupt if b ends within a fragment, and errTraceSize if t
// becomes too large.
func decodeAll(b []byte, t *trace.Trace) error {
	for len(b) > 0 {
		if len(b) < headerSize || len(b) < encodedSize(b) {
			return errCorrupt
		}
		n := encodedSize(b)
		decode(b[:n], t)
		b = b[n:]
	}
	if max(len(t.Spans), len(t.Attrs), len(t.Joins)) > math.MaxInt32 {
		return errTraceSize
	}
	return nil
}

// decode appends the fragment in b to t.
func decode(b []byte, t *trace.Trace) {
	le := binary.LittleEndian
	base := int32(len(t.Spans))
	spans, attrs, joins := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	b = b[headerSize:]
	for ; spans > 0; spans-- {
		t.Spans = append(t.Spans, getSpan(b))
		b = b[spanSize:]
	}
	for ; attrs > 0; attrs-- {
		t.Attrs = append(t.Attrs, trace.Attr{
			Key:     trace.Symbol(le.Uint64(b)),
			Text:    trace.Symbol(le.Uint64(b[8:])),
			Number:  math.Float64frombits(le.Uint64(b[16:])),
			Span:    base + int32(le.Uint32(b[24:])),
			Numeric: b[28] != 0,
		})
		b = b[attrSize:]
	}
	for ; joins > 0; joins-- {
		t.Joins = append(t.Joins, trace.Join{
			Span: base + int32(le.Uint32(b)), Linked: trace.SpanID(le.Uint64(b[4:])), Message: b[12] != 0,
		})
		b = b[joinSize:]
	}
}
