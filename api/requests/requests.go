// Package requests serves groups of requests: their statistics, durations, comparisons and trees, and their stored
// traces.
package requests

import (
	"time"

	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure Requests.
type Options struct {
	// Whole returns the trace of a request kept for comparisons, as an OTLP request in protobuf with all attributes, or
	// nil if the trace isn't kept.
	Whole     func(id trace.ID) ([]byte, error)
	Failing   ingest.FailureRules         // rules that decide which spans of stored traces have failed
	Directory func() *directory.Directory // links to tracing backends
	Clock     func() time.Time
}

// Requests serves groups of requests, their trees and their traces. It is safe for concurrent use.
type Requests struct {
	reader  *epoch.Reader
	store   *store.Store
	options Options
}

// New returns handlers for groups of requests.
func New(r *epoch.Reader, s *store.Store, options Options) *Requests {
	return &Requests{r, s, options}
}

// renderer renders groups and trees.
type renderer struct{ render.Renderer }
