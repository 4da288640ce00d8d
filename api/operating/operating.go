// Package operating serves the operators of Sibyl: status, metrics, events, webhooks, backups, saved views and the
// audit log.
package operating

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/store"
)

// Service is the running service. [live.Service] implements it.
type Service interface {
	Ready() bool
	Leader() string
	Standby() *refusal.Error
	Space() live.Space
	Counts() *live.Counts
	Lag() live.Lag
}

// RareCalls finds the operations with too few calls. [services.Services] implements it.
type RareCalls interface {
	FewCalls(ctx context.Context, s *epoch.Snapshot) (*contract.FewCalls, error)
}

// AgentCounts counts the agents. [control.Plane] implements it.
type AgentCounts interface {
	Summary() control.Summary
	Counts() *control.Counts
}

// Tenants manages the tenants of the process.
type Tenants interface {
	// Tenants returns all tenants, the default one first.
	Tenants() []contract.Tenant
	// CreateTenant creates and opens a tenant. It returns a refusal if t is invalid or conflicts with other tenants.
	CreateTenant(ctx context.Context, t contract.TenantRequest) error
	// DeleteTenant deletes a tenant with all its data. It returns a refusal if there is no such tenant.
	DeleteTenant(ctx context.Context, name string) error
}

// Size is the size of a queue or of another part of the service, and its limit.
type Size struct {
	Name         string // used as a label, like "arrivals"
	Length, Most int64  // Most is 0 if there is no limit
}

// Options configure Operating.
type Options struct {
	Tenant  string  // name of the tenant; empty: the default one
	Tenants Tenants // nil: there is only one
	Version string  // of this build
	Go      string  // version of the compiler
	Calls   RareCalls
	// Silenced is [cases.Cases.Silenced].
	Silenced    func(*epoch.Snapshot) map[uint64]*contract.Silenced
	Agents      AgentCounts                 // nil: the service controls no agents
	Directory   func() *directory.Directory // owners of services
	Queues      func() []Size               // lengths of the service's queues; may be nil
	Bytes       func() []Size               // sizes in bytes, on disk or in memory; may be nil
	Registry    *prometheus.Registry        // additional metrics; may be nil
	Webhooks    func() []notify.Webhook     // configured webhooks
	DeadLetters *store.Outbox               // holds the dead letters
	Resend      func(uint64) error          // resends the dead letter with the given number
	Backup      func() (string, error)      // copies the data and returns the directory; nil if there is no data
	Views       *Views
	Audit       *audit.Log
	Clock       func() time.Time
	Log         *slog.Logger
}

// Operating serves the operators of Sibyl: status, metrics, events, webhooks, backups, saved views and the audit log.
// It is safe for concurrent use.
type Operating struct {
	reader  *epoch.Reader
	service Service
	options Options

	metrics *metrics
	hub     hub
	opened  atomic.Int64 // number of incidents that opened or reopened in this run
}

// New returns handlers for operators.
func New(r *epoch.Reader, service Service, options Options) *Operating {
	a := &Operating{reader: r, service: service, options: options}
	a.metrics = newMetrics(a)
	a.hub.start(options.Clock())
	return a
}
