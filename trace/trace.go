// Package trace holds the records that everything else computes on: spans, traces, their identifiers, times in
// nanoseconds, and the dictionary that gives operations, calling contexts and edges their names.
//
// Identifiers of operations, contexts and edges are 64-bit hashes of their content (see [Op]). They are equal on every
// shard, every machine and every run, so nothing has to be renumbered when statistics are merged, and nothing that is
// ordered by them depends on the order in which traces arrived.
//
// The package has no clock, no I/O and no state of its own, and imports nothing else of this module.
package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Nanos is a point in time in nanoseconds since the Unix epoch, as sent in OTLP. Valid times lie in [0, [MaxNanos]].
type Nanos int64

// MaxNanos is the latest accepted time (the year 2255). The distance to the largest int64 leaves room for arithmetic on
// times (skew correction, windows) without overflow.
const MaxNanos Nanos = 9_000_000_000_000_000_000

// Sub returns the duration t−u.
func (t Nanos) Sub(u Nanos) time.Duration { return time.Duration(t - u) }

// Add returns the time t+d.
func (t Nanos) Add(d time.Duration) Nanos { return t + Nanos(d) }

// MaxDuration is the longest duration of a trace that enters statistics, 2^47 ns (39 h). It keeps sums of squares within
// 128 bits.
const MaxDuration = time.Duration(1) << 47

// ID identifies a trace. The zero ID is invalid.
type ID [16]byte

// IsZero reports whether id is the invalid, all-zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns id as 32 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Compare orders IDs by their bytes.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// Hash returns 64 well-mixed bits of id. Sampling and sharding use it, so that every machine picks the same traces.
func (id ID) Hash() uint64 {
	return mix(binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))
}

// ErrBadID is returned for identifiers that are not hex, have the wrong length, or are all zero.
var ErrBadID = errors.New("not a valid identifier")

// ParseID parses 32 hex digits of either case; 16 digits are accepted as a 64-bit identifier and padded with zeros on the
// left, as Jaeger writes it. It returns an error wrapping [ErrBadID] for anything else and for the zero ID.
func ParseID(s string) (ID, error) {
	var id ID
	var err error
	switch len(s) {
	case 32:
		_, err = hex.Decode(id[:], []byte(s))
	case 16:
		_, err = hex.Decode(id[8:], []byte(s))
	default:
		return ID{}, fmt.Errorf("trace id of %d hex digits, want 32: %w", len(s), ErrBadID)
	}
	if err != nil || id.IsZero() {
		return ID{}, fmt.Errorf("trace id %q: %w", s, ErrBadID)
	}
	return id, nil
}

// SpanID identifies a span within its trace: the eight bytes of the wire, read as a big-endian number, so that numeric
// order is the order of the bytes. Zero means none.
type SpanID uint64

// String returns id as 16 lower-case hex digits.
func (id SpanID) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return hex.EncodeToString(b[:])
}

// ParseSpanID parses 16 hex digits of either case. It returns an error wrapping [ErrBadID] for anything else and for zero.
func ParseSpanID(s string) (SpanID, error) {
	var b [8]byte
	if len(s) != 16 {
		return 0, fmt.Errorf("span id of %d hex digits, want 16: %w", len(s), ErrBadID)
	}
	if _, err := hex.Decode(b[:], []byte(s)); err != nil {
		return 0, fmt.Errorf("span id %q: %w", s, ErrBadID)
	}
	id := SpanID(binary.BigEndian.Uint64(b[:]))
	if id == 0 {
		return 0, fmt.Errorf("span id %q: %w", s, ErrBadID)
	}
	return id, nil
}

// Kind is the span kind, numbered as in OTLP.
type Kind uint8

// The span kinds of OpenTelemetry.
const (
	Unspecified Kind = iota
	Internal
	Server
	Client
	Producer
	Consumer
)

var kindNames = [...]string{"unspecified", "internal", "server", "client", "producer", "consumer"}

// String returns the lower-case name of k.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[Unspecified]
}

// ParseKind returns the kind with the given lower-case name, and whether there is one.
func ParseKind(s string) (Kind, bool) {
	for k, name := range kindNames {
		if s == name {
			return Kind(k), true
		}
	}
	return Unspecified, false
}

// Flags are properties of a span.
type Flags uint8

// Properties of a span.
const (
	RemoteParent Flags = 1 << iota // the sender flagged the parent as remote
	Error                          // status code ERROR
)

// Span is one flat span record. It owns no memory: names are symbols in a [Table].
type Span struct {
	ID, Parent SpanID // Parent is 0 where there is none
	Start, End Nanos  // as sent: End may lie before Start
	Op         Op     // service + normalised name + kind
	Service    Symbol
	Host       Symbol // what tells hosts apart for clock skew; 0: unknown
	Tracepoint Symbol // value of sibyl.tracepoint.id; 0: the span belongs to the baseline
	Kind       Kind
	Flags      Flags
}

// Duration returns End−Start, which is negative for a malformed span.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Attr is one attribute of a span (or of its resource) that was asked for when the span was decoded.
type Attr struct {
	Key     Symbol
	Text    Symbol  // the value of a string or bool attribute
	Number  float64 // the value of a numeric attribute
	Span    int32   // index in Trace.Spans
	Numeric bool    // whether the value is Number, not Text
}

// Join says that a span waited for the end of another span of the same trace that is not its child (a link that the
// tracer declared with sibyl.join).
type Join struct {
	Span   int32  // index in Trace.Spans of the span that waits
	Linked SpanID // the span it waits for
}

// Trace is one closed trace: all of its spans that arrived, in any order.
type Trace struct {
	ID    ID
	Spans []Span
	Attrs []Attr // in any order
	Joins []Join // in any order
}

// Reset empties t and keeps its memory.
func (t *Trace) Reset() {
	t.ID = ID{}
	t.Spans, t.Attrs, t.Joins = t.Spans[:0], t.Attrs[:0], t.Joins[:0]
}

// Append adds the spans of u, with their attributes and joins, to t. It keeps t's ID.
func (t *Trace) Append(u *Trace) {
	base := int32(len(t.Spans))
	t.Spans = append(t.Spans, u.Spans...)
	for _, a := range u.Attrs {
		a.Span += base
		t.Attrs = append(t.Attrs, a)
	}
	for _, j := range u.Joins {
		j.Span += base
		t.Joins = append(t.Joins, j)
	}
}
