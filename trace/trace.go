// Package trace defines the data types that all other packages share: spans, traces, their identifiers, times in
// nanoseconds, and a dictionary that maps identities of operations, calling contexts and edges to names.
//
// Identities of operations, contexts and edges are 64-bit hashes of their content (see [Op]). They are equal on every
// shard, on every machine and in every run, so merging statistics needs no renumbering, and an order by identity
// doesn't depend on the order of arrival of traces.
//
// The package has no clock, no I/O and no state.
package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Nanos is a point in time in nanoseconds since the Unix epoch, as in OTLP. Valid times lie in [0, [MaxNanos]].
type Nanos int64

// MaxNanos is the latest accepted time, in the year 2255. Its distance from the largest int64 leaves room for
// arithmetic on times (skew correction, windows) without overflow.
const MaxNanos Nanos = 9_000_000_000_000_000_000

// Sub returns the duration t−u.
func (t Nanos) Sub(u Nanos) time.Duration { return time.Duration(t - u) }

// Add returns the time t+d.
func (t Nanos) Add(d time.Duration) Nanos { return t + Nanos(d) }

// MaxDuration is the exclusive upper limit on the durations of requests in statistics: 2^47 ns (39 h). It keeps sums of
// squares within 128 bits.
const MaxDuration = time.Duration(1) << 47

// ID identifies a trace. The zero ID is invalid.
type ID [16]byte

// IsZero reports whether id is the invalid, all-zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns id as 32 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Compare orders IDs by their bytes.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// Hash returns a 64-bit hash of id. Sampling and sharding use it so that all machines select the same traces.
func (id ID) Hash() uint64 {
	return mix(binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))
}

// ErrBadID is returned by [ParseID] for invalid identifiers.
var ErrBadID = errors.New("not a valid identifier")

// ParseID parses 32 hex digits of either case. It also accepts 64-bit identifiers of 16 digits, as written by Jaeger,
// and pads them with zeros on the left. For any other text and for the zero ID it returns an error wrapping [ErrBadID].
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

// SpanID identifies a span within its trace. It is the eight bytes of the wire format as a big-endian number, so that
// numeric order equals byte order. Zero is not a span.
type SpanID uint64

// String returns id as 16 lower-case hex digits.
func (id SpanID) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return hex.EncodeToString(b[:])
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
	External // an operation without spans, known only from the attributes of its callers
)

var kindNames = [...]string{"unspecified", "internal", "server", "client", "producer", "consumer", "external"}

// String returns the lower-case name of k.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[Unspecified]
}

// ParseKind returns the span kind with the given lower-case name, and reports whether it exists. It rejects "external",
// because no span is sent with that kind.
func ParseKind(s string) (Kind, bool) {
	for k, name := range kindNames[:External] {
		if s == name {
			return Kind(k), true
		}
	}
	return Unspecified, false
}

// Flags is a set of span properties.
type Flags uint8

// The span properties.
const (
	RemoteParent Flags = 1 << iota // the sender flagged the parent as remote
	Error                          // the span failed; the next three bits hold its FailureRule
)

// Span is one span. It holds no pointers: names are symbols of a [Table].
type Span struct {
	ID, Parent SpanID // Parent is 0 for a span without a parent
	Start, End Nanos  // as sent: End may be before Start
	Op         Op     // service, normalised name and kind
	Service    Symbol
	Host       Symbol // identifies the clock, for skew correction; 0 if unknown
	Tracepoint Symbol // value of sibyl.tracepoint.id; 0 for a baseline span
	Peer       Op     // the callee named by the span's attributes, with kind External; 0 if unknown
	Address    Address
	Kind       Kind
	Flags      Flags
}

// Address is a hash of a network address and port: the callee's for a client or producer span, the span's own for a
// server span. 0 means unknown. Unlike Peer, it tells replicas apart. Collisions are rare: a million addresses have
// about a hundred colliding pairs.
type Address uint32

// Duration returns End−Start, which is negative if the span ends before it starts.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Attr is a requested attribute of a span or of its resource.
type Attr struct {
	Key     Symbol
	Text    Symbol  // the value of a string or bool attribute
	Number  float64 // the value of a numeric attribute
	Span    int32   // index in Trace.Spans
	Numeric bool    // whether the value is Number, not Text
}

// Join records that a span waited for a span that is not its child: either for the end of another span of its trace, as
// indicated by a link with the attribute sibyl.join, or for a message sent by a span of another trace, as indicated by
// any link.
type Join struct {
	Span    int32  // index in Trace.Spans of the span that waits
	Message bool   // Linked is the [MessageID] of a span in another trace
	Linked  SpanID // the span that it waits for
}

// MessageID returns an identity for the message sent by span s of trace t. It is a hash of both IDs, because the ID of
// a span is unique only within its trace.
func MessageID(t ID, s SpanID) SpanID { return SpanID(Mix(t.Hash(), uint64(s))) }

// Trace is a closed trace with all of its spans that arrived, in any order.
type Trace struct {
	ID    ID
	Spans []Span
	Attrs []Attr // in any order
	Joins []Join // in any order
}

// Reset empties t but keeps its memory.
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
