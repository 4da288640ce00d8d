package trace

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

// Renew begins a period. [Table.Forget] keeps the symbols and operations that were added in this period or in the one
// before, whether or not they were in the table already.
func (t *Table) Renew() {
	if t.renewed == nil {
		t.renewed = &renewals{}
	}
	t.renewed.before, t.renewed.current = t.renewed.current, newAdded()
}

// renewals holds the entries that were added, or added again, in the last two periods.
type renewals struct{ before, current added }

type added struct {
	text map[Symbol]struct{}
	ops  map[Op]struct{}
}

func newAdded() added { return added{make(map[Symbol]struct{}), make(map[Op]struct{})} }

// Forget deletes all entries except those that the encoded parts of a state mention, and the symbols and operations
// that were added lately (see [Table.Renew]). It returns the number of deleted entries. It takes time linear in the
// size of t and of the parts. It deletes nothing before the third call of Renew, and if a part has an error, which it
// returns.
//
// A part mentions an entry if its identity is in the bytes, as a word of package codec or a number of CBOR, or if a
// mentioned entry refers to it. So no field can be overlooked, whatever the layout of the state. Bytes that equal a
// hash by chance keep a name too many, which does no harm.
func (t *Table) Forget(parts iter.Seq2[[]byte, error]) (deleted int, err error) {
	if t.renewed == nil || t.renewed.before.text == nil {
		return 0, nil
	}
	kept, err := t.mentioned(parts)
	if err != nil {
		return 0, err
	}
	for _, period := range []added{t.renewed.before, t.renewed.current} {
		for sym := range period.text {
			kept.keepText(sym)
		}
		for op := range period.ops {
			kept.keepOp(op)
		}
	}
	before := t.Len()
	t.text, t.ops, t.contexts, t.edges = kept.text, kept.ops, kept.contexts, kept.edges
	return before - t.Len(), nil
}

// Len returns the number of entries.
func (t *Table) Len() int { return len(t.text) + len(t.ops) + len(t.contexts) + len(t.edges) }

// Crowded reports whether less than a quarter of the room for entries of a kind is left.
func (t *Table) Crowded() bool {
	return max(len(t.text), len(t.ops), len(t.contexts), len(t.edges)) > t.limit()/4*3
}

// AppendMentioned appends to b the entries that an encoded state mentions (see [Table.Forget]), as [Table.AppendBinary]
// does. The bytes do not depend on the other names that t has seen.
func (t *Table) AppendMentioned(b, state []byte) []byte {
	kept, _ := t.mentioned(func(yield func([]byte, error) bool) { yield(state, nil) }) // without errors
	kept.refused = t.refused
	return kept.AppendBinary(b)
}

// selection is a table under construction with entries of another one. For each entry it has those that the entry
// refers to.
type selection struct {
	*Table
	from *Table
}

// mentioned returns the entries that the encoded parts of a state mention (see [Table.Forget]).
func (t *Table) mentioned(parts iter.Seq2[[]byte, error]) (*selection, error) {
	s := &selection{&Table{
		text: make(map[Symbol]string), ops: make(map[Op]Operation), contexts: make(map[Context]ContextInfo), edges: make(map[Edge]EdgeInfo),
	}, t}
	known := newHashFilter(t.Len())
	for k := range t.text {
		known.add(uint64(k))
	}
	for k := range t.ops {
		known.add(uint64(k))
	}
	for k := range t.contexts {
		known.add(uint64(k))
	}
	for k := range t.edges {
		known.add(uint64(k))
	}
	for part, err := range parts {
		if err != nil {
			return nil, err
		}
		s.scan(part, &known)
	}
	return s, nil
}

// scan adds the entries that b mentions. All entries are known.
func (s *selection) scan(b []byte, known *hashFilter) {
	for i := range max(0, len(b)-7) {
		x := binary.LittleEndian.Uint64(b[i:])
		if known.has(x) {
			s.keep(x)
		}
		if i > 0 && b[i-1] == cborUint64 {
			if x = bits.ReverseBytes64(x); known.has(x) {
				s.keep(x)
			}
		}
	}
}

// cborUint64 is the first byte of a number of eight bytes in CBOR, which are big-endian (RFC 8949, section 3.1).
const cborUint64 = 0x1b

// keep adds the entries with the identity x.
func (s *selection) keep(x uint64) {
	s.keepText(Symbol(x))
	s.keepOp(Op(x))
	s.keepContext(Context(x))
	e := Edge(x)
	if info, ok := s.from.edges[e]; ok && isNew(s.edges, e) {
		s.edges[e] = info
		s.keepContext(info.Context)
		s.keepOp(info.Before)
		s.keepOp(info.After)
	}
}

func (s *selection) keepText(sym Symbol) {
	if text, ok := s.from.text[sym]; ok {
		s.text[sym] = text
	}
}

// keepOp adds an operation or a step, with its operation without the target.
func (s *selection) keepOp(op Op) {
	for op != 0 && isNew(s.ops, op) {
		o, ok := s.from.ops[op]
		if !ok {
			return
		}
		s.ops[op] = o
		s.keepText(o.Service)
		s.keepText(o.Name)
		if o.Target != 0 {
			s.keepOp(OpOf(o.Service, o.Name, o.Kind))
		}
		op = o.Target
	}
}

// keepContext adds a context and those above it.
func (s *selection) keepContext(c Context) {
	for c != 0 && isNew(s.contexts, c) {
		info, ok := s.from.contexts[c]
		if !ok {
			return
		}
		s.contexts[c] = info
		s.keepOp(info.Op)
		c = info.Parent
	}
}

func isNew[K comparable, V any](m map[K]V, k K) bool {
	_, known := m[k]
	return !known
}

// hashFilter is a set of hashes that may contain further ones: it compares their low bits only.
type hashFilter struct {
	set  []uint64
	mask uint64
}

// newHashFilter returns an empty filter that fewer than one in 32 hashes pass if it holds n.
func newHashFilter(n int) hashFilter {
	size := uint64(1) << min(26, 6+bits.Len(uint(n)))
	return hashFilter{make([]uint64, size/64), size - 1}
}

func (f *hashFilter) add(x uint64) {
	x &= f.mask
	f.set[x/64] |= 1 << (x % 64)
}

func (f *hashFilter) has(x uint64) bool {
	x &= f.mask
	return f.set[x/64]&(1<<(x%64)) != 0
}
