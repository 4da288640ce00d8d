package ingest

import (
	"bytes"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on what is taken from one name or value. They bound what hostile input can make a dictionary hold.
const (
	MaxName  = 4 << 10 // bytes of a service or span name: a span with a longer one is rejected as too large
	MaxValue = 1 << 10 // bytes of an attribute's key or value: what is beyond is cut off
)

// maxValues is how many different attribute values get their text stored: half of a full dictionary, so that values of high
// cardinality cannot crowd the names of operations out of it. Other values keep their symbol, and stand as
// trace.Overflow in reports.
const maxValues = trace.DefaultLimit / 2

// Sizes of the caches: 256 KiB for operations and 128 KiB for values stay within a core's own cache.
const (
	cachedOps    = 1 << 12 // lines, of which each holds four operations and fills one line of the processor's cache
	cachedValues = 1 << 14
)

// Names turns names into identities and enters them in a dictionary. It is owned by one decoder and not safe for
// concurrent use.
type Names struct {
	Table *trace.Table

	ops    [cachedOps][4]cachedOp     // the newest of a line first; it displaces the oldest
	stored [cachedValues]trace.Symbol // direct-mapped: values that need no more work
	buf    []byte
	values int
}

type cachedOp struct {
	key uint64 // hash of service, raw name and kind
	op  trace.Op
}

// Op returns the operation of service, the raw span name and kind. The name may be of any length; see [MaxName] for who
// refuses long ones.
func (n *Names) Op(service trace.Symbol, name []byte, kind trace.Kind) trace.Op {
	key := trace.Mix(uint64(service)+uint64(kind), xxhash.Sum64(name))
	line := &n.ops[key%cachedOps]
	for i := range line {
		if line[i].key == key {
			return line[i].op
		}
	}
	if n.buf == nil {
		n.buf = make([]byte, 0, 2*MaxName) // "1/2" becomes "{}/{}": never more than twice as long
	}
	normal := trace.NormalName(clean(name, MaxName), n.buf)
	op := n.Table.Op(service, n.Table.SymbolBytes(normal), kind)
	copy(line[1:], line[:])
	line[0] = cachedOp{key, op}
	return op
}

// Symbol returns the symbol of a service name.
func (n *Names) Symbol(name []byte) trace.Symbol { return n.Table.SymbolBytes(clean(name, MaxName)) }

// Value returns the symbol of an attribute's key or value, cut to [MaxValue] bytes.
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

// store enters a value in the dictionary, while there is room for values.
func (n *Names) store(sym trace.Symbol, text []byte) {
	if n.values < maxValues && n.Table.Text(sym) == trace.Overflow {
		n.values++
		n.Table.SymbolBytes(text)
	}
}

// clean returns text cut to at most limit bytes at the boundary of a character, with U+FFFD in place of what is not UTF-8.
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
