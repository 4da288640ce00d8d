package ingest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/trace"
)

// Builder builds the spans of a [Batch] from their fields, which may come in any order, by rules common to all formats.
// A Builder belongs to one decoder. Its methods must be called in the order of the grammar
//
//	Begin (NewResource (ResourceText | SharedAttr)* (Span (fields | Attr | Link | Status | Exception)* EndSpan)*)*
type Builder struct {
	ID     []byte // 8 bytes; the caller owns ID, Parent, Trace and Name
	Parent []byte // 8 bytes; may be empty
	Trace  []byte // 16 bytes
	Name   []byte
	Start  uint64 // nanoseconds since the Unix epoch
	End    uint64
	Kind   trace.Kind
	Flags  trace.Flags // without the failure flags
	Join   bool        // the span carries sibyl.join=true
	Cause  Defect      // defects found by the decoder

	keys  *Keys
	names Names
	into  *Batch

	Resource // the current one

	tracepoint trace.Symbol
	attrs      int // len(into.Attrs) when the span started
	links      []link
	identity   identity
	signs      signs
}

// Resource holds the data that spans share: a service, a host and attributes.
type Resource struct {
	service  trace.Symbol
	version  trace.Symbol
	noted    int // index of version in into.Versions; valid only if both service and version are known
	host     trace.Symbol
	hostRank int          // index in hostKeys of the key that set host, or len(hostKeys)
	shared   []trace.Attr // attributes of the resource and the scope
}

// Defect is the set of a span's fields that a text decoder could not read. The Builder rejects the span but not its
// record.
type Defect uint8

// The defects of a span.
const (
	TraceIDDefect Defect = 1 << iota
	SpanIDDefect
	ParentIDDefect
	TimeDefect
)

type link struct {
	trace trace.ID
	span  trace.SpanID
	join  bool
}

// hostKeys are the resource attributes that identify hosts, best first.
var hostKeys = [...]string{"host.id", "host.ip", "host.name", "k8s.pod.uid", "service.instance.id"}

const (
	serviceKey = "service.name"
	versionKey = "service.version"
)

// NewBuilder returns a builder that keeps the attributes in keys and adds names to table.
func NewBuilder(table *trace.Table, keys *Keys) *Builder {
	keys.intern(table)
	return &Builder{keys: keys, names: newNames(table, keys)}
}

// Forget empties the dictionary. Names that appear again later are added again.
func (b *Builder) Forget() {
	b.names.forget()
	b.keys.intern(b.names.Table)
}

// Unnamed yields the keys that have too many values for the dictionary, each with the number of occurrences of values
// missing from the dictionary since the last call. It combines keys that were not requested under "".
func (b *Builder) Unnamed() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for found, n := range b.names.beyond {
			if n == 0 {
				continue
			}
			b.names.beyond[found] = 0
			if !yield(b.keys.nameOf(found), n) {
				return
			}
		}
	}
}

// Begin starts a record. Its spans are appended to into.
func (b *Builder) Begin(into *Batch) {
	b.into = into
	b.NewResource()
}

// Mark calls [Batch.Mark] on the current batch. Decoders that may have to read part of a record twice use it with
// [Builder.Rollback].
func (b *Builder) Mark() Mark { return b.into.Mark() }

// Rollback removes everything added to the batch since m.
func (b *Builder) Rollback(m Mark) { b.into.Rollback(m) }

// NewResource starts an empty resource.
func (b *Builder) NewResource() {
	b.Resource = Resource{hostRank: len(hostKeys), shared: b.shared[:0]}
}

// Use replaces the current resource with a copy of r, which must be a result of [Builder.Save].
func (b *Builder) Use(r Resource) {
	shared := append(b.shared[:0], r.shared...)
	b.Resource = r
	b.shared = shared
}

// Save returns a copy of the current resource, for formats whose spans refer to resources.
func (b *Builder) Save() Resource {
	r := b.Resource
	r.shared = slices.Clone(r.shared)
	return r
}

// Service sets the service name of the resource.
func (b *Builder) Service(name []byte) {
	b.service = b.names.Symbol(name)
	b.noteVersion()
}

// noteVersion adds the service version of the resource to the batch once both are known, unless the previous resource
// had the same version. It runs once per resource, not per span.
func (b *Builder) noteVersion() {
	v := ServiceVersion{b.service, b.version}
	if n := len(b.into.Versions); v.Service != 0 && v.Version != 0 &&
		(n == 0 || b.into.Versions[n-1].ServiceVersion != v) {
		b.into.Versions = append(b.into.Versions, VersionStart{ServiceVersion: v})
	}
	b.noted = len(b.into.Versions) - 1
}

// noteStart sets the first start of the resource's version to start if start is earlier.
func (b *Builder) noteStart(start trace.Nanos) {
	if b.service == 0 || b.version == 0 || b.noted >= len(b.into.Versions) {
		return // no version, or a rollback removed it
	}
	if v := &b.into.Versions[b.noted]; v.ServiceVersion == (ServiceVersion{b.service, b.version}) &&
		(v.First == 0 || start < v.First) {
		v.First = start
	}
}

// ResourceText interprets a string attribute of the resource. It uses only the service and its version, each taken from
// the first non-empty value, and the host, taken from the best key in hostKeys.
func (b *Builder) ResourceText(key, text []byte) {
	if len(text) == 0 {
		return
	}
	switch string(key) {
	case serviceKey:
		if b.service == 0 {
			b.Service(text)
		}
		return
	case versionKey:
		if b.version == 0 {
			b.version = b.names.Value(versions, text)
			b.noteVersion()
		}
		return
	}
	for rank := range b.hostRank {
		if string(key) == hostKeys[rank] && !IsLocal(text) {
			b.host, b.hostRank = b.names.Value(hosts, text), rank
			return
		}
	}
}

// IsLocal reports whether host is a loopback name or address, which does not identify a host.
func IsLocal[T string | []byte](host T) bool {
	if len(host) > len("127.255.255.255") {
		return false // check before the conversion, which would allocate
	}
	s := string(host)
	return s == "localhost" || s == "::1" || strings.HasPrefix(s, "127.")
}

// Value is the value of an attribute: a text, a number or a bool. Decoders skip values of other types.
type Value struct {
	Text    []byte // "true" or "false" for a bool
	Number  float64
	Numeric bool
}

// True reports whether v is true, as a bool or as text.
func (v Value) True() bool { return !v.Numeric && string(v.Text) == "true" }

// SharedAttr adds an attribute of the resource or scope to all spans that follow, after their own attributes. found is
// the result of [Keys.Find] for key.
func (b *Builder) SharedAttr(found int, key []byte, v Value) {
	if found > keyJoin && !b.keys.Interprets(found) {
		b.shared = append(b.shared, trace.Attr{})
		b.attr(&b.shared[len(b.shared)-1], found, key, v)
	}
}

// Shared returns the current number of shared attributes, for [Builder.Unshare].
func (b *Builder) Shared() int { return len(b.shared) }

// Unshare removes all shared attributes except the first n.
func (b *Builder) Unshare(n int) { b.shared = b.shared[:n] }

// Span starts a span with empty fields.
func (b *Builder) Span() {
	b.ID, b.Parent, b.Trace, b.Name = nil, nil, nil, nil
	b.Start, b.End, b.Kind, b.Flags, b.Join, b.Cause = 0, 0, 0, 0, false, 0
	b.tracepoint, b.links = 0, b.links[:0]
	b.identity.set, b.signs = 0, signs{}
	b.attrs = len(b.into.Attrs)
}

// Interpret adds an attribute of the current span with the value text. found is the result of [Keys.Find] for its key
// and must satisfy [Keys.Interprets]. Interpret is faster than Attr.
func (b *Builder) Interpret(found int, text []byte) {
	if found < firstSignKey {
		b.identity.addText(found-firstIdentityKey, text)
	} else {
		b.signs.add(found-firstSignKey, Value{Text: text})
	}
}

// InterpretNumber is like Interpret, but for a small number, such as a port or a status code.
func (b *Builder) InterpretNumber(found int, n uint16) {
	if found < firstSignKey {
		b.identity.addNumber(found-firstIdentityKey, n)
	} else {
		b.signs.addNumber(found-firstSignKey, n)
	}
}

// Attr adds an attribute of the current span. found is the result of [Keys.Find] for key. An attribute that has a field
// in [trace.Span] sets only that field, unless the attribute was also requested.
func (b *Builder) Attr(found int, key []byte, v Value) {
	switch found {
	case keyTracepoint:
		if b.tracepoint == 0 && !v.Numeric {
			b.tracepoint = b.names.Value(found, v.Text)
		}
	case keyJoin:
		b.Join = b.Join || v.True()
	default:
		if firstIdentityKey <= found && found < requested {
			if found < firstSignKey {
				b.identity.add(found-firstIdentityKey, v)
			} else {
				b.signs.add(found-firstSignKey, v)
			}
			if b.keys.Interprets(found) {
				return
			}
		}
		b.into.Attrs = append(b.into.Attrs, trace.Attr{})
		b.attr(&b.into.Attrs[len(b.into.Attrs)-1], found, key, v)
	}
}

// attr sets a to the attribute with the given key and value. It writes through a pointer because copying an attribute
// would cost too much on this path.
func (b *Builder) attr(a *trace.Attr, found int, key []byte, v Value) {
	a.Number, a.Numeric, a.Span = v.Number, v.Numeric, int32(len(b.into.Spans))
	if found == unnamed {
		a.Key = b.names.Value(unnamedKeys, key)
	} else {
		a.Key = b.keys.symbols[found]
	}
	if !v.Numeric {
		a.Text = b.names.Value(found, v.Text)
	}
}

// Link adds a link of the current span. The link becomes a join if it or the span is marked as a join and both spans
// belong to the same trace, or if the span takes messages and the linked span, in another trace, may have sent one of
// them. Link ignores links with invalid identifiers.
func (b *Builder) Link(traceID, spanID []byte, join bool) {
	if len(traceID) == 16 && len(spanID) == 8 {
		b.links = append(b.links, link{trace.ID(traceID), trace.SpanID(binary.BigEndian.Uint64(spanID)), join})
	}
}

// EndSpan adds the current span to the batch, or counts it as rejected if it is invalid.
func (b *Builder) EndSpan() {
	if !b.valid() {
		b.into.Attrs = b.into.Attrs[:b.attrs]
		return
	}
	into, index := b.into, int32(len(b.into.Spans))
	id := trace.ID(b.Trace)
	if rule, failed := b.signs.failure(b.Kind, b.keys.failing); failed {
		b.Flags |= rule.Fail()
	}
	into.Traces = append(into.Traces, id)
	into.Spans = append(into.Spans, trace.Span{
		ID:         trace.SpanID(binary.BigEndian.Uint64(b.ID)),
		Start:      trace.Nanos(b.Start),
		End:        trace.Nanos(b.End),
		Op:         b.operation(),
		Service:    b.service,
		Host:       b.host,
		Tracepoint: b.tracepoint,
		Kind:       b.Kind,
		Flags:      b.Flags,
	})
	b.noteStart(trace.Nanos(b.Start))
	if b.namesPeer() {
		into.Spans[index].Peer = b.names.peer(&b.identity)
		into.Spans[index].Address = b.identity.address()
	} else if b.Kind == trace.Server {
		into.Spans[index].Address = b.identity.address()
	}
	if len(b.Parent) != 0 {
		into.Spans[index].Parent = trace.SpanID(binary.BigEndian.Uint64(b.Parent))
	}
	for _, a := range b.shared {
		a.Span = index
		into.Attrs = append(into.Attrs, a)
	}
	if len(b.links) > 0 {
		b.addJoins(id, index)
	}
}

// maxMessages is the maximum number of message joins of a span, because a span that handles a large batch of messages
// would otherwise need more memory for its links than for itself. The first links suffice, because the first messages
// of a batch wait at least as long as the others.
const maxMessages = 8

// addJoins adds the links that count as joins. index is the current span's index in the batch, and id is its trace.
func (b *Builder) addJoins(id trace.ID, index int32) {
	left := 0
	if b.takesMessages() {
		left = maxMessages
	}
	for _, l := range b.links {
		switch {
		case l.span == 0:
		case l.trace == id:
			if l.join || b.Join {
				b.into.Joins = append(b.into.Joins, trace.Join{Span: index, Linked: l.span})
			}
		case left > 0 && !l.trace.IsZero():
			left--
			b.into.Joins = append(b.into.Joins,
				trace.Join{Span: index, Message: true, Linked: trace.MessageID(l.trace, l.span)})
		}
	}
}

// takesMessages reports whether the current span receives or processes messages. A span that receives messages may be a
// CLIENT of the broker, and a span that processes messages may be INTERNAL. Such spans have an attribute that names the
// destination.
func (b *Builder) takesMessages() bool {
	return b.Kind == trace.Consumer || b.Kind != trace.Producer && b.identity.set&destinationKeys != 0
}

// namesPeer reports whether the attributes of the current span name the operation that it calls. The attributes of a
// SERVER span name the service itself, and an INTERNAL span calls nothing except, with some instrumentations, a
// database.
func (b *Builder) namesPeer() bool {
	if b.Kind == trace.Internal {
		return b.identity.text(databaseKeys, nil) != nil
	}
	return (b.Kind == trace.Client || b.Kind == trace.Producer) && b.identity.set&peerKeys != 0
}

// valid reports whether the current span is valid. If it isn't, valid counts it as rejected.
func (b *Builder) valid() bool {
	reason := b.defect()
	if reason == "" {
		return true
	}
	if !b.into.rejectAgain(reason, 1) {
		b.into.Reject(reason, b.detail(reason), 1)
	}
	return false
}

// defect returns the reason to reject the current span, or "" if it is valid.
func (b *Builder) defect() trace.Reason {
	switch {
	case b.Cause&TraceIDDefect != 0 || len(b.Trace) != 16 || trace.ID(b.Trace).IsZero():
		return trace.BadTraceID
	case b.Cause&(SpanIDDefect|ParentIDDefect) != 0 || len(b.ID) != 8 ||
		binary.BigEndian.Uint64(b.ID) == 0 || len(b.Parent) != 0 && len(b.Parent) != 8:
		return trace.BadSpanID
	case b.Cause&TimeDefect != 0 || max(b.Start, b.End) > uint64(trace.MaxNanos):
		return trace.BadTime
	}
	return ""
}

// detail describes the current span's defect. reason must be the result of defect.
func (b *Builder) detail(reason trace.Reason) string {
	switch {
	case reason == trace.BadTraceID:
		return badID("trace id", 16, b.Trace, b.Cause&TraceIDDefect != 0)
	case reason == trace.BadSpanID && b.Cause&SpanIDDefect == 0 && len(b.ID) == 8 && binary.BigEndian.Uint64(b.ID) != 0:
		return badID("parent span id", 8, b.Parent, b.Cause&ParentIDDefect != 0)
	case reason == trace.BadSpanID:
		return badID("span id", 8, b.ID, b.Cause&SpanIDDefect != 0)
	case b.Cause&TimeDefect != 0:
		return fmt.Sprintf("a time of span %x is negative, too large, fractional, or not a number", b.ID)
	}
	return fmt.Sprintf("times %d and %d of span %x: not within [0, %d] ns after 1970",
		b.Start, b.End, b.ID, trace.MaxNanos)
}

// badID describes the defect of id. size is the correct length in bytes. If text is true, id is text that couldn't be
// decoded; otherwise, it is the decoded bytes.
func badID(name string, size int, id []byte, text bool) string {
	switch {
	case len(id) == 0:
		return name + " is missing"
	case text:
		return fmt.Sprintf("%s %q: want %d hexadecimal digits, or the base64 of %d bytes",
			name, id[:min(len(id), 40)], 2*size, size)
	case len(id) == size:
		return name + " is all zero"
	}
	return fmt.Sprintf("%s of %d bytes, want %d: %x", name, len(id), size, id[:min(len(id), 20)])
}
