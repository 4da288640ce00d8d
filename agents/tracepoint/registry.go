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

// Scope is the instrumentation scope of the spans that [Point.Start] makes.
const Scope = "github.com/sibyl-trace/sibyl/agents/tracepoint"

// UnknownService is the name of the service until somebody tells.
const UnknownService = "unknown_service"

// maxPairs bounds the tracepoints that a registry makes of the spans of others: names of spans may be made of data.
const maxPairs = 4096

// Registry holds the tracepoints of one service and what is on of them. A process mostly has one, [Default]; several are for
// several services in one process, as in tests.
type Registry struct {
	state     atomic.Pointer[state]   // never nil
	tracer    atomic.Pointer[factory] // of spans below spans that no Provider made
	labels    atomic.Bool             // set goroutine labels
	connected atomic.Bool             // it has an agent
	changed   chan struct{}           // holds one value if the catalogue changed since it was last received

	mu      sync.Mutex // guards what follows, and writing of state and of every Point.on
	service string
	points  map[pointKey]*Point
	byID    map[string]*Point
	pairs   int  // points that providers found
	explore bool // explore arms are allowed
}

// factory makes the spans of tracepoints.
type factory struct{ tracer trace.Tracer }

// Default is the registry of the package's functions.
var Default = NewRegistry(UnknownService)

// NewRegistry returns a registry without tracepoints, for the service of the given name.
func NewRegistry(service string) *Registry {
	r := &Registry{
		changed: make(chan struct{}, 1), service: service, points: make(map[pointKey]*Point), byID: make(map[string]*Point), explore: true,
	}
	r.state.Store(new(state))
	return r
}

// pointKey is what tells tracepoints of one service apart.
type pointKey struct {
	kind        protocol.Kind
	scope, name string
	baseline    bool
}

// Point is a place that can be switched on: one that makes spans, or what a [Variable] stands on.
type Point struct {
	on       atomic.Pointer[switches] // nil: off for every request
	registry *Registry
	name     string
	hits     atomic.Uint64 // times it was executed while on
	drops    atomic.Uint64 // of these, that recorded nothing, because the request is not sampled
	measured measured

	owner   atomic.Pointer[Point] // of the baseline, in whose spans a Provider's was seen; nil: in none yet; &several
	renamed atomic.Bool           // of the baseline: its spans end with another name than they start with

	about protocol.Tracepoint // without ID; constant
	id    string              // guarded by registry.mu
}

// several stands for more than one owner, and for one that is not known.
var several Point

// seenIn notes that p, which a [Provider] found, runs in spans of owner; nil: of one that is not known. It changes the catalogue
// twice at most: when there is an owner and when there is another.
func (p *Point) seenIn(owner *Point) {
	if owner == nil {
		owner = &several
	}
	for {
		was := p.owner.Load()
		if was == owner || was == &several {
			return
		}
		next := owner
		if was != nil {
			next = &several
		}
		if p.owner.CompareAndSwap(was, next) {
			p.registry.tellChanged()
			return
		}
	}
}

// rename notes that a span of p, which is of the baseline, got the given name. Sibyl knows it by that, so that nothing says any more
// that it runs in spans of p.
func (p *Point) rename(name string) {
	if name != p.name && p.renamed.CompareAndSwap(false, true) {
		p.registry.tellChanged()
	}
}

// ownerHint returns name and kind of the baseline span in which p runs; nothing if that is not known. The caller holds registry.mu.
func (p *Point) ownerHint() (name string, kind protocol.SpanKind) {
	if o := p.owner.Load(); o != nil && o != &several && !o.renamed.Load() {
		return o.about.Operation, o.about.SpanKind
	}
	return p.about.Owner, p.about.OwnerKind
}

// switches says for which requests a point is on.
type switches struct {
	settings []setting
	id       []attribute.KeyValue // the one attribute that spans carry
}

// setting says that a point is on for requests of an arm.
type setting struct {
	arm     *arm
	rate    float64
	filters uint64 // one bit, that the request's must have; 0: any will do
}

// A PointOption says more about a place, so that Sibyl knows where it belongs before it was ever on.
type PointOption func(*protocol.Tracepoint)

// WithParent says that the place is mostly called from another one. For a variable it is the span that it is captured on.
func WithParent(p *Point) PointOption {
	return func(t *protocol.Tracepoint) { t.Parent = p.path() }
}

// WithOwner says that the place runs in spans, which are always on, of the given name and kind.
func WithOwner(name string, kind trace.SpanKind) PointOption {
	return func(t *protocol.Tracepoint) { t.Owner, t.OwnerKind = name, spanKind(kind) }
}

// WithCode says where the place is, for people: a function, or a file and a line.
func WithCode(code string) PointOption {
	return func(t *protocol.Tracepoint) { t.Code = code }
}

// Span returns the tracepoint of the given name, which makes spans of that name while it is on. The same name is the same
// tracepoint. It panics unless name is a printable text of 1 to 128 bytes.
func Span(name string, options ...PointOption) *Point { return Default.Span(name, options...) }

// Span is [Span], in r.
func (r *Registry) Span(name string, options ...PointOption) *Point {
	return r.point(pointKey{kind: protocol.SpanPoint, name: name}, options)
}

// maxName bounds the names of tracepoints, in bytes, so that there is room for a service in their IDs.
const maxName = 128

// point returns the one with key, which it makes if there is none.
func (r *Registry) point(key pointKey, options []PointOption) *Point {
	if !validText(key.name, maxName) {
		panic(fmt.Sprintf("tracepoint: %q is not a printable text of 1 to %d bytes", key.name, maxName))
	}
	about := protocol.Tracepoint{Kind: key.kind, Operation: key.name, Scope: Scope, CostNanos: spanNanos, Bytes: spanBytes(key.name)}
	if key.kind == protocol.VariablePoint {
		about.CostNanos, about.Bytes = variableNanos, variableBytes
	} else {
		about.SpanKind = protocol.Internal
	}
	for _, o := range options {
		o(&about)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.points[key]; p != nil {
		return p
	}
	return r.add(key, about)
}

// add adds a point. The caller holds r.mu.
func (r *Registry) add(key pointKey, about protocol.Tracepoint) *Point {
	about.Layer = protocol.App
	p := &Point{registry: r, name: key.name, about: about}
	r.points[key] = p
	r.identify(p)
	if s := r.settings(p); s != nil {
		p.on.Store(s)
	}
	r.tellChanged()
	return p
}

// tellChanged says that the catalogue is not what it was.
func (r *Registry) tellChanged() {
	select {
	case r.changed <- struct{}{}:
	default: // told already
	}
}

// identify gives p its ID: the service and the name, and a number where another point has that already. The caller holds r.mu.
func (r *Registry) identify(p *Point) {
	id := r.service + "/" + p.path()
	for n := 2; r.byID[id] != nil; n++ {
		id = r.service + "/" + p.path() + "#" + strconv.Itoa(n)
	}
	p.id = id
	r.byID[id] = p
}

// path is what tells p from others of its service.
func (p *Point) path() string {
	switch {
	case p.about.Scope == Scope:
		return p.name
	case p.about.Baseline: // the same name may also be that of spans that are no part of it
		return "baseline/" + p.about.Scope + "/" + p.name
	}
	return p.about.Scope + "/" + p.name
}

// ID returns what plans and spans call the tracepoint: the name of the service is part of it.
func (p *Point) ID() string {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.id
}

// SetService says of which service the tracepoints are. It must come before the first plan; [Connect] calls it.
func (r *Registry) SetService(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == r.service {
		return
	}
	r.service = name
	clear(r.byID)
	for _, p := range r.sorted() {
		r.identify(p)
	}
}

func (r *Registry) serviceName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.service
}

// tracerFor returns what makes spans below a span of the given provider; nil: below one that no provider of r made.
func (r *Registry) tracerFor(p *provider) trace.Tracer {
	if p != nil {
		return p.native
	}
	if f := r.tracer.Load(); f != nil {
		return f.tracer
	}
	return otel.Tracer(Scope)
}
