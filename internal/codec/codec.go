// Package codec reads and writes the binary form of saved state. The form consists of fixed words, canonical varints
// and sections, in the order they are appended. The bytes do not describe their fields; a leading version byte
// identifies the layout.
//
// Every value has exactly one encoding, so that equal states give equal bytes. A [Reader] checks untrusted bytes:
// damaged bytes never make it panic or allocate more than a small multiple of their length.
package codec

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrCorrupt reports bytes that no encoder of this module has written. The errors of all decoders of saved state wrap
// it.
var ErrCorrupt = errors.New("corrupt encoding")

// AppendWords appends words of eight bytes each, little endian.
func AppendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// AppendUvarints appends unsigned varints of 1 to 10 bytes each.
func AppendUvarints(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// AppendUvarint128 appends the unsigned integer hi·2⁶⁴ + lo as a varint of 1 to 19 bytes. If hi is 0, the result is the
// same as with AppendUvarints.
func AppendUvarint128(b []byte, hi, lo uint64) []byte {
	for hi != 0 || lo >= 0x80 {
		b = append(b, byte(lo)|0x80)
		lo = lo>>7 | hi<<57
		hi >>= 7
	}
	return append(b, byte(lo))
}

// AppendVarints appends signed (zigzag) varints of 1 to 10 bytes each.
func AppendVarints(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// AppendFloats appends the bits of floats as words.
func AppendFloats(b []byte, floats ...float64) []byte {
	for _, f := range floats {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// AppendBools appends a byte, 0 or 1, for each flag.
func AppendBools(b []byte, flags ...bool) []byte {
	for _, f := range flags {
		if f {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// AppendText appends the length of s in bytes, followed by s.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// SectionSize is the size of the length that precedes a section.
const SectionSize = 8

// AppendSection appends the bytes appended by part, preceded by their length.
func AppendSection(b []byte, part func([]byte) []byte) []byte {
	at := len(b)
	b = part(append(b, make([]byte, SectionSize)...))
	binary.LittleEndian.PutUint64(b[at:], uint64(len(b)-at-SectionSize))
	return b
}

// Reader reads values from the front of untrusted bytes. After the first fault, every read returns the zero value, so
// that callers need to check [Reader.Err] only once at the end, and before they use a value as an index. The zero
// Reader reads no bytes. Slices that a Reader returns alias its input.
type Reader struct {
	rest []byte
	bad  bool
}

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Fail records a fault that the caller found in a value.
func (r *Reader) Fail() { r.rest, r.bad = nil, true }

// Check records a fault unless ok.
func (r *Reader) Check(ok bool) {
	if !ok {
		r.Fail()
	}
}

// Bad reports whether there was a fault.
func (r *Reader) Bad() bool { return r.bad }

// Err returns ErrCorrupt if there was a fault, and nil otherwise.
func (r *Reader) Err() error {
	if r.bad {
		return ErrCorrupt
	}
	return nil
}

// Rest returns the unread bytes, or nil after a fault.
func (r *Reader) Rest() []byte { return r.rest }

// Len returns the number of unread bytes.
func (r *Reader) Len() int { return len(r.rest) }

// Bytes reads n bytes. It returns nil after a fault.
func (r *Reader) Bytes(n int) []byte {
	if n < 0 || n > len(r.rest) || r.bad {
		r.Fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		r.Fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// Version reads the byte that identifies the layout, which must be one of known.
func (r *Reader) Version(known ...byte) byte {
	v := r.Byte()
	for _, k := range known {
		if v == k && !r.bad {
			return v
		}
	}
	r.Fail()
	return 0
}

// Word reads eight bytes, little endian.
func (r *Reader) Word() uint64 {
	if len(r.rest) < 8 {
		r.Fail()
		return 0
	}
	w := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return w
}

// Float reads a float64. Any bits are valid.
func (r *Reader) Float() float64 { return math.Float64frombits(r.Word()) }

// Finite reads a float64 that is neither NaN nor infinite.
func (r *Reader) Finite() float64 {
	f := r.Float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.Fail()
		return 0
	}
	return f
}

// Bool reads a byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	b := r.Byte()
	if b > 1 {
		r.Fail()
	}
	return b == 1
}

// Uvarint reads an unsigned varint in its shortest form. Any longer form is a fault.
func (r *Reader) Uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 { // most are one byte
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	var v uint64
	for i, c := range r.rest[:min(len(r.rest), binary.MaxVarintLen64)] {
		v |= uint64(c&0x7f) << (7 * i)
		if c >= 0x80 {
			continue
		}
		if c == 0 || i == binary.MaxVarintLen64-1 && c > 1 { // not the shortest form, or above 2⁶⁴ − 1
			break
		}
		r.rest = r.rest[i+1:]
		return v
	}
	r.Fail()
	return 0
}

// Uvarint128 reads a number written by AppendUvarint128. Any longer form is a fault.
func (r *Reader) Uvarint128() (hi, lo uint64) {
	for i, c := range r.rest {
		x := uint64(c & 0x7f)
		shift := uint(7 * i)
		if shift > 126 || shift == 126 && x > 3 || i > 0 && c == 0 {
			break
		}
		if shift < 64 {
			lo |= x << shift
			hi |= x >> (64 - shift) // adds 0 if shift is 0, because shifts by 64 give 0 in Go
		} else {
			hi |= x << (shift - 64)
		}
		if c < 0x80 {
			r.rest = r.rest[i+1:]
			return hi, lo
		}
	}
	r.Fail()
	return 0, 0
}

// Varint reads a signed varint.
func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Below reads an unsigned varint that must be less than limit.
func (r *Reader) Below(limit uint64) uint64 {
	n := r.Uvarint()
	if n >= limit {
		r.Fail()
		return 0
	}
	return n
}

// Count reads the number of entries that follow, each of at least size > 0 bytes. It is a fault if the unread bytes
// can't hold that many entries.
func (r *Reader) Count(size int) int { return int(r.Below(uint64(len(r.rest)/size) + 1)) }

// Text reads a string of at most limit bytes.
func (r *Reader) Text(limit int) string {
	return string(r.Bytes(int(r.Below(uint64(min(limit, len(r.rest))) + 1))))
}

// Section reads the bytes of a section written by AppendSection. It returns nil after a fault.
func (r *Reader) Section() []byte {
	n := r.Word()
	if n > uint64(len(r.rest)) {
		r.Fail()
		return nil
	}
	return r.Bytes(int(n))
}

// Read reads a value with decode, which also returns the remaining bytes. An error of decode is a fault.
func Read[T any](r *Reader, decode func([]byte) (T, []byte, error)) T {
	v, rest, err := decode(r.rest)
	if err != nil || r.bad {
		r.Fail()
		return v
	}
	r.rest = rest
	return v
}
