package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"
)

// hashDigits is the length of a hash.
const hashDigits = 32

// HashCatalogue returns the hash of a catalogue, 32 hexadecimal digits. The order of the tracepoints matters: it is that of
// the pages, ascending by ID.
func HashCatalogue(tracepoints []Tracepoint) string {
	e := newEncoder("sibyl catalogue 1")
	e.number(uint64(len(tracepoints)))
	for i := range tracepoints {
		t := &tracepoints[i]
		for _, s := range []string{t.ID, string(t.Layer), string(t.Kind), t.Service, t.Scope, t.Operation, string(t.SpanKind), t.Code, t.Parent, t.Owner, string(t.OwnerKind)} {
			e.text(s)
		}
		e.number(uint64(t.CostNanos))
		e.number(uint64(t.Bytes))
		e.flag(t.Baseline)
	}
	return e.sum()
}

// HashPlan returns the hash of everything in p but its field Hash, 32 hexadecimal digits.
func HashPlan(p *Plan) string {
	e := newEncoder("sibyl plan 1")
	e.number(uint64(p.Version))
	e.number(uint64(p.LeaseSeconds))
	e.number(uint64(len(p.Filters)))
	for i := range p.Filters {
		e.filter(&p.Filters[i])
	}
	e.number(uint64(len(p.Arms)))
	for i := range p.Arms {
		e.arm(&p.Arms[i])
	}
	return e.sum()
}

// encoder hashes the canonical encoding of a message, the fields in the order of their declaration: numbers as unsigned
// varints; texts as their length and their bytes; fractions as the 8 bytes, big-endian, of their IEEE 754 form; flags as one
// byte; lists and maps as their length and their elements, those of maps ascending by key. First of all comes a text that says
// what it is.
type encoder struct {
	hash hash.Hash
	buf  []byte
}

func newEncoder(what string) *encoder {
	e := &encoder{hash: sha256.New()}
	e.text(what)
	return e
}

func (e *encoder) filter(f *Filter) {
	e.text(f.Service)
	e.text(f.Operation)
	e.text(string(f.SpanKind))
	e.number(uint64(len(f.Attributes)))
	keys := make([]string, 0, len(f.Attributes))
	for k := range f.Attributes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		e.text(k)
		e.text(f.Attributes[k])
	}
}

func (e *encoder) arm(a *Arm) {
	e.text(a.Name)
	e.fraction(a.Share)
	e.flag(a.Everything)
	e.number(uint64(len(a.Tracepoints)))
	for i := range a.Tracepoints {
		t := &a.Tracepoints[i]
		e.text(t.ID)
		e.fraction(t.Rate)
		e.number(uint64(t.Filter))
	}
}

func (e *encoder) number(n uint64) { e.write(binary.AppendUvarint(e.buf[:0], n)) }

func (e *encoder) fraction(x float64) {
	e.write(binary.BigEndian.AppendUint64(e.buf[:0], math.Float64bits(x)))
}

func (e *encoder) flag(b bool) {
	n := uint64(0)
	if b {
		n = 1
	}
	e.number(n)
}

func (e *encoder) text(s string) {
	e.write(append(binary.AppendUvarint(e.buf[:0], uint64(len(s))), s...))
}

func (e *encoder) write(b []byte) {
	e.buf = b
	_, _ = e.hash.Write(b) // a hash.Hash never returns an error
}

func (e *encoder) sum() string { return hex.EncodeToString(e.hash.Sum(nil))[:hashDigits] }
