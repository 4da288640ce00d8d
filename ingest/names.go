package ingest

import (
	"bytes"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the length of names and values. They bound the memory that hostile input can claim in a dictionary.
const (
	MaxName  = 4 << 10 // bytes of a service or span name; spans with a longer one are rejected as too large
	MaxValue = 1 << 10 // bytes of an attribute's key or value; longer ones are truncated
)

// maxValues bounds the attribute values whose text is stored. It is half of a full dictionary, so that values of high
// cardinality cannot crowd out the names of operations. Further values have a symbol but no text; reports show
// trace.Overflow.
const maxValues = trace.DefaultLimit / 2

// Numbers of cache entries: 256 KiB of operations and 128 KiB of values fit into the private cache of a core.
const (
	cachedOps    = 1 << 12 // sets of four operations; each set fills one cache line
	cachedValues = 1 << 14
)

// Names maps names to identities and adds them to a dictionary. It belongs to one decoder and is not safe for
// concurrent use.
type Names struct {
	Table *trace.Table

	ops    [cachedOps][4]cachedOp     // four-way associative; each set has the newest entry first
	stored [cachedValues]trace.Symbol // direct-mapped: valid values that are already stored
	buf    []byte
	values int
}

type cachedOp struct {
	key uint64 // hash of service, raw name and kind
	op  trace.Op
}

// Op returns the operation with the given service, raw span name and kind. The name may have any length; callers reject
// names longer than [MaxName].
func (n *Names) Op(service trace.Symbol, name []byte, kind trace.Kind) trace.Op {
	key := trace.Mix(uint64(service)+uint64(kind), xxhash.Sum64(name))
	if op, ok := n.cached(key); ok {
		return op
	}
	return n.newOp(key, service, name, kind)
}

// newOp adds the operation with the given name to the dictionary and, with the given key, to the cache.
func (n *Names) newOp(key uint64, service trace.Symbol, name []byte, kind trace.Kind) trace.Op {
	if n.buf == nil {
		n.buf = make([]byte, 0, 2*MaxName) // "1/2" becomes "{}/{}": at most twice as long
	}
	normal := trace.NormalName(clean(name, MaxName), n.buf)
	op := n.Table.Op(service, n.Table.SymbolBytes(normal), kind)
	n.cache(key, op)
	return op
}

// cached returns the operation in the cache with the given key.
func (n *Names) cached(key uint64) (trace.Op, bool) {
	line := &n.ops[key%cachedOps]
	for i := range line {
		if line[i].key == key {
			return line[i].op, true
		}
	}
	return 0, false
}

// cache adds an operation to the cache.
func (n *Names) cache(key uint64, op trace.Op) {
	line := &n.ops[key%cachedOps]
	copy(line[1:], line[:])
	line[0] = cachedOp{key, op}
}

// Symbol returns the symbol of a service name.
func (n *Names) Symbol(name []byte) trace.Symbol { return n.Table.SymbolBytes(clean(name, MaxName)) }

// Value returns the symbol of an attribute's key or value, truncated to [MaxValue] bytes.
func (n *Names) Value(text []byte) trace.Symbol {
	if len(text) > MaxValue {
		text = clean(text, MaxValue)
	}
	sym := trace.SymbolOf(text)
	if c := &n.stored[sym%cachedValues]; *c != sym {
		if valid := clean(text, MaxValue); len(valid) != len(text) || &valid[0] != &text[0] {
			return n.Value(valid)
		}
		n.store(sym, text)
		*c = sym
	}
	return sym
}

// store adds a value to the dictionary unless it already holds maxValues values.
func (n *Names) store(sym trace.Symbol, text []byte) {
	if n.values < maxValues && n.Table.Text(sym) == trace.Overflow {
		n.values++
		n.Table.SymbolBytes(text)
	}
}

// clean returns text truncated to at most limit bytes at a character boundary, with invalid UTF-8 replaced by U+FFFD.
// It allocates only for invalid text.
func clean(text []byte, limit int) []byte {
	if len(text) > limit {
		n := limit
		for n > limit-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	if utf8.Valid(text) {
		return text
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}
