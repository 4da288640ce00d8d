// Package codec adds the types that statistics use, hashes and times, to package internal/codec.
package codec

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// ErrCorrupt is [codec.ErrCorrupt].
var ErrCorrupt = codec.ErrCorrupt

// Writer appends values to B.
type Writer struct{ B []byte }

// NewWriter returns a Writer that appends to b.
func NewWriter(b []byte) *Writer { return &Writer{b} }

// Words appends words of eight bytes each, in little-endian order.
func (w *Writer) Words(words ...uint64) { w.B = codec.AppendWords(w.B, words...) }

// Floats appends the bits of floats as words.
func (w *Writer) Floats(floats ...float64) { w.B = codec.AppendFloats(w.B, floats...) }

// Hash appends h as two words.
func (w *Writer) Hash(h analysis.Hash) { w.B = codec.AppendWords(w.B, h.Hi, h.Lo) }

// Uvarints appends unsigned varints.
func (w *Writer) Uvarints(numbers ...uint64) { w.B = codec.AppendUvarints(w.B, numbers...) }

// Times appends times as signed varints.
func (w *Writer) Times(times ...trace.Nanos) {
	for _, t := range times {
		w.B = codec.AppendVarints(w.B, int64(t))
	}
}

// Bools appends a byte, 0 or 1, for each flag.
func (w *Writer) Bools(flags ...bool) { w.B = codec.AppendBools(w.B, flags...) }

// Text appends the length of s in bytes, then s.
func (w *Writer) Text(s string) { w.B = codec.AppendText(w.B, s) }

// Reader reads values from the front of untrusted bytes; see [codec.Reader].
type Reader struct{ codec.Reader }

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader { return &Reader{*codec.NewReader(b)} }

// Hash reads two words.
func (r *Reader) Hash() analysis.Hash { return analysis.Hash{Hi: r.Word(), Lo: r.Word()} }

// Time reads a signed varint.
func (r *Reader) Time() trace.Nanos { return trace.Nanos(r.Varint()) }

// Text reads a string of any length.
func (r *Reader) Text() string { return r.Reader.Text(math.MaxInt) }

// Decode reads a value with decode, which returns the value and the bytes after it.
func Decode[T any](r *Reader, decode func([]byte) (T, []byte, error)) T {
	return codec.Read(&r.Reader, decode)
}

// Ascending records a fault if entry i of a list is not above its predecessor, as given by above. The first entry has
// no predecessor.
func (r *Reader) Ascending(i int, above bool) { r.Check(i == 0 || above) }
