// Package cases serves incidents and problems with their evidence, notes, comments and reports.
package cases

import (
	"context"
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// ServiceStates judges services. [services.Services] implements it.
type ServiceStates interface {
	// Attention returns the services that are failing, silent or slower as of s. It omits the first suspects of open
	// incidents, because they have another state. Attention reads c, so it must be called while the core may be read.
	Attention(c *engine.View, s *epoch.Snapshot) ([]contract.ServiceAttention, error)
}

// Latencies returns durations over time. [requests.Requests] implements it.
type Latencies interface {
	// Around returns the durations of a group's requests between from and to, in bins. One of the bins starts at edge.
	// The result is empty if the durations aren't kept.
	Around(ctx context.Context, group analysis.Hash, from, to, edge trace.Nanos) ([]contract.PastWindow, error)
}

// Options configure Cases.
type Options struct {
	Notes     *Notes
	Comments  *Comments
	Silences  *Silences
	Services  ServiceStates
	Latencies Latencies
	Telemetry *telemetry.Backends         // systems with logs and metrics
	Directory func() *directory.Directory // owners of services and links
	// Reply posts a text to the response URL of a click in Slack.
	Reply func(ctx context.Context, url, text string) error
	UI    string // address of the UI, for links; empty if unknown
	Clock func() time.Time
	Log   *slog.Logger
}

// Cases serves incidents and problems. It is safe for concurrent use.
type Cases struct {
	reader  *epoch.Reader
	store   *store.Store
	options Options
}

// New returns handlers for incidents and problems.
func New(r *epoch.Reader, s *store.Store, options Options) *Cases {
	return &Cases{r, s, options}
}

// renderer renders incidents and problems.
type renderer struct{ render.Renderer }
