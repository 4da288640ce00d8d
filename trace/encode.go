package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// ErrCorrupt says that bytes were not written by the encoder of this package.
var ErrCorrupt = errors.New("trace: corrupt encoding")

const tableVersion = 1

// AppendBinary appends t to b, without its limit: the same bytes for the same entries. It is deterministic and takes time O(n log n).
func (t *Table) AppendBinary(b []byte) []byte {
	b = append(b, tableVersion)
	b = binary.AppendUvarint(b, uint64(t.refused))
	b = appendEntries(b, t.text, func(b []byte, s string) []byte {
		return append(binary.AppendUvarint(b, uint64(len(s))), s...)
	})
	b = appendEntries(b, t.ops, func(b []byte, o Operation) []byte {
		return append(appendWords(b, uint64(o.Service), uint64(o.Name)), byte(o.Kind))
	})
	b = appendEntries(b, t.contexts, func(b []byte, c ContextInfo) []byte {
		return appendWords(b, uint64(c.Parent), uint64(c.Op))
	})
	return appendEntries(b, t.edges, func(b []byte, e EdgeInfo) []byte {
		return appendWords(b, uint64(e.Context), uint64(e.Before), uint64(e.After), uint64(e.Callee))
	})
}

func appendEntries[K ~uint64, V any](b []byte, m map[K]V, value func([]byte, V) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = value(appendWords(b, uint64(k)), m[k])
	}
	return b
}

func appendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// DecodeTable returns the Table that AppendBinary wrote, of the given limit (0: DefaultLimit), and the bytes behind it. Bytes with more
// entries, or that AppendBinary cannot have written, give ErrCorrupt. It keeps nothing of b.
func DecodeTable(b []byte, limit int) (*Table, []byte, error) {
	d := &tableDecoder{rest: b, limit: cmp.Or(limit, DefaultLimit)}
	if d.take(1)[0] != tableVersion {
		return nil, nil, ErrCorrupt
	}
	t := &Table{Limit: limit, refused: int(d.below(1 << 62))}
	decodeEntries(d, 9, &t.text, func() string { return string(d.take(int(d.below(uint64(len(d.rest)) + 1)))) })
	decodeEntries(d, 25, &t.ops, func() Operation {
		return Operation{Symbol(d.word()), Symbol(d.word()), Kind(d.take(1)[0])}
	})
	decodeEntries(d, 24, &t.contexts, func() ContextInfo { return ContextInfo{Context(d.word()), Op(d.word())} })
	decodeEntries(d, 40, &t.edges, func() EdgeInfo {
		return EdgeInfo{Context(d.word()), Op(d.word()), Op(d.word()), Op(d.word())}
	})
	for sym, s := range t.text {
		d.bad = d.bad || symbolOf(s) != sym
	}
	for op, o := range t.ops {
		d.bad = d.bad || o.Kind > Consumer || OpOf(o.Service, o.Name, o.Kind) != op
	}
	if d.bad {
		return nil, nil, ErrCorrupt
	}
	return t, d.rest, nil
}

// tableDecoder reads untrusted bytes. Once it is bad, everything reads as 0.
type tableDecoder struct {
	rest  []byte
	limit int
	bad   bool
}

func (d *tableDecoder) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.rest, d.bad = nil, true
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *tableDecoder) word() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *tableDecoder) below(limit uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 || v >= limit { // or a longer form of the same number
		d.rest, d.bad = nil, true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// decodeEntries reads entries of at least size bytes each, ascending, into a map of its own.
func decodeEntries[K ~uint64, V any](d *tableDecoder, size int, into *map[K]V, value func() V) {
	n := d.below(uint64(min(d.limit, len(d.rest)/size)) + 1)
	m := make(map[K]V, n)
	*into = m
	var before K
	for i := range n {
		k := K(d.word())
		v := value()
		if d.bad || i > 0 && k <= before {
			d.bad = true
			return
		}
		before, m[k] = k, v
	}
}
