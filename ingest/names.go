package ingest

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the length of names and values. They bound the memory that hostile input can use in a dictionary.
const (
	MaxName  = 4 << 10 // bytes of a service or span name; longer names are shortened
	MaxValue = 1 << 10 // bytes of an attribute's key or value; longer texts are truncated
)

// valuesShare is the inverse of the fraction of a dictionary that attribute values may fill. Each key has an equal
// share of that room, so that values of high cardinality don't crowd out the names of operations or the values of other
// keys. Further values have a symbol but no text; reports show [trace.Overflow] for them.
const valuesShare = 2

// Keys of texts that are not attributes in Keys, for [Names.Value]. They follow the results of Keys.Find.
const (
	versions = unnamed + 1 + iota
	hosts
	unnamedKeys // the unnamed keys themselves; their values are stored under unnamed
	valueKinds
)

// Numbers of cache entries. 256 KiB of operations and 128 KiB of values fit into the private cache of a CPU core.
const (
	cachedOps    = 1 << 12 // sets of four operations; each set fills one cache line
	cachedValues = 1 << 14
)

// Names maps names to identities and adds them to a dictionary. It belongs to one decoder and is not safe for
// concurrent use.
type Names struct {
	Table *trace.Table

	ops    [cachedOps][4]cachedOp     // four-way associative; newest entry of a set first
	stored [cachedValues]trace.Symbol // direct-mapped; valid values that are already stored
	buf    []byte
	most   int                // maximum number of stored values of a key; 0 means all of the room for values
	values [valueKinds]int    // number of stored values, by key
	beyond [valueKinds]uint64 // number of occurrences of values that were not stored, by key
}

// newNames returns empty Names with the room for values divided equally among keys.
func newNames(table *trace.Table, keys *Keys) Names {
	return Names{Table: table, most: table.Room() / valuesShare / (len(keys.names) + valueKinds - unnamed)}
}

// room returns the maximum number of values of key in the dictionary. For unnamed, which stands for many keys, it
// returns all of the room for values.
func (n *Names) room(key int) int {
	if n.most == 0 || key == unnamed {
		return n.Table.Room() / valuesShare
	}
	return n.most
}

// forget empties the dictionary and the caches.
func (n *Names) forget() {
	n.Table.Clear()
	clear(n.ops[:])
	clear(n.stored[:])
	clear(n.values[:])
}

type cachedOp struct {
	key uint64 // hash of service, raw name and kind
	op  trace.Op
}

// Op returns the operation with the given service, raw span name and kind. A name longer than [MaxName] is shortened.
func (n *Names) Op(service trace.Symbol, name []byte, kind trace.Kind) trace.Op {
	key := trace.Mix(uint64(service)+uint64(kind), xxhash.Sum64(name))
	if op, ok := n.cached(key); ok {
		return op
	}
	return n.newOp(key, service, name, kind)
}

// newOp adds the operation with the given service, raw name and kind to the dictionary, and caches it under key.
func (n *Names) newOp(key uint64, service trace.Symbol, name []byte, kind trace.Kind) trace.Op {
	if n.buf == nil {
		n.buf = make([]byte, 0, 2*MaxName) // "1/2" becomes "{}/{}": at most twice as long
	}
	normal := trace.NormalName(shorten(name, MaxName), n.buf)
	op := n.Table.Op(service, n.Table.SymbolBytes(normal), kind)
	n.cache(key, op)
	return op
}

// cached returns the operation cached under key, or false if there isn't one.
func (n *Names) cached(key uint64) (trace.Op, bool) {
	line := &n.ops[key%cachedOps]
	for i := range line {
		if line[i].key == key {
			return line[i].op, true
		}
	}
	return 0, false
}

// cache stores op under key, in place of the oldest entry of its set.
func (n *Names) cache(key uint64, op trace.Op) {
	line := &n.ops[key%cachedOps]
	copy(line[1:], line[:])
	line[0] = cachedOp{key, op}
}

// Symbol adds the service name to the dictionary and returns its symbol. A name longer than [MaxName] is shortened.
func (n *Names) Symbol(name []byte) trace.Symbol { return n.Table.SymbolBytes(shorten(name, MaxName)) }

// shorten returns name as valid UTF-8 of at most limit bytes. If name is longer, as an entire query may be, shorten
// cuts it and appends an ellipsis, so that readers see that something is missing.
func shorten(name []byte, limit int) []byte {
	const ellipsis = "…"
	if len(name) <= limit {
		return clean(name, limit)
	}
	return slices.Concat(clean(name, limit-len(ellipsis)), []byte(ellipsis))
}

// Value returns the symbol of text, truncated to [MaxValue] bytes, and stores it if there is room. key is the result of
// [Keys.Find] for the attribute's key, or one of the further kinds of values.
func (n *Names) Value(key int, text []byte) trace.Symbol {
	if len(text) > MaxValue {
		text = clean(text, MaxValue)
	}
	sym := trace.SymbolOf(text)
	if c := &n.stored[sym%cachedValues]; *c != sym {
		if valid := clean(text, MaxValue); len(valid) != len(text) || &valid[0] != &text[0] {
			return n.Value(key, valid)
		}
		if n.store(key, sym, text) {
			*c = sym
		}
	}
	return sym
}

// store adds text, whose symbol is sym, to the dictionary unless key already has its maximum number of values. It
// reports whether the dictionary now contains sym.
func (n *Names) store(key int, sym trace.Symbol, text []byte) bool {
	switch {
	case n.Table.Contains(sym):
	case n.values[key] < n.room(key):
		n.values[key]++
		n.Table.SymbolBytes(text)
	default:
		n.beyond[key]++
		return false
	}
	return true
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
