package search

import (
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Feedback is what agents say, reduced to what decisions depend on. Fields that are empty say nothing.
type Feedback struct {
	At         trace.Nanos `json:"-"` // when it was said: the time of its record
	Catalogues []Catalogue `json:",omitempty"`
	Costs      []Cost      `json:",omitempty"`
	Broken     []Broken    `json:",omitempty"`
	Measured   *Measured   `json:",omitempty"`
}

// Catalogue holds all tracepoints that the agents of a service can switch on now, in place of those before. Without any the service has
// none any more.
type Catalogue struct {
	Service     string
	Tracepoints []Announced
}

// Announced is a [cct.Tracepoint] with names as texts.
type Announced struct {
	ID        string
	Name      string             // of its spans; of a variable: the key of its attribute
	Span      trace.Kind         `json:",omitempty"` // of its spans
	Parent    string             `json:",omitempty"` // ID of the one that it is called from; empty: unknown
	Owner     string             `json:",omitempty"` // name of the baseline span in which it runs; empty: unknown
	OwnerSpan trace.Kind         `json:",omitempty"`
	Layer     cct.Layer          `json:",omitempty"`
	Kind      cct.TracepointKind `json:",omitempty"`
	Cost      time.Duration      `json:",omitempty"` // CPU time per hit; 0: unknown
	Bytes     int32              `json:",omitempty"` // per hit; 0: unknown
	Baseline  bool               `json:",omitempty"`
}

// Cost is what a hit of a tracepoint was measured to cost. It stands, whatever catalogues say, until it is measured again.
type Cost struct {
	ID    string
	CPU   time.Duration
	Bytes int32
}

// Broken says that a tracepoint cannot be switched on for a while; For 0: that it can again.
type Broken struct {
	ID  string
	For time.Duration
}

// Measured is what agents measured of a plan, all together.
type Measured struct {
	Plan             int64   // version
	Hits, Bytes, CPU float64 // per second; CPU in seconds
}
