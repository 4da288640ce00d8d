package cct

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Layer is the level of the software stack that a tracepoint belongs to.
type Layer uint8

// The layers, from the top.
const (
	App Layer = iota
	Runtime
	Kernel
)

var layerNames = [...]string{"app", "runtime", "kernel"}

// String returns the lower-case name of l.
func (l Layer) String() string { return layerNames[l] }

// TracepointKind is the kind of data that a tracepoint emits while it is enabled.
type TracepointKind uint8

// The kinds of tracepoint.
const (
	SpanPoint     TracepointKind = iota // a span around an operation
	VariablePoint                       // an attribute on the enclosing span
	ProbePoint                          // a kernel probe: spans around waits
)

var tracepointKindNames = [...]string{"span", "variable", "probe"}

// String returns the lower-case name of k.
func (k TracepointKind) String() string { return tracepointKindNames[k] }

// Tracepoint is an entry of an agent's catalogue: a place in a program where instrumentation can be enabled.
type Tracepoint struct {
	ID       trace.Symbol  // stable across restarts and deployments
	Op       trace.Op      // the operation of its spans; for a variable, of the span that it annotates
	Parent   trace.Symbol  // the tracepoint that calls it; 0 if the agent doesn't know
	Owner    trace.Op      // the baseline operation that it runs in; 0 if the agent doesn't know
	Cost     time.Duration // CPU time per hit, measured or estimated
	Bytes    int32         // extra trace data per hit
	Layer    Layer
	Kind     TracepointKind
	Baseline bool // always enabled
}
