package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// tableVersion is the first byte of an encoded [Table].
const tableVersion = 1

// AppendBinary appends an encoding of t, without its limit, to b. Tables with equal entries have equal encodings. It
// takes O(n log n) time for n entries.
func (t *Table) AppendBinary(b []byte) []byte { return t.appendBinary(b, nil) }

// appendBinary is like AppendBinary, but encodes only the entries in m, unless m is nil.
func (t *Table) appendBinary(b []byte, m *mentions) []byte {
	b = append(b, tableVersion)
	b = binary.AppendUvarint(b, uint64(t.refused))
	b = appendEntries(b, m, &t.text, codec.AppendText)
	b = appendEntries(b, m, &t.ops, func(b []byte, o Operation) []byte {
		return append(codec.AppendWords(b, uint64(o.Service), uint64(o.Name), uint64(o.Target)), byte(o.Kind))
	})
	b = appendEntries(b, m, &t.contexts, func(b []byte, c ContextInfo) []byte {
		return codec.AppendWords(b, uint64(c.Parent), uint64(c.Op))
	})
	return appendEntries(b, m, &t.edges, func(b []byte, e EdgeInfo) []byte {
		return codec.AppendWords(b, uint64(e.Context), uint64(e.Before), uint64(e.After))
	})
}

// EncodedSize returns an upper bound on the number of bytes that AppendBinary and AppendMentioned append.
func (t *Table) EncodedSize() int {
	n := 1 + 5*binary.MaxVarintLen64
	for _, s := range t.text.all() {
		n += 8 + binary.MaxVarintLen64 + len(s)
	}
	return n + 33*t.ops.len() + 24*t.contexts.len() + 32*t.edges.len()
}

func appendEntries[K ~uint64, V any](b []byte, m *mentions, of *entries[K, V], value func([]byte, V) []byte) []byte {
	keys := mentionedKeys(m, of)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		v, _ := of.get(k)
		b = value(codec.AppendWords(b, uint64(k)), v)
	}
	return b
}

// DecodeTable decodes a Table encoded by [Table.AppendBinary], and returns it with the bytes that follow it. limit
// becomes the limit of the table; 0 means [DefaultLimit]. DecodeTable returns an error wrapping [codec.ErrCorrupt] if b
// doesn't start with a table or the table has more entries than limit. It does not retain b.
func DecodeTable(b []byte, limit int) (*Table, []byte, error) {
	r := codec.NewReader(b)
	r.Version(tableVersion)
	limit = cmp.Or(limit, DefaultLimit)
	t := &Table{Limit: limit, refused: int(r.Below(1 << 62))}
	decodeEntries(r, textsPerName*limit, 9, &t.text.added, func() string { return r.Text(math.MaxInt) })
	decodeEntries(r, limit, 33, &t.ops.added, func() Operation {
		return Operation{Service: Symbol(r.Word()), Name: Symbol(r.Word()), Target: Op(r.Word()), Kind: Kind(r.Byte())}
	})
	decodeEntries(r, limit, 24, &t.contexts.added,
		func() ContextInfo { return ContextInfo{Context(r.Word()), Op(r.Word())} })
	decodeEntries(r, limit, 32, &t.edges.added,
		func() EdgeInfo { return EdgeInfo{Context(r.Word()), Op(r.Word()), Op(r.Word())} })
	for sym, s := range t.text.all() {
		r.Check(symbolOf(s) == sym)
	}
	for op, o := range t.ops.all() {
		r.Check(o.Kind <= External && o.id() == op)
	}
	if r.Bad() {
		return nil, nil, fmt.Errorf("%w: table", codec.ErrCorrupt)
	}
	t.measure()
	return t, r.Rest(), nil
}

// decodeEntries reads at most limit entries, of at least size bytes each, into a new map. Keys must be ascending.
func decodeEntries[K ~uint64, V any](r *codec.Reader, limit, size int, into *map[K]V, value func() V) {
	n := r.Below(uint64(min(limit, r.Len()/size)) + 1)
	m := make(map[K]V, n)
	*into = m
	var before K
	for i := range n {
		k := K(r.Word())
		v := value()
		r.Check(i == 0 || k > before)
		if r.Bad() {
			return
		}
		before, m[k] = k, v
	}
}
