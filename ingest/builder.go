package ingest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/trace"
)

// Builder makes the spans of a [Batch] out of their fields, which may come in any order, by the rules that hold for every
// format. It belongs to one decoder. The sequence of calls is
//
//	Begin (NewResource (ResourceText | SharedAttr)* (Span (fields | Attr | Link)* EndSpan)*)*
type Builder struct {
	ID     []byte // of the current span, 8 bytes; owned by the caller until EndSpan, as are the next three
	Parent []byte // 8 bytes; empty: none
	Trace  []byte // 16 bytes
	Name   []byte
	Start  uint64 // nanoseconds since the Unix epoch
	End    uint64
	Kind   trace.Kind
	Flags  trace.Flags
	Join   bool   // the span carries sibyl.join=true
	Cause  Defect // what the decoder itself found wrong with the span

	keys  *Keys
	names Names
	into  *Batch

	Resource // the present one

	tracepoint trace.Symbol
	attrs      int // len(into.Attrs) when the span began
	links      []link
}

// Resource is what spans share: a service, a host and attributes.
type Resource struct {
	service     trace.Symbol
	longService bool
	version     trace.Symbol
	host        trace.Symbol
	hostRank    int          // place in hostKeys of the key that host came from
	shared      []trace.Attr // of the resource and the scope
}

// Defect says that a field of a span could not be read, for decoders of text: the span is refused, its record is not.
type Defect uint8

// What a decoder may find wrong with a span.
const (
	NoDefect Defect = iota
	TraceIDDefect
	SpanIDDefect
	TimeDefect
)

type link struct {
	trace trace.ID
	span  trace.SpanID
	join  bool
}

// hostKeys are the resource attributes that tell hosts apart, best first.
var hostKeys = [...]string{"host.id", "host.ip", "host.name", "k8s.pod.uid", "service.instance.id"}

const (
	serviceKey = "service.name"
	versionKey = "service.version"
)

// NewBuilder returns a builder that keeps the attributes in keys and enters names in table.
func NewBuilder(table *trace.Table, keys *Keys) *Builder {
	keys.intern(table)
	return &Builder{keys: keys, names: Names{Table: table}}
}

// Begin starts a record whose spans go to the end of into.
func (b *Builder) Begin(into *Batch) {
	b.into = into
	b.NewResource()
}

// Mark and Rollback are those of the batch, for decoders that have to read something again.
func (b *Builder) Mark() Mark { return b.into.Mark() }

// Rollback removes everything that was added since m.
func (b *Builder) Rollback(m Mark) { b.into.Rollback(m) }

// NewResource starts a resource: nothing is known about it yet.
func (b *Builder) NewResource() {
	b.Resource = Resource{hostRank: len(hostKeys), shared: b.shared[:0]}
}

// Use makes a copy of r, which was saved, the present resource.
func (b *Builder) Use(r Resource) {
	shared := append(b.shared[:0], r.shared...)
	b.Resource = r
	b.shared = shared
}

// Save returns a copy of the present resource, for formats whose spans refer to resources.
func (b *Builder) Save() Resource {
	r := b.Resource
	r.shared = slices.Clone(r.shared)
	return r
}

// Service sets the name of the resource's service.
func (b *Builder) Service(name []byte) {
	if b.longService = len(name) > MaxName; !b.longService {
		b.service = b.names.Symbol(name)
		b.noteVersion()
	}
}

// noteVersion adds the version of the resource's service to the batch once both are known, unless that of the resource before was the same.
// This is once for a resource, and costs spans nothing.
func (b *Builder) noteVersion() {
	v := ServiceVersion{b.service, b.version}
	if n := len(b.into.Versions); v.Service != 0 && v.Version != 0 && (n == 0 || b.into.Versions[n-1] != v) {
		b.into.Versions = append(b.into.Versions, v)
	}
}

// ResourceText takes a string attribute of the resource. Of several equal keys the first one with a text counts for the
// service, its version and the host.
func (b *Builder) ResourceText(key, text []byte) {
	if len(text) == 0 {
		return
	}
	switch string(key) {
	case serviceKey:
		if b.service == 0 && !b.longService {
			b.Service(text)
		}
		return
	case versionKey:
		if b.version == 0 {
			b.version = b.names.Value(text)
			b.noteVersion()
		}
		return
	}
	for rank := range b.hostRank {
		if string(key) == hostKeys[rank] && !IsLocal(text) {
			b.host, b.hostRank = b.names.Value(text), rank
			return
		}
	}
}

// IsLocal reports whether host is what every host calls itself, so that it tells none apart.
func IsLocal[T string | []byte](host T) bool {
	s := string(host)
	return s == "localhost" || s == "::1" || strings.HasPrefix(s, "127.")
}

// Value is the value of an attribute. Decoders leave out what is neither text nor a number nor true or false.
type Value struct {
	Text    []byte // "true" or "false" for a bool
	Number  float64
	Numeric bool
}

// True reports whether v is true, as a bool or as a text.
func (v Value) True() bool { return !v.Numeric && string(v.Text) == "true" }

// SharedAttr takes an attribute of the resource or the scope for which Keys.Find said found: it is given to each span that
// follows, after the span's own attributes.
func (b *Builder) SharedAttr(found int, key []byte, v Value) {
	if found > keyJoin {
		b.shared = append(b.shared, trace.Attr{})
		b.attr(&b.shared[len(b.shared)-1], found, key, v)
	}
}

// Shared returns how many attributes are shared by now, for [Builder.Unshare].
func (b *Builder) Shared() int { return len(b.shared) }

// Unshare forgets the shared attributes but the first n.
func (b *Builder) Unshare(n int) { b.shared = b.shared[:n] }

// Span starts a span: all its fields are empty.
func (b *Builder) Span() {
	b.ID, b.Parent, b.Trace, b.Name = nil, nil, nil, nil
	b.Start, b.End, b.Kind, b.Flags, b.Join, b.Cause = 0, 0, 0, 0, false, NoDefect
	b.tracepoint, b.links = 0, b.links[:0]
	b.attrs = len(b.into.Attrs)
}

// Attr takes an attribute of the current span for which Keys.Find said found. The marks of the tracepoint protocol that
// have a field in trace.Span are no attributes of the span.
func (b *Builder) Attr(found int, key []byte, v Value) {
	switch found {
	case keyTracepoint:
		if b.tracepoint == 0 && !v.Numeric {
			b.tracepoint = b.names.Value(v.Text)
		}
	case keyJoin:
		b.Join = b.Join || v.True()
	default:
		b.into.Attrs = append(b.into.Attrs, trace.Attr{})
		b.attr(&b.into.Attrs[len(b.into.Attrs)-1], found, key, v)
	}
}

// attr fills in an empty attribute, where it is to stand: it is called too often to copy what it makes.
func (b *Builder) attr(a *trace.Attr, found int, key []byte, v Value) {
	a.Number, a.Numeric, a.Span = v.Number, v.Numeric, int32(len(b.into.Spans))
	if found == unnamed {
		a.Key = b.names.Value(key)
	} else {
		a.Key = b.keys.symbols[found]
	}
	if !v.Numeric {
		a.Text = b.names.Value(v.Text)
	}
}

// Link takes a link of the current span. It is a join if the link or the span says so and both spans are of one trace.
// Links with unusable identifiers are ignored.
func (b *Builder) Link(traceID, spanID []byte, join bool) {
	if len(traceID) == 16 && len(spanID) == 8 {
		b.links = append(b.links, link{trace.ID(traceID), trace.SpanID(binary.BigEndian.Uint64(spanID)), join})
	}
}

// EndSpan adds the current span to the batch, or counts why it cannot be.
func (b *Builder) EndSpan() {
	if !b.valid() {
		b.into.Attrs = b.into.Attrs[:b.attrs]
		return
	}
	into, index := b.into, int32(len(b.into.Spans))
	id := trace.ID(b.Trace)
	into.Traces = append(into.Traces, id)
	into.Spans = append(into.Spans, trace.Span{
		ID:         trace.SpanID(binary.BigEndian.Uint64(b.ID)),
		Start:      trace.Nanos(b.Start),
		End:        trace.Nanos(b.End),
		Op:         b.names.Op(b.service, b.Name, b.Kind),
		Service:    b.service,
		Host:       b.host,
		Tracepoint: b.tracepoint,
		Kind:       b.Kind,
		Flags:      b.Flags,
	})
	if len(b.Parent) != 0 {
		into.Spans[index].Parent = trace.SpanID(binary.BigEndian.Uint64(b.Parent))
	}
	for _, a := range b.shared {
		a.Span = index
		into.Attrs = append(into.Attrs, a)
	}
	for _, l := range b.links {
		if l.trace == id && l.span != 0 && (l.join || b.Join) {
			into.Joins = append(into.Joins, trace.Join{Span: index, Linked: l.span})
		}
	}
}

// valid reports whether the current span may enter the batch. If not, it has counted the reason.
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

// defect returns why the current span cannot be used; "" if it can.
func (b *Builder) defect() trace.Reason {
	switch {
	case b.Cause == TraceIDDefect || len(b.Trace) != 16 || trace.ID(b.Trace).IsZero():
		return trace.BadTraceID
	case b.Cause == SpanIDDefect || len(b.ID) != 8 || binary.BigEndian.Uint64(b.ID) == 0 || len(b.Parent) != 0 && len(b.Parent) != 8:
		return trace.BadSpanID
	case b.Cause == TimeDefect || max(b.Start, b.End) > uint64(trace.MaxNanos):
		return trace.BadTime
	case len(b.Name) > MaxName || b.longService:
		return trace.TooLarge
	}
	return ""
}

// detail says what is wrong with the current span.
func (b *Builder) detail(reason trace.Reason) string {
	switch {
	case reason == trace.BadTraceID:
		return badID("trace id", 16, b.Trace, b.Cause == TraceIDDefect)
	case reason == trace.BadSpanID && len(b.ID) == 8 && b.Cause != SpanIDDefect && len(b.Parent) != 8 && len(b.Parent) != 0:
		return badID("parent span id", 8, b.Parent, false)
	case reason == trace.BadSpanID:
		return badID("span id", 8, b.ID, b.Cause == SpanIDDefect)
	case reason == trace.BadTime && b.Cause == TimeDefect:
		return fmt.Sprintf("a time of span %x is negative, too large, or no number", b.ID)
	case reason == trace.BadTime:
		return fmt.Sprintf("times %d and %d of span %x: not within [0, %d] ns after 1970", b.Start, b.End, b.ID, trace.MaxNanos)
	case b.longService:
		return fmt.Sprintf("service name of span %x longer than %d bytes", b.ID, MaxName)
	}
	return fmt.Sprintf("name of %d bytes of span %x, at most %d", len(b.Name), b.ID, MaxName)
}

// badID says what is wrong with an ID that should have size bytes, or, as text, twice as many digits.
func badID(what string, size int, id []byte, text bool) string {
	switch {
	case len(id) == 0:
		return what + " is missing"
	case text:
		return fmt.Sprintf("%s %q: want %d hexadecimal digits", what, id[:min(len(id), 40)], 2*size)
	case len(id) == size:
		return what + " is all zero"
	}
	return fmt.Sprintf("%s of %d bytes, want %d: %x", what, len(id), size, id[:min(len(id), 20)])
}
