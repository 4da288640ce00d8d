// Package requests serves groups of requests: their statistics, durations, comparisons and trees, and the traces that
// are stored of them.
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

// History reads stored traces, and windows of past days. [store.Store] implements it.
type History interface {
	// Exemplars returns the exemplars of a group or request type; none if it is unknown. Kept returns those that are
	// kept for a problem or an incident.
	Exemplars(group analysis.Hash) (*store.Exemplars, error)
	Kept(of search.Subject, group analysis.Hash) (*store.Exemplars, error)
	// EachExemplars calls f with the exemplars of every group, EachKept with those kept for problems and incidents.
	EachExemplars(f func(group analysis.Hash, e *store.Exemplars) error) error
	EachKept(f func(of search.Subject, group analysis.Hash, e *store.Exemplars) error) error
	// Trace returns a stored trace as an OTLP request in protobuf; nil if it is not stored.
	Trace(id trace.ID) ([]byte, error)
	// Windows returns the windows of a group that overlap [from, to), oldest first: long ones, or the shortest.
	Windows(id analysis.Hash, from, to trace.Nanos, long bool) ([]group.Numbers, error)
	// Ticks returns the requests of a group in [from, to) by tick of ten seconds, of the last [live.TicksKept], and by
	// minute before, of the last [live.MinutesKept]. Periods returns those by period of [group.Period], of the last two
	// days; oldest first.
	Ticks(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
	Periods(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
}

// Options configure Requests.
type Options struct {
	// Whole returns the trace of a request that is kept for comparisons, as an OTLP request in protobuf with all
	// attributes; nil if the trace is not kept.
	Whole     func(id trace.ID) ([]byte, error)
	Failing   ingest.FailureRules      // rules by which spans of stored traces fail
	Directory func() *notify.Directory // links to tracing backends
	Clock     func() time.Time
}

// Requests serves groups of requests, their trees and their traces. It is safe for concurrent use.
type Requests struct {
	reader  *epoch.Reader
	history History
	options Options
}

// New returns handlers.
func New(r *epoch.Reader, history History, options Options) *Requests {
	return &Requests{r, history, options}
}

// renderer renders groups and trees.
type renderer struct{ render.Renderer }
