package tracepoint

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Scope is the instrumentation scope of the spans that [Point.Start] starts.
const Scope = "github.com/sibyl-trace/sibyl/agents/tracepoint"

// UnknownService is the service name of [Default] until [Connect] or [Registry.SetService] sets one.
const UnknownService = "unknown_service"

// maxDiscovered limits the number of tracepoints that providers discover, because span names may contain data.
const maxDiscovered = 4096

// Registry holds the tracepoints of one service and their activation. Most processes use only [Default]. Use several
// registries if several services share a process, for example in tests.
type Registry struct {
	state         atomic.Pointer[state]     // never nil
	defaultTracer atomic.Pointer[tracerBox] // for spans whose parent comes from another provider
	labels        atomic.Bool               // set goroutine labels
	connected     atomic.Bool               // has an agent
	changed       chan struct{}             // holds one value if the catalogue changed since the last receive
	stacks        stacks

	mu         sync.Mutex // guards the fields below, and writes to state and to Point.active
	service    string
	points     map[pointKey]*Point
	byID       map[string]*Point
	discovered int // number of points that providers discovered
}

// tracerBox wraps a tracer of any type, so that an atomic.Pointer can hold it.
type tracerBox struct{ tracer trace.Tracer }

// Default is the registry that the package's functions use.
var Default = NewRegistry(UnknownService)

// NewRegistry returns an empty registry for the service with the given name.
func NewRegistry(service string) *Registry {
	r := &Registry{
		changed: make(chan struct{}, 1),
		service: service,
		points:  make(map[pointKey]*Point),
		byID:    make(map[string]*Point),
	}
	r.state.Store(new(state))
	return r
}

// pointKey identifies a tracepoint within a service.
type pointKey struct {
	kind        protocol.Kind
	scope, name string
	baseline    bool
}

// Point is a tracepoint: a point in the program where Sibyl can enable a span or the capture of a [Variable].
type Point struct {
	active   atomic.Pointer[activation] // nil if disabled for all requests
	registry *Registry
	name     string
	hits     atomic.Uint64 // executions while enabled
	drops    atomic.Uint64 // hits that recorded nothing because the request is not sampled
	measured measurements

	owner   atomic.Pointer[Point] // baseline span that it runs in; nil until seen; may be &ambiguousOwner
	renamed atomic.Bool           // for baseline spans: a span was renamed after its start

	info protocol.Tracepoint // without ID; constant
	id   string              // guarded by registry.mu
}

// ambiguousOwner is the owner of points that run in several baseline spans or in an unknown span.
var ambiguousOwner Point

// recordOwner records that the discovered point p ran in a span of owner, or in a span of an unknown owner if owner is
// nil. It changes the catalogue at most twice: at the first owner, and at the first different one.
func (p *Point) recordOwner(owner *Point) {
	if owner == nil {
		owner = &ambiguousOwner
	}
	for {
		was := p.owner.Load()
		if was == owner || was == &ambiguousOwner {
			return
		}
		next := owner
		if was != nil {
			next = &ambiguousOwner
		}
		if p.owner.CompareAndSwap(was, next) {
			p.registry.notifyChanged()
			return
		}
	}
}

// recordName records that a span of the baseline point p was renamed. Sibyl knows the span by its last name, so p is
// no longer valid as an owner hint.
func (p *Point) recordName(name string) {
	if name != p.name && p.renamed.CompareAndSwap(false, true) {
		p.registry.notifyChanged()
	}
}

// ownerHint returns the name and kind of the only baseline span that p was seen in, or else the name and kind declared
// with [WithOwner]. name and kind are empty if neither is known. The caller must hold registry.mu.
func (p *Point) ownerHint() (name string, kind protocol.SpanKind) {
	if o := p.owner.Load(); o != nil && o != &ambiguousOwner && !o.renamed.Load() {
		return o.info.Operation, o.info.SpanKind
	}
	return p.info.Owner, p.info.OwnerKind
}

// activation lists the requests that a point is enabled for. It is immutable.
type activation struct {
	rules []activationRule     // at most one per arm
	id    []attribute.KeyValue // the attribute with the point's ID, for its spans
}

// activationRule enables a point for requests of one arm.
type activationRule struct {
	arm     *arm
	rate    float64
	filters uint64 // the filter that the request must match, as one bit; 0 without a filter
}

// A PointOption describes a tracepoint, so that Sibyl can locate it before it is first enabled.
type PointOption func(*protocol.Tracepoint)

// WithParent declares the parent, that is, the tracepoint that calls this one. The parent of a variable is the span
// that captures the value.
func WithParent(p *Point) PointOption {
	return func(t *protocol.Tracepoint) { t.Parent = p.path() }
}

// WithOwner declares the baseline span, by name and kind, that the tracepoint runs in.
func WithOwner(name string, kind trace.SpanKind) PointOption {
	return func(t *protocol.Tracepoint) { t.Owner, t.OwnerKind = name, spanKind(kind) }
}

// WithCode sets the location in the source for display: a function, or a file and a line.
func WithCode(code string) PointOption {
	return func(t *protocol.Tracepoint) { t.Code = code }
}

// Span returns the tracepoint with the given name, and registers it if necessary. While the tracepoint is enabled, it
// starts spans with that name. Span panics unless name consists of 1 to 128 bytes of printable characters.
func Span(name string, options ...PointOption) *Point { return Default.Span(name, options...) }

// Span is like [Span], but for the tracepoints of r.
func (r *Registry) Span(name string, options ...PointOption) *Point {
	return r.point(pointKey{kind: protocol.SpanPoint, name: name}, options)
}

// maxName is the maximum length of the names of tracepoints, in bytes. It leaves room for the name of a service in the
// IDs of tracepoints.
const maxName = 128

// point returns the tracepoint with the given key, and registers it if necessary.
func (r *Registry) point(key pointKey, options []PointOption) *Point {
	if !validText(key.name, maxName) {
		panic(fmt.Sprintf("tracepoint: name %q does not consist of 1 to %d bytes of printable characters",
			key.name, maxName))
	}
	info := protocol.Tracepoint{
		Kind:      key.kind,
		Operation: key.name,
		Scope:     Scope,
		CostNanos: spanNanos,
		Bytes:     estimateSpanBytes(key.name),
	}
	if key.kind == protocol.VariablePoint {
		info.CostNanos, info.Bytes = variableNanos, variableBytes
	} else {
		info.SpanKind = protocol.Internal
	}
	for _, o := range options {
		o(&info)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.points[key]; p != nil {
		return p
	}
	return r.add(key, info)
}

// add registers a point. The caller must hold r.mu.
func (r *Registry) add(key pointKey, info protocol.Tracepoint) *Point {
	info.Layer = protocol.App
	p := &Point{registry: r, name: key.name, info: info}
	r.points[key] = p
	r.assignID(p)
	if a := r.activation(p); a != nil {
		p.active.Store(a)
	}
	r.notifyChanged()
	return p
}

// notifyChanged signals a change of the catalogue to the agent.
func (r *Registry) notifyChanged() {
	select {
	case r.changed <- struct{}{}:
	default: // signalled already
	}
}

// assignID sets the ID of p, which consists of the service, the path and, if another point has the same path, a number.
// The caller must hold r.mu.
func (r *Registry) assignID(p *Point) {
	id := r.service + "/" + p.path()
	for n := 2; r.byID[id] != nil; n++ {
		id = r.service + "/" + p.path() + "#" + strconv.Itoa(n)
	}
	p.id = id
	r.byID[id] = p
}

// path returns the ID of p without the service.
func (p *Point) path() string {
	switch {
	case p.info.Scope == Scope:
		return p.name
	case p.info.Baseline: // spans outside the baseline may have the same scope and name
		return "baseline/" + p.info.Scope + "/" + p.name
	}
	return p.info.Scope + "/" + p.name
}

// ID returns the ID of the tracepoint in plans and spans. It contains the service name.
func (p *Point) ID() string {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.id
}

// SetService sets the service name, which changes the IDs of all tracepoints. It must be called before the first plan
// is applied. [Connect] calls it.
func (r *Registry) SetService(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == r.service {
		return
	}
	r.service = name
	clear(r.byID)
	for _, p := range r.sorted() {
		r.assignID(p)
	}
}

func (r *Registry) serviceName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.service
}

// tracerFor returns the tracer for children of spans of p. If p is nil, because no provider of r started the spans, it
// returns the tracer of r's latest provider or, if r has no provider, of OpenTelemetry's global provider.
func (r *Registry) tracerFor(p *provider) trace.Tracer {
	if p != nil {
		return p.tracepointTracer
	}
	if b := r.defaultTracer.Load(); b != nil {
		return b.tracer
	}
	return otel.Tracer(Scope)
}
