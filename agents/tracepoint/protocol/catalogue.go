package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// Layer is where in the stack a tracepoint sits.
type Layer string

// The layers.
const (
	App     Layer = "app"
	Runtime Layer = "runtime"
	Kernel  Layer = "kernel"
)

// Kind is what a tracepoint emits while it is on.
type Kind string

// The kinds of tracepoint.
const (
	SpanPoint     Kind = "span"     // a span around an operation
	VariablePoint Kind = "variable" // an attribute, called like its Operation, on the enclosing span
	ProbePoint    Kind = "probe"    // a kernel probe
)

// SpanKind is OpenTelemetry's kind of a span.
type SpanKind string

// The kinds of span. The empty one stands for Internal in a [Tracepoint], for any in a [Filter].
const (
	Internal SpanKind = "internal"
	Server   SpanKind = "server"
	Client   SpanKind = "client"
	Producer SpanKind = "producer"
	Consumer SpanKind = "consumer"
)

// Tracepoint is a place where an agent can switch instrumentation on.
type Tracepoint struct {
	// ID is stable across restarts and deployments, the same in all agents of a service, and unlike that of any other place,
	// in other services too: the service is part of it. Spans carry it as sibyl.tracepoint.id.
	ID        string   `json:"id"`
	Layer     Layer    `json:"layer"`
	Kind      Kind     `json:"kind"`
	Service   string   `json:"service"`
	Scope     string   `json:"scope,omitempty"`       // of the instrumentation
	Operation string   `json:"operation"`             // name of its spans; for a variable the key of its attribute
	SpanKind  SpanKind `json:"span_kind,omitempty"`   // of its spans
	Code      string   `json:"code,omitempty"`        // where it is, for people: function or file and line
	Parent    string   `json:"parent_hint,omitempty"` // ID of a tracepoint that it is called from
	Owner     string   `json:"owner_hint,omitempty"`  // name of the baseline span of the same service in which it runs
	OwnerKind SpanKind `json:"owner_span_kind,omitempty"`
	CostNanos int64    `json:"cost_ns"` // estimate of the CPU time that a hit takes; 0: unknown
	Bytes     int      `json:"bytes"`   // estimate of the trace data that a hit makes; 0: unknown
	Baseline  bool     `json:"default"` // on without any plan, and not to be switched off
}

// SortCatalogue sorts tracepoints as a catalogue has them, ascending by ID.
func SortCatalogue(tracepoints []Tracepoint) {
	slices.SortFunc(tracepoints, func(a, b Tracepoint) int { return cmp.Compare(a.ID, b.ID) })
}

// Catalogue says what all tracepoints of an agent together are.
type Catalogue struct {
	Hash string `json:"hash"` // HashCatalogue of all of them
	Size int    `json:"size"` // how many
}

// Pages returns how many pages the catalogue has; none if it is empty.
func (c Catalogue) Pages() int { return (c.Size + PageSize - 1) / PageSize }

// Page returns the bounds of page n, from 0, in the list of all tracepoints.
func (c Catalogue) Page(n int) (from, to int) { return n * PageSize, min((n+1)*PageSize, c.Size) }

// Page is one page of a catalogue.
type Page struct {
	Number      int          `json:"number"` // from 0
	Tracepoints []Tracepoint `json:"tracepoints"`
}

// Capability is something that an agent may or may not know how to do.
type Capability string

// The capabilities.
const (
	CanSpan     Capability = "span"
	CanVariable Capability = "variable"
	CanProbe    Capability = "probe"
	CanRate     Capability = "rate"    // Enabled.Rate below 1
	CanFilter   Capability = "filter"  // Enabled.Filter
	CanExplore  Capability = "explore" // Arm.Everything, and it may be used
)

// Registration is the body of PUT: who the agent is, and one page of what it can switch on, or none.
//
// Agents of one service mostly have the same catalogue. So an agent with more than one page sends none at first, and then
// those that the answer says are missing.
type Registration struct {
	Protocol int `json:"protocol"`
	// Session is made up anew whenever the agent starts: it tells two agents that took the same id apart.
	Session      string            `json:"session"`
	Resource     map[string]string `json:"resource"` // OpenTelemetry's attributes, among them service.name
	Capabilities []Capability      `json:"capabilities"`
	Catalogue    Catalogue         `json:"catalogue"`
	Page         *Page             `json:"page,omitempty"`
}

// Registered is the answer to a Registration.
type Registered struct {
	Protocol int   `json:"protocol"`
	Missing  []int `json:"missing,omitempty"` // pages of the catalogue that are to be sent
}

// Problem is the body of an answer that refuses.
type Problem struct {
	Error string `json:"error"` // for people
}

// Service returns the name of the service that the agent belongs to.
func (r *Registration) Service() string { return r.Resource["service.name"] }

// Validate returns an error, an [InvalidError] or one wrapping [ErrVersion], unless r is a registration that can be worked
// with. A catalogue of one page is held against its hash; that of more can be once all pages are there.
func (r *Registration) Validate() error {
	if err := checkVersion(r.Protocol); err != nil {
		return err
	}
	if err := checkName("session", r.Session); err != nil {
		return err
	}
	if err := checkCount("resource", len(r.Resource), MaxResource); err != nil {
		return err
	}
	for k, v := range r.Resource {
		if err := checkName("resource", k); err != nil {
			return err
		}
		if err := checkText("resource."+k, v, MaxReason); err != nil {
			return err
		}
	}
	if err := checkName("resource.service.name", r.Service()); err != nil {
		return err
	}
	if err := checkCount("capabilities", len(r.Capabilities), MaxArms); err != nil {
		return err
	}
	for i, c := range r.Capabilities {
		if err := checkName(fmt.Sprintf("capabilities[%d]", i), string(c)); err != nil {
			return err
		}
	}
	if err := r.Catalogue.validate(); err != nil || r.Page == nil {
		return err
	}
	return r.Page.validate(r.Catalogue)
}

func (c Catalogue) validate() error {
	if c.Size < 0 || c.Size > MaxCatalogue {
		return invalid("catalogue.size", "%d is not in [0, %d]", c.Size, MaxCatalogue)
	}
	return checkHash("catalogue.hash", c.Hash)
}

func (p *Page) validate(of Catalogue) error {
	if p.Number < 0 || p.Number >= of.Pages() {
		return invalid("page.number", "%d, of %d pages", p.Number, of.Pages())
	}
	if from, to := of.Page(p.Number); len(p.Tracepoints) != to-from {
		return invalid("page.tracepoints", "%d of them, must be %d", len(p.Tracepoints), to-from)
	}
	for i := range p.Tracepoints {
		t, field := &p.Tracepoints[i], fmt.Sprintf("page.tracepoints[%d]", i)
		if i > 0 && p.Tracepoints[i-1].ID >= t.ID {
			return invalid(field+".id", "%q does not follow %q: they must ascend", t.ID, p.Tracepoints[i-1].ID)
		}
		if err := t.validate(field); err != nil {
			return err
		}
	}
	if of.Pages() == 1 && HashCatalogue(p.Tracepoints) != of.Hash {
		return invalid("catalogue.hash", "not that of the tracepoints")
	}
	return nil
}

func (t *Tracepoint) validate(field string) error {
	for _, f := range []struct{ name, text string }{{"id", t.ID}, {"service", t.Service}, {"operation", t.Operation}} {
		if err := checkName(field+"."+f.name, f.text); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, text string }{{"scope", t.Scope}, {"code", t.Code}, {"parent_hint", t.Parent}, {"owner_hint", t.Owner}} {
		if err := checkText(field+"."+f.name, f.text, MaxText); err != nil {
			return err
		}
	}
	switch {
	case !slices.Contains([]Layer{App, Runtime, Kernel}, t.Layer):
		return invalid(field+".layer", "%q is not app, runtime or kernel", t.Layer)
	case !slices.Contains([]Kind{SpanPoint, VariablePoint, ProbePoint}, t.Kind):
		return invalid(field+".kind", "%q is not span, variable or probe", t.Kind)
	case !t.SpanKind.valid():
		return invalid(field+".span_kind", "%q is not a kind of span", t.SpanKind)
	case !t.OwnerKind.valid():
		return invalid(field+".owner_span_kind", "%q is not a kind of span", t.OwnerKind)
	}
	if err := checkRange(field+".cost_ns", float64(t.CostNanos), 0, MaxCPU); err != nil {
		return err
	}
	return checkRange(field+".bytes", float64(t.Bytes), 0, MaxHitBytes)
}

func (k SpanKind) valid() bool {
	return k == "" || slices.Contains([]SpanKind{Internal, Server, Client, Producer, Consumer}, k)
}
