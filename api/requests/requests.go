// Package requests serves groups of requests: their statistics, durations, comparisons and trees, and their stored
// traces.
package requests

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// History reads stored traces and the windows of past days. [store.Store] implements it.
type History interface {
	// Exemplars returns the exemplars of a group or request type. The result is empty if it is unknown. Kept returns
	// the exemplars kept for a problem or an incident.
	Exemplars(group analysis.Hash) (*store.Exemplars, error)
	Kept(of search.Subject, group analysis.Hash) (*store.Exemplars, error)
	// EachExemplars calls f with the exemplars of every group. EachKept calls f with the exemplars kept for problems
	// and incidents.
	EachExemplars(f func(group analysis.Hash, e *store.Exemplars) error) error
	EachKept(f func(of search.Subject, group analysis.Hash, e *store.Exemplars) error) error
	// Trace returns a stored trace as an OTLP request in protobuf, or nil if it isn't stored.
	Trace(id trace.ID) ([]byte, error)
	// Windows returns the windows of a group that overlap [from, to), oldest first. If long is true, they are the long
	// ones, or else the shortest available.
	Windows(id analysis.Hash, from, to trace.Nanos, long bool) ([]group.Numbers, error)
	// Ticks returns the requests of a group in [from, to), oldest first: by tick of ten seconds for the last
	// [live.TicksKept], and by minute before that, up to [live.MinutesKept]. Periods returns them by [group.Period] for
	// the last two days.
	Ticks(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
	Periods(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
}

// Options configure Requests.
type Options struct {
	// Whole returns the trace of a request kept for comparisons, as an OTLP request in protobuf with all attributes, or
	// nil if the trace isn't kept.
	Whole     func(id trace.ID) ([]byte, error)
	Failing   ingest.FailureRules      // rules that decide which spans of stored traces have failed
	Directory func() *notify.Directory // links to tracing backends
	Clock     func() time.Time
}

// Requests serves groups of requests, their trees and their traces. It is safe for concurrent use.
type Requests struct {
	reader  *epoch.Reader
	history History
	options Options
}

// New returns handlers for groups of requests.
func New(r *epoch.Reader, history History, options Options) *Requests {
	return &Requests{r, history, options}
}

// renderer renders groups and trees.
type renderer struct{ render.Renderer }
