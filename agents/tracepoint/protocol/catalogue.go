package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// Layer is the layer of the software stack that a tracepoint belongs to.
type Layer string

// The layers.
const (
	App     Layer = "app"
	Runtime Layer = "runtime"
	Kernel  Layer = "kernel"
)

// Kind is the kind of data that an enabled tracepoint emits.
type Kind string

// The kinds of tracepoint.
const (
	SpanPoint     Kind = "span"     // a span around an operation
	VariablePoint Kind = "variable" // an attribute of the enclosing span; Operation is its key
	ProbePoint    Kind = "probe"    // a kernel probe
)

// SpanKind is the kind of a span in OpenTelemetry.
type SpanKind string

// The kinds of span. An empty SpanKind means Internal in a [Tracepoint] and any kind in a [Filter].
const (
	Internal SpanKind = "internal"
	Server   SpanKind = "server"
	Client   SpanKind = "client"
	Producer SpanKind = "producer"
	Consumer SpanKind = "consumer"
)

// Tracepoint is a point in a program where an agent can enable instrumentation.
type Tracepoint struct {
	// ID is stable across restarts and deployments, equal in all agents of a service, and unique across services: it
	// contains the service name. Spans carry it as sibyl.tracepoint.id.
	ID        string   `json:"id"`
	Layer     Layer    `json:"layer"`
	Kind      Kind     `json:"kind"`
	Service   string   `json:"service"`
	Scope     string   `json:"scope,omitempty"`     // instrumentation scope
	Operation string   `json:"operation"`           // name of its spans, or key of a variable's attribute
	SpanKind  SpanKind `json:"span_kind,omitempty"` // kind of its spans
	// Code is the place in the source, for display: a function, or a file and a line.
	Code      string   `json:"code,omitempty"`
	Parent    string   `json:"parent_hint,omitempty"` // ID of the tracepoint that calls it
	Owner     string   `json:"owner_hint,omitempty"`  // name of the baseline span, in the same service, that it runs in
	OwnerKind SpanKind `json:"owner_span_kind,omitempty"`
	CostNanos int64    `json:"cost_ns"` // estimated CPU time per hit; 0 if unknown
	Bytes     int      `json:"bytes"`   // estimated trace data per hit; 0 if unknown
	Baseline  bool     `json:"default"` // always enabled; plans cannot disable it
}

// SortCatalogue sorts tracepoints in catalogue order, ascending by ID.
func SortCatalogue(tracepoints []Tracepoint) {
	slices.SortFunc(tracepoints, func(a, b Tracepoint) int { return cmp.Compare(a.ID, b.ID) })
}

// Catalogue identifies the set of all tracepoints of an agent.
type Catalogue struct {
	Hash string `json:"hash"` // HashCatalogue of all tracepoints
	Size int    `json:"size"` // number of tracepoints
}

// Pages returns the number of pages of the catalogue, which is 0 if it is empty.
func (c Catalogue) Pages() int { return (c.Size + PageSize - 1) / PageSize }

// Page returns the bounds of page n, counted from 0, in the list of all tracepoints.
func (c Catalogue) Page(n int) (from, to int) { return n * PageSize, min((n+1)*PageSize, c.Size) }

// Page is one page of a catalogue.
type Page struct {
	Number      int          `json:"number"` // from 0
	Tracepoints []Tracepoint `json:"tracepoints"`
}

// Capability is an optional feature of an agent.
type Capability string

// The capabilities.
const (
	CanSpan     Capability = "span"
	CanVariable Capability = "variable"
	CanProbe    Capability = "probe"
	CanRate     Capability = "rate"   // Enabled.Rate below 1
	CanFilter   Capability = "filter" // Enabled.Filter
	CanStacks   Capability = "stacks" // Status.Stacks
)

// Registration is the body of PUT. It describes the agent and contains at most one page of its catalogue.
//
// Agents of one service usually have the same catalogue. An agent whose catalogue has several pages therefore first
// registers without a page, and then sends the pages that the response lists as missing.
type Registration struct {
	Protocol int `json:"protocol"`
	// Session is a random value chosen when the agent starts. It distinguishes two agents that chose the same ID.
	Session      string            `json:"session"`
	Resource     map[string]string `json:"resource"` // attributes of the OpenTelemetry resource, including service.name
	Capabilities []Capability      `json:"capabilities"`
	Catalogue    Catalogue         `json:"catalogue"`
	Page         *Page             `json:"page,omitempty"`
}

// Registered is the response to a Registration.
type Registered struct {
	Protocol int   `json:"protocol"`
	Missing  []int `json:"missing,omitempty"` // pages of the catalogue that the agent has to send
}

// Problem is the body of an error response.
type Problem struct {
	Error string `json:"error"` // for display
}

// Service returns the name of the agent's service.
func (r *Registration) Service() string { return r.Resource["service.name"] }

// Validate returns an [InvalidError], or an error wrapping [ErrVersion], if r is not valid. It checks the hash of the
// catalogue only if there is a single page, because the hash covers all pages.
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
		return invalid("page.number", "%d: the catalogue has %d pages", p.Number, of.Pages())
	}
	if from, to := of.Page(p.Number); len(p.Tracepoints) != to-from {
		return invalid("page.tracepoints", "got %d entries, want %d", len(p.Tracepoints), to-from)
	}
	for i := range p.Tracepoints {
		t, field := &p.Tracepoints[i], fmt.Sprintf("page.tracepoints[%d]", i)
		if i > 0 && p.Tracepoints[i-1].ID >= t.ID {
			return invalid(field+".id", "%q after %q: not in ascending order", t.ID, p.Tracepoints[i-1].ID)
		}
		if err := t.validate(field); err != nil {
			return err
		}
	}
	if of.Pages() == 1 && HashCatalogue(p.Tracepoints) != of.Hash {
		return invalid("catalogue.hash", "does not match the tracepoints")
	}
	return nil
}

func (t *Tracepoint) validate(field string) error {
	for _, f := range []struct{ name, text string }{{"id", t.ID}, {"service", t.Service}, {"operation", t.Operation}} {
		if err := checkName(field+"."+f.name, f.text); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, text string }{
		{"scope", t.Scope}, {"code", t.Code}, {"parent_hint", t.Parent}, {"owner_hint", t.Owner},
	} {
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
		return invalid(field+".span_kind", "%q is not a span kind", t.SpanKind)
	case !t.OwnerKind.valid():
		return invalid(field+".owner_span_kind", "%q is not a span kind", t.OwnerKind)
	}
	if err := checkRange(field+".cost_ns", float64(t.CostNanos), 0, MaxCPU); err != nil {
		return err
	}
	return checkRange(field+".bytes", float64(t.Bytes), 0, MaxHitBytes)
}

func (k SpanKind) valid() bool {
	return k == "" || slices.Contains([]SpanKind{Internal, Server, Client, Producer, Consumer}, k)
}
