// Package plan serves the parts of the API about the search: tracepoints with their overrides, agents, the plan and its
// budget, investigations and decisions.
package plan

import (
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/control"
)

// Agents lists the agents. [control.Plane] implements it.
type Agents interface {
	Agents() []control.Agent
	Summary() control.Summary
	Counts() *control.Counts
}

// Options configure Plan.
type Options struct {
	Agents Agents // nil: the service controls no agents
	Clock  func() time.Time
	Log    *slog.Logger
}

// Plan serves tracepoints, agents, and the search that enables tracepoints in agents. It is safe for concurrent use.
type Plan struct {
	reader  *epoch.Reader
	log     decisionlog.Reader
	options Options
}

// New returns handlers for the search.
func New(r *epoch.Reader, log decisionlog.Reader, options Options) *Plan {
	return &Plan{r, log, options}
}

// renderer renders tracepoints.
type renderer struct{ render.Renderer }
