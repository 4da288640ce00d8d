package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"
)

// hashDigits is the length of a hash in hexadecimal digits.
const hashDigits = 32

// HashCatalogue returns the hash of a catalogue, 32 hexadecimal digits. The tracepoints must be in catalogue order; see
// [SortCatalogue].
func HashCatalogue(tracepoints []Tracepoint) string {
	e := newEncoder("sibyl catalogue 1")
	e.integer(uint64(len(tracepoints)))
	for i := range tracepoints {
		t := &tracepoints[i]
		for _, s := range []string{
			t.ID, string(t.Layer), string(t.Kind), t.Service, t.Scope, t.Operation, string(t.SpanKind),
			t.Code, t.Parent, t.Owner, string(t.OwnerKind),
		} {
			e.string(s)
		}
		e.integer(uint64(t.CostNanos))
		e.integer(uint64(t.Bytes))
		e.boolean(t.Baseline)
	}
	return e.sum()
}

// HashPlan returns the hash, 32 hexadecimal digits, of all fields of p except Protocol and Hash.
func HashPlan(p *Plan) string {
	e := newEncoder("sibyl plan 1")
	e.integer(uint64(p.Version))
	e.integer(uint64(p.LeaseSeconds))
	e.integer(uint64(len(p.Filters)))
	for i := range p.Filters {
		e.filter(&p.Filters[i])
	}
	e.integer(uint64(len(p.Arms)))
	for i := range p.Arms {
		e.arm(&p.Arms[i])
	}
	return e.sum()
}

// encoder hashes the canonical encoding of a message. The encoding starts with a string that names the message type and
// holds the fields in the order of their declaration:
//   - integers as unsigned varints,
//   - strings as their length and their bytes,
//   - floating-point numbers as their IEEE 754 bits, 8 bytes, big-endian,
//   - booleans as one byte,
//   - lists and maps as their length and their elements; map elements ascend by key.
type encoder struct {
	hash hash.Hash
	buf  []byte
}

func newEncoder(messageType string) *encoder {
	e := &encoder{hash: sha256.New()}
	e.string(messageType)
	return e
}

func (e *encoder) filter(f *Filter) {
	e.string(f.Service)
	e.string(f.Operation)
	e.string(string(f.SpanKind))
	e.integer(uint64(len(f.Attributes)))
	keys := make([]string, 0, len(f.Attributes))
	for k := range f.Attributes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		e.string(k)
		e.string(f.Attributes[k])
	}
}

func (e *encoder) arm(a *Arm) {
	e.string(a.Name)
	e.float(a.Share)
	e.integer(uint64(len(a.Tracepoints)))
	for i := range a.Tracepoints {
		t := &a.Tracepoints[i]
		e.string(t.ID)
		e.float(t.Rate)
		e.integer(uint64(t.Filter))
	}
}

func (e *encoder) integer(n uint64) { e.write(binary.AppendUvarint(e.buf[:0], n)) }

func (e *encoder) float(x float64) {
	e.write(binary.BigEndian.AppendUint64(e.buf[:0], math.Float64bits(x)))
}

func (e *encoder) boolean(b bool) {
	n := uint64(0)
	if b {
		n = 1
	}
	e.integer(n)
}

func (e *encoder) string(s string) {
	e.write(append(binary.AppendUvarint(e.buf[:0], uint64(len(s))), s...))
}

func (e *encoder) write(b []byte) {
	e.buf = b
	_, _ = e.hash.Write(b) // hash.Hash.Write never returns an error
}

func (e *encoder) sum() string { return hex.EncodeToString(e.hash.Sum(nil))[:hashDigits] }
