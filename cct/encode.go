package cct

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// ErrFormat is returned for bytes that no [Builder.AppendBinary] wrote.
var ErrFormat = errors.New("calling-context tree: bad encoding")

// Versions of the format, the first byte of an encoded builder.
const (
	withPoints    = 1 // had the catalogue in every builder
	formatVersion = 2 // written
)

// AppendBinary appends b's stable encoding to buf: equal builders give equal bytes. The error is always nil.
func (b *Builder) AppendBinary(buf []byte) ([]byte, error) {
	e := encoder{append(buf, formatVersion)}
	e.numbers(uint64(b.Limit), b.requests, b.refused, b.pruned, uint64(len(b.places)))
	for _, ctx := range sortedKeys(b.places) {
		e.place(ctx, b.places[ctx])
	}
	e.numbers(uint64(len(b.sets)))
	for _, h := range sortedKeys(b.sets) {
		e.set(b.sets[h])
	}
	e.numbers(uint64(len(b.before)))
	for _, tp := range sortedKeys(b.before) {
		e.word(uint64(tp))
		e.numbers(b.before[tp])
	}
	return e.buf, nil
}

// encoder writes hashes as fixed words and everything else as varints.
type encoder struct{ buf []byte }

func (e *encoder) word(x uint64) { e.buf = binary.LittleEndian.AppendUint64(e.buf, x) }

func (e *encoder) numbers(xs ...uint64) {
	for _, x := range xs {
		e.buf = binary.AppendUvarint(e.buf, x)
	}
}

func (e *encoder) signed(xs ...int64) {
	for _, x := range xs {
		e.buf = binary.AppendVarint(e.buf, x)
	}
}

func (e *encoder) place(ctx trace.Context, p *place) {
	e.word(uint64(ctx))
	e.word(uint64(p.parent))
	e.word(uint64(p.op))
	e.word(uint64(p.tp))
	e.signed(int64(p.seen))
	e.numbers(p.requests, p.hits, p.errors, uint64(len(p.witnesses)))
	for _, h := range p.witnesses {
		e.word(h)
	}
	e.numbers(p.history.N, p.history.Square)
	e.signed(p.history.Share, p.history.MeanTime)
	e.numbers(p.reference.N, p.reference.Sum, p.reference.SumSquares[0], p.reference.SumSquares[1])
}

func (e *encoder) set(s *set) {
	if s.all {
		e.numbers(0)
	} else {
		e.numbers(uint64(len(s.on)) + 1)
	}
	for _, tp := range s.on {
		e.word(uint64(tp))
	}
	e.numbers(s.requests)
	e.signed(int64(s.seen))
}

// Decode returns the builder that [Builder.AppendBinary] encoded, of this version or the one before, whose copy of the catalogue is
// left out. It returns nil and an error wrapping [ErrFormat] for anything else. It keeps nothing of data.
func Decode(data []byte) (*Builder, error) {
	d := decoder{data: data}
	if len(data) == 0 || data[0] != formatVersion && data[0] != withPoints {
		return nil, fmt.Errorf("%w: unknown version", ErrFormat)
	}
	d.data = d.data[1:]
	b := &Builder{Limit: int(d.upTo(1 << 30)), requests: d.number(), refused: d.number(), pruned: d.number()}
	d.places(b)
	if data[0] == withPoints {
		d.skipPoints()
	}
	d.sets(b)
	d.before(b)
	if d.bad || len(d.data) > 0 {
		return nil, fmt.Errorf("%w: truncated, or out of order", ErrFormat)
	}
	return b, nil
}

// decoder reads what encoder wrote. After the first fault it is bad and reads zeros.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) fail() { d.bad, d.data = true, nil }

func (d *decoder) word() uint64 {
	if len(d.data) < 8 {
		d.fail()
		return 0
	}
	x := binary.LittleEndian.Uint64(d.data)
	d.data = d.data[8:]
	return x
}

func (d *decoder) number() uint64 {
	x, n := binary.Uvarint(d.data)
	if n <= 0 || n > 1 && d.data[n-1] == 0 { // a shorter form exists: two encodings of one value
		d.fail()
		return 0
	}
	d.data = d.data[n:]
	return x
}

func (d *decoder) signed() int64 {
	x := d.number()
	return int64(x>>1) ^ -int64(x&1)
}

func (d *decoder) upTo(limit uint64) uint64 {
	x := d.number()
	if x > limit {
		d.fail()
		return 0
	}
	return x
}

// count returns a length of entries of at least size bytes each, which the rest of the data can hold.
func (d *decoder) count(size int) int { return int(d.upTo(uint64(len(d.data) / size))) }

// ascending reads a key that must be above the one before.
func (d *decoder) ascending(last *uint64, first bool) uint64 {
	x := d.word()
	if !first && x <= *last {
		d.fail()
	}
	*last = x
	return x
}

func (d *decoder) places(b *Builder) {
	n := d.count(43)
	b.places = make(map[trace.Context]*place, n)
	var last uint64
	for i := range n {
		ctx := trace.Context(d.ascending(&last, i == 0))
		b.places[ctx] = d.place()
		if d.bad {
			return
		}
	}
}

func (d *decoder) place() *place {
	p := &place{parent: trace.Context(d.word()), op: trace.Op(d.word()), tp: trace.Symbol(d.word()), seen: trace.Nanos(d.signed())}
	p.requests, p.hits, p.errors = d.number(), d.number(), d.number()
	var last uint64
	for i := range d.upTo(maxWitnesses) {
		p.witnesses = append(p.witnesses, d.ascending(&last, i == 0))
	}
	p.history = History{N: d.number(), Square: d.number(), Share: d.signed(), MeanTime: d.signed()}
	p.reference = Reference{N: d.number(), Sum: d.number(), SumSquares: [2]uint64{d.number(), d.number()}}
	return p
}

// skipPoints reads over entries of a catalogue: four hashes and six numbers each.
func (d *decoder) skipPoints() {
	for range d.count(38) {
		for range 4 {
			d.word()
		}
		for range 6 {
			d.number()
		}
		if d.bad {
			return
		}
	}
}

func (d *decoder) sets(b *Builder) {
	n := d.count(3)
	b.sets = make(map[uint64]*set, n)
	var last uint64
	for i := range n {
		s := d.set()
		h := setHash(s.on, s.all)
		if i > 0 && h <= last {
			d.fail()
		}
		if d.bad {
			return
		}
		last = h
		b.sets[h] = s
	}
}

func (d *decoder) set() *set {
	n := d.number()
	s := &set{all: n == 0}
	if n > uint64(len(d.data)/8)+1 {
		d.fail()
		return s
	}
	for range max(n, 1) - 1 {
		s.on = append(s.on, trace.Symbol(d.word()))
	}
	if !slices.IsSorted(s.on) {
		d.fail()
	}
	s.requests, s.seen = d.number(), trace.Nanos(d.signed())
	return s
}

func (d *decoder) before(b *Builder) {
	n := d.count(9)
	var last uint64
	for i := range n {
		tp := trace.Symbol(d.ascending(&last, i == 0))
		b.addBefore(tp, d.number())
		if d.bad {
			return
		}
	}
}
