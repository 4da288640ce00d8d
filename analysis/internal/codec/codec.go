// Package codec writes and reads saved state: hashes and floats as fixed words, everything else as canonical varints.
package codec

import (
	"encoding/binary"
	"math"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// Writer appends values to B.
type Writer struct{ B []byte }

// NewWriter returns a Writer that appends to b.
func NewWriter(b []byte) *Writer { return &Writer{b} }

// Words appends words of eight bytes each, little endian.
func (e *Writer) Words(words ...uint64) {
	for _, w := range words {
		e.B = binary.LittleEndian.AppendUint64(e.B, w)
	}
}

// Floats appends the bits of floats as words.
func (e *Writer) Floats(floats ...float64) {
	for _, f := range floats {
		e.Words(math.Float64bits(f))
	}
}

// Hash appends h as two words.
func (e *Writer) Hash(h analysis.Hash) { e.Words(h.Hi, h.Lo) }

// Uvarints appends unsigned varints.
func (e *Writer) Uvarints(numbers ...uint64) {
	for _, n := range numbers {
		e.B = binary.AppendUvarint(e.B, n)
	}
}

// Times appends times as signed varints.
func (e *Writer) Times(times ...trace.Nanos) {
	for _, t := range times {
		e.B = binary.AppendVarint(e.B, int64(t))
	}
}

// Bools appends a byte, 0 or 1, for each flag.
func (e *Writer) Bools(flags ...bool) {
	for _, f := range flags {
		if f {
			e.B = append(e.B, 1)
		} else {
			e.B = append(e.B, 0)
		}
	}
}

// Text appends s with its length in bytes before it.
func (e *Writer) Text(s string) {
	e.Uvarints(uint64(len(s)))
	e.B = append(e.B, s...)
}

// Reader reads values off the front of untrusted bytes. After the first fault every read returns zero.
type Reader struct {
	rest []byte
	bad  bool
}

// Fail records a fault that the caller found in the values.
func (d *Reader) Fail() { d.rest, d.bad = nil, true }

// Bytes reads n bytes, which alias the input.
func (d *Reader) Bytes(n int) []byte {
	if n > len(d.rest) {
		d.Fail()
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// Version reads the byte that names the layout, which must be want.
func (d *Reader) Version(want byte) {
	if d.Bytes(1)[0] != want {
		d.Fail()
	}
}

// Word reads eight bytes, little endian.
func (d *Reader) Word() uint64 { return binary.LittleEndian.Uint64(d.Bytes(8)) }

// Float reads a float64; any bits are valid.
func (d *Reader) Float() float64 { return math.Float64frombits(d.Word()) }

// Finite reads a float that is neither NaN nor infinite.
func (d *Reader) Finite() float64 {
	f := d.Float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.Fail()
		return 0
	}
	return f
}

// Hash reads two words.
func (d *Reader) Hash() analysis.Hash { return analysis.Hash{Hi: d.Word(), Lo: d.Word()} }

// Bool reads a byte that must be 0 or 1.
func (d *Reader) Bool() bool {
	b := d.Bytes(1)[0]
	if b > 1 {
		d.Fail()
	}
	return b == 1
}

// Uvarint reads an unsigned varint and refuses any but its shortest form.
func (d *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 { // a longer form of the same number
		d.Fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// Below reads an unsigned varint that must be less than limit.
func (d *Reader) Below(limit uint64) uint64 {
	n := d.Uvarint()
	if n >= limit {
		d.Fail()
		return 0
	}
	return n
}

// Count reads the number of entries that follow, each of at least size bytes; the remaining bytes must be able to hold them.
func (d *Reader) Count(size int) int { return int(d.Below(uint64(len(d.rest)/size) + 1)) }

// Time reads a signed varint.
func (d *Reader) Time() trace.Nanos {
	u := d.Uvarint()
	return trace.Nanos(int64(u>>1) ^ -int64(u&1))
}

// Text reads a string.
func (d *Reader) Text() string { return string(d.Bytes(d.Count(1))) }

// Decode reads a value with decode, which returns it and the bytes behind it.
func Decode[T any](d *Reader, decode func([]byte) (T, []byte, error)) T {
	v, rest, err := decode(d.rest)
	if err != nil || d.bad {
		d.Fail()
		return v
	}
	d.rest = rest
	return v
}

// Ascending records a fault unless entry i of a list is the first or above the one before.
func (d *Reader) Ascending(i int, above bool) {
	if i > 0 && !above {
		d.Fail()
	}
}

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Bad reports whether there was a fault.
func (d *Reader) Bad() bool { return d.bad }

// Rest returns the bytes that were not read; nil after a fault.
func (d *Reader) Rest() []byte { return d.rest }
