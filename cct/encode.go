package cct

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// formatVersion is the first byte of an encoded builder.
const formatVersion = 1

// AppendBinary appends the encoding of b to buf. Equal builders have equal encodings.
func (b *Builder) AppendBinary(buf []byte) []byte {
	buf = append(buf, formatVersion)
	buf = codec.AppendUvarints(buf, uint64(b.Limit), b.requests, b.refused, b.pruned, uint64(len(b.places)))
	for _, ctx := range slices.Sorted(maps.Keys(b.places)) {
		buf = b.places[ctx].append(codec.AppendWords(buf, uint64(ctx)))
	}
	buf = codec.AppendUvarints(buf, uint64(len(b.sets)))
	for _, h := range slices.Sorted(maps.Keys(b.sets)) {
		buf = b.sets[h].append(buf)
	}
	buf = codec.AppendUvarints(buf, uint64(len(b.before)))
	for _, tp := range slices.Sorted(maps.Keys(b.before)) {
		buf = codec.AppendUvarints(codec.AppendWords(buf, uint64(tp)), b.before[tp])
	}
	return buf
}

func (p *place) append(buf []byte) []byte {
	buf = codec.AppendWords(buf, uint64(p.parent), uint64(p.op), uint64(p.tp))
	buf = codec.AppendVarints(buf, int64(p.seen))
	buf = codec.AppendUvarints(buf, p.requests, p.hits, p.errors, p.unanswered, uint64(len(p.witnesses)))
	buf = codec.AppendWords(buf, p.witnesses...)
	buf = codec.AppendUvarints(buf, p.history.N, p.history.Square)
	return codec.AppendVarints(buf, p.history.Share, p.history.MeanTime)
}

func (s *set) append(buf []byte) []byte {
	buf = codec.AppendUvarints(buf, uint64(len(s.on)))
	for _, tp := range s.on {
		buf = codec.AppendWords(buf, uint64(tp))
	}
	return codec.AppendVarints(codec.AppendUvarints(buf, s.requests), int64(s.seen))
}

// Decode decodes a builder encoded by [Builder.AppendBinary]. If data is anything else, it returns nil and an error
// wrapping [codec.ErrCorrupt]. It does not retain data.
func Decode(data []byte) (*Builder, error) {
	r := codec.NewReader(data)
	r.Version(formatVersion)
	limit := r.Below(1<<30 + 1)
	b := &Builder{Limit: int(limit), requests: r.Uvarint(), refused: r.Uvarint(), pruned: r.Uvarint()}
	decodePlaces(r, b)
	decodeSets(r, b)
	decodeBefore(r, b)
	r.Check(r.Len() == 0)
	if r.Bad() {
		return nil, fmt.Errorf("%w: calling-context tree", codec.ErrCorrupt)
	}
	return b, nil
}

// ascending reads a key and stores it in last. It records an error in r unless the key is the first one or greater than
// the previous value of last.
func ascending(r *codec.Reader, last *uint64, first bool) uint64 {
	x := r.Word()
	r.Check(first || x > *last)
	*last = x
	return x
}

func decodePlaces(r *codec.Reader, b *Builder) {
	n := r.Count(39)
	b.places = make(map[trace.Context]*place, n)
	var last uint64
	for i := range n {
		ctx := trace.Context(ascending(r, &last, i == 0))
		b.places[ctx] = decodePlace(r)
		if r.Bad() {
			return
		}
	}
}

func decodePlace(r *codec.Reader) *place {
	p := &place{
		parent: trace.Context(r.Word()),
		op:     trace.Op(r.Word()),
		tp:     trace.Symbol(r.Word()),
		seen:   trace.Nanos(r.Varint()),
	}
	p.requests, p.hits, p.errors, p.unanswered = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
	var last uint64
	for i := range r.Below(maxWitnesses + 1) {
		p.witnesses = append(p.witnesses, ascending(r, &last, i == 0))
	}
	p.history = History{N: r.Uvarint(), Square: r.Uvarint(), Share: r.Varint(), MeanTime: r.Varint()}
	return p
}

func decodeSets(r *codec.Reader, b *Builder) {
	n := r.Count(3)
	b.sets = make(map[uint64]*set, n)
	var last uint64
	for i := range n {
		s := decodeSet(r)
		h := setHash(s.on)
		r.Check(i == 0 || h > last)
		if r.Bad() {
			return
		}
		last = h
		b.sets[h] = s
	}
}

func decodeSet(r *codec.Reader) *set {
	s := &set{}
	for range r.Count(8) {
		s.on = append(s.on, trace.Symbol(r.Word()))
	}
	r.Check(slices.IsSorted(s.on))
	s.requests, s.seen = r.Uvarint(), trace.Nanos(r.Varint())
	return s
}

func decodeBefore(r *codec.Reader, b *Builder) {
	n := r.Count(9)
	var last uint64
	for i := range n {
		tp := trace.Symbol(ascending(r, &last, i == 0))
		b.addBefore(tp, r.Uvarint())
		if r.Bad() {
			return
		}
	}
}
