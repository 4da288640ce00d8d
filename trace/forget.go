package trace

import (
	"encoding/binary"
	"iter"
	"maps"
	"math/bits"
	"slices"
)

// Renew starts a period. [Table.Forget] keeps the symbols and operations that were added in this or the previous
// period, whether or not they were already in the table.
func (t *Table) Renew() {
	if t.renewed == nil {
		t.renewed = &renewals{last: make(map[uint64]uint32)}
	}
	t.renewed.period++
	maps.DeleteFunc(t.renewed.last, func(_ uint64, period uint32) bool { return period+1 < t.renewed.period })
}

// renewals holds the symbols and operations that were added, or added again, in the last two periods.
type renewals struct {
	period uint32            // number of the current period, from 1
	last   map[uint64]uint32 // by identity: number of the latest period
}

func (r *renewals) add(id uint64) {
	if r != nil {
		r.last[id] = r.period
	}
}

// Forget deletes all entries except those mentioned by the encoded parts of a state and the recently added ones (see
// [Table.Renew]). It returns the number of deleted entries. It deletes nothing before the second call to Renew, or if
// parts yields an error, which it then returns. Forget takes time linear in the size of t and the parts.
//
// A part mentions an entry if it contains the entry's identity, either as a word of package codec or as a CBOR number,
// or if a mentioned entry refers to it. So we can't miss a field, regardless of the layout of the state. If bytes
// happen to equal a hash, we keep one name too many, which does no harm.
func (t *Table) Forget(parts iter.Seq2[[]byte, error]) (deleted int, err error) {
	if t.renewed == nil || t.renewed.period < 2 {
		return 0, nil
	}
	m := newMentions(t)
	for part, err := range parts {
		if err != nil {
			return 0, err
		}
		m.scan(part)
	}
	for id := range t.renewed.last {
		m.keep(id)
	}
	before := t.Len()
	t.text, t.ops = kept(m, &t.text), kept(m, &t.ops)
	t.contexts, t.edges = kept(m, &t.contexts), kept(m, &t.edges)
	t.measure()
	return before - t.Len(), nil
}

// kept returns the entries in `from` that are in m, in newly allocated memory.
func kept[K ~uint64, V any](m *mentions, from *entries[K, V]) entries[K, V] {
	some := make(map[K]V)
	for k, v := range from.all() {
		if m.has(uint64(k)) {
			some[k] = v
		}
	}
	return entries[K, V]{added: some}
}

// measure sets t.textBytes.
func (t *Table) measure() {
	t.textBytes = 0
	for _, s := range t.text.all() {
		t.textBytes += len(s)
	}
}

// Len returns the number of entries.
func (t *Table) Len() int { return t.text.len() + t.ops.len() + t.contexts.len() + t.edges.len() }

// Crowded reports whether more than three quarters of the room for any kind of entry, or for texts, is used.
func (t *Table) Crowded() bool {
	most := max(t.text.len()/textsPerName, t.ops.len(), t.contexts.len(), t.edges.len(), t.textBytes/bytesPerName)
	return most > t.limit()/4*3
}

// AppendMentioned is like [Table.AppendBinary], but encodes only the entries that an encoded state mentions; see
// [Table.Forget]. The result doesn't depend on other names that t has seen.
func (t *Table) AppendMentioned(b, state []byte) []byte {
	m := newMentions(t)
	m.scan(state)
	return t.appendBinary(b, m)
}

// mentions is a set of entries of a table, together with all entries that they refer to. Entries with equal identities
// are always in the set together.
type mentions struct {
	of *Table
	// slots is a hash table with the identities of all entries. It uses open addressing; at least half of the slots are
	// free, and hold 0.
	slots []uint64
	in    []bool   // by slot: whether the entries are in the set
	known []uint64 // bit set of identities, by their lowest bits: a fast path for words that are not identities
	stack []uint64 // scratch
	// recent caches mentioned identities, because the windows of a group mention its identities several times.
	recent [1 << 12]uint64
}

// newMentions returns an empty set of entries of t.
func newMentions(t *Table) *mentions {
	size := uint64(2) << bits.Len(uint(t.Len()))
	m := &mentions{
		of:    t,
		slots: make([]uint64, size),
		in:    make([]bool, size),
		known: make([]uint64, max(1, min(size*8, maxKnown)/64)),
	}
	index(m, &t.text)
	index(m, &t.ops)
	index(m, &t.contexts)
	index(m, &t.edges)
	return m
}

// maxKnown is the maximum number of bits in mentions.known: 2 MiB, which fits into a core's cache.
const maxKnown = 1 << 24

func index[K ~uint64, V any](m *mentions, from *entries[K, V]) {
	for k := range from.all() {
		x := uint64(k)
		m.slots[m.slot(x)] = x
		m.known[x/64%uint64(len(m.known))] |= 1 << (x % 64)
	}
}

// slot returns the slot that holds x, or the free slot where x belongs. It needs no hash function, because x is a hash.
func (m *mentions) slot(x uint64) uint64 {
	mask := uint64(len(m.slots) - 1)
	i := x >> 8 & mask // the lowest bits are used by known
	for m.slots[i] != x && m.slots[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// has reports whether the entry with identity x, which must exist, is in the set.
func (m *mentions) has(x uint64) bool { return m.in[m.slot(x)] }

// scan adds the entries that b mentions.
func (m *mentions) scan(b []byte) {
	for i := range max(0, len(b)-7) {
		x := binary.LittleEndian.Uint64(b[i:])
		if at := &m.recent[x%uint64(len(m.recent))]; m.mayKnow(x) && *at != x {
			*at = x
			m.keep(x)
		}
		if i > 0 && b[i-1] == cborUint64 {
			if x = bits.ReverseBytes64(x); m.mayKnow(x) {
				m.keep(x)
			}
		}
	}
}

// cborUint64 is the first byte of an eight-byte number in CBOR, which is big-endian (RFC 8949, section 3.1).
const cborUint64 = 0x1b

func (m *mentions) mayKnow(x uint64) bool {
	return m.known[x/64%uint64(len(m.known))]&(1<<(x%64)) != 0
}

// keep adds the entries with identity x, if any, and all entries that they refer to.
func (m *mentions) keep(x uint64) {
	t := m.of
	for m.stack = append(m.stack[:0], x); len(m.stack) > 0; {
		x := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		i := m.slot(x)
		if x == 0 || m.slots[i] != x || m.in[i] {
			continue
		}
		m.in[i] = true
		if o, ok := t.ops.get(Op(x)); ok {
			m.stack = append(m.stack, uint64(o.Service), uint64(o.Name), uint64(o.Target),
				uint64(OpOf(o.Service, o.Name, o.Kind)))
		}
		if c, ok := t.contexts.get(Context(x)); ok {
			m.stack = append(m.stack, uint64(c.Parent), uint64(c.Op))
		}
		if e, ok := t.edges.get(Edge(x)); ok {
			m.stack = append(m.stack, uint64(e.Context), uint64(e.Before), uint64(e.After))
		}
	}
}

// mentionedKeys returns the keys in m, ascending, or all keys if m is nil.
func mentionedKeys[K ~uint64, V any](m *mentions, of *entries[K, V]) []K {
	keys := make([]K, 0, of.len())
	for k := range of.all() {
		if m == nil || m.has(uint64(k)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}
