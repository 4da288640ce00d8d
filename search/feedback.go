package search

import (
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Feedback is a report from agents, reduced to the fields that affect decisions. An empty field changes nothing.
type Feedback struct {
	At          trace.Nanos   `cbor:"-"` // when the report was recorded
	Catalogues  []Catalogue   `json:",omitempty"`
	Costs       []Cost        `json:",omitempty"`
	Unavailable []Unavailable `cbor:",omitempty"`
	Measured    *Measured     `json:",omitempty"`
	Stacks      []Stacks      `cbor:",omitempty" json:",omitempty"`
}

// Catalogue lists all tracepoints that the agents of a service can switch on now. It replaces the earlier list, even
// if it is empty.
type Catalogue struct {
	Service     string
	Tracepoints []Announced
}

// Announced is a [cct.Tracepoint] with strings in place of symbols.
type Announced struct {
	ID        string
	Name      string             // name of its spans, or the key of a variable's attribute
	Parent    string             `json:",omitempty"` // ID of the tracepoint that it is called from; empty if unknown
	Owner     string             `json:",omitempty"` // name of the baseline span that it runs in; empty if unknown
	Cost      time.Duration      `json:",omitempty"` // CPU time per hit; 0 if unknown
	Bytes     int32              `json:",omitempty"` // bytes per hit; 0 if unknown
	Span      trace.Kind         `json:",omitempty"` // kind of its spans
	OwnerSpan trace.Kind         `json:",omitempty"`
	Layer     cct.Layer          `json:",omitempty"`
	Kind      cct.TracepointKind `json:",omitempty"`
	Baseline  bool               `json:",omitempty"`
}

// Cost is the measured cost of a hit of a tracepoint. It takes precedence over catalogues until the next measurement.
type Cost struct {
	ID    string
	CPU   time.Duration
	Bytes int32
}

// Unavailable marks a tracepoint that cannot be switched on for the duration For. If For is 0, the tracepoint is
// available again.
type Unavailable struct {
	ID  string
	For time.Duration
}

// Measured is the cost of a plan, as measured by all agents together.
type Measured struct {
	Plan             int64   // version of the plan
	Hits, Bytes, CPU float64 // per second; CPU in seconds
}

// Stacks holds the times that slow requests of a baseline operation spent in tracepoints, from the stacks that agents
// sampled.
type Stacks struct {
	Service, Operation string
	Kind               trace.Kind
	Requests           int
	Time               time.Duration // time of all these requests together
	Tracepoints        []StackTime   // tracepoints on a stack, ascending by ID
}

// StackTime is the time that requests spent in a tracepoint.
type StackTime struct {
	ID    string
	Total time.Duration // including the time in tracepoints that it calls
	Own   time.Duration
}
