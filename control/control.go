// Package control distributes plans to agents. It knows the connected agents and their catalogues of tracepoints,
// sends each agent its part of the plan, and reduces the reports of agents to input for decisions ([search.Feedback]).
// Agents connect over HTTP ([Plane.Handler]) or OpAMP (package control/opamp).
//
// The state is lost on restart, but agents register again, and the engine stores the input for decisions. An agent that
// receives no answer returns to its baseline when its lease ends, so that no tracepoint stays on if this package or the
// network fails.
//
// Agents, catalogues and the memory for messages are bounded. Agents with equal catalogues share one catalogue and one
// encoded plan: ten thousand agents of twenty services need twenty of each.
package control

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Engine receives the reports of agents.
type Engine interface {
	// Record returns once f is durable. If it returns an error, a later call repeats the report.
	Record(ctx context.Context, f *search.Feedback) error
}

// Options configures a [Plane]. Zero fields stand for the default values below.
type Options struct {
	Lease        time.Duration // how long a plan applies after the last answer
	CatalogueTTL time.Duration // how long a catalogue without agents is kept, unless another one replaces it
	MaxBuffered  int64         // bytes of messages in memory
	MaxAgents    int
	// MaxTracepoints is the maximum number of tracepoints in all catalogues; agents that share one count once.
	MaxTracepoints int
	Clock          func() time.Time // nil means time.Now
	Log            *slog.Logger
}

// Defaults of [Options] and fixed limits.
const (
	defaultLease        = 90 * time.Second
	defaultCatalogueTTL = 10 * time.Minute
	defaultMaxBuffered  = 256 << 20
	defaultMaxAgents    = 20_000
	tick                = time.Second
	measureTicks        = 5 // ticks between reports of measurements
	recordTimeout       = 10 * time.Second
	// defaultMaxTracepoints is the default of MaxTracepoints.
	defaultMaxTracepoints = 1_000_000
	// outcomesPerTracepoint is the maximum number of outcomes of all agents, as a multiple of MaxTracepoints.
	outcomesPerTracepoint = 2
	// textPerTracepoint is the maximum size of the texts in all catalogues, in bytes, as a multiple of MaxTracepoints.
	textPerTracepoint = 160
)

// Plane is the control plane. Call New, Begin, Run and Close, in this order. It is safe for concurrent use.
type Plane struct {
	Messages *Messages // limits the memory of messages being read or processed

	options   Options
	engine    Engine
	published atomic.Pointer[published]
	begun     chan struct{} // closed by Begin
	closing   chan struct{} // closed by Close
	counts    Counts

	mu           sync.Mutex // guards the fields below, except the fields of catalogues that have a mutex of their own
	agents       agents
	catalogues   catalogues
	lastReported lastReported
	sampling     map[string]bool          // services whose stacks are wanted
	stacks       map[stackKey]*stackTimes // stacks that are not recorded yet
}

// Counts counts the work of a [Plane] since its start.
type Counts struct {
	Registered, Plans, Unchanged, Statuses atomic.Int64 // number of answers, by kind
	Refused                                atomic.Int64 // number of refused requests
	NoRoom                                 atomic.Int64 // number of requests refused with ErrTracepoints
	Conflicts                              atomic.Int64 // number of messages that use the ID of another agent
	Expired                                atomic.Int64 // number of agents removed after a time without messages
	Displaced                              atomic.Int64 // number of agents removed in favour of agents of other tokens
}

// New returns a Plane. It accepts plans, but refuses agents with [ErrStarting] until Begin is called.
func New(engine Engine, o Options) *Plane {
	o.Lease, o.CatalogueTTL = cmp.Or(o.Lease, defaultLease), cmp.Or(o.CatalogueTTL, defaultCatalogueTTL)
	o.MaxBuffered, o.MaxAgents = cmp.Or(o.MaxBuffered, defaultMaxBuffered), cmp.Or(o.MaxAgents, defaultMaxAgents)
	o.MaxTracepoints = cmp.Or(o.MaxTracepoints, defaultMaxTracepoints)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	p := &Plane{
		Messages:   newMessages(o.MaxBuffered),
		options:    o,
		engine:     engine,
		begun:      make(chan struct{}),
		closing:    make(chan struct{}),
		agents:     agents{byID: make(map[string]*agent), perPrincipal: make(map[string]int)},
		catalogues: catalogues{byHash: make(map[string]*catalogue), limit: o.MaxTracepoints},
		stacks:     make(map[stackKey]*stackTimes),
	}
	p.published.Store(newPublished(p.newPlan(0), nil))
	return p
}

// Begin lets agents register. The caller must publish the current plan first. known lists the services whose catalogues
// the engine has.
func (p *Plane) Begin(known []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastReported = newLastReported(known, p.options.Clock())
	close(p.begun)
}

// ready returns ErrStarting until Begin is called.
func (p *Plane) ready() error {
	select {
	case <-p.begun:
		return nil
	default:
		return ErrStarting
	}
}

// Close answers all agents that are waiting for a plan. It must be called only once.
func (p *Plane) Close() { close(p.closing) }

// Counts returns the counters of p.
func (p *Plane) Counts() *Counts { return &p.counts }

// published is a plan for all agents. It is immutable, except for the fields that track waiting agents.
type published struct {
	plan    *protocol.Plan
	enabled map[string]bool // IDs of the tracepoints in any arm
	next    chan struct{}   // closed when the next plan is published
	// delivered is closed once every agent that was waiting for this plan has received it. It is nil for the initial
	// plan.
	delivered <-chan struct{}

	waiting atomic.Int64  // number of agents that have this plan and wait for the next one
	drained chan struct{} // closed when the next plan is published and no agent waits any longer
	once    sync.Once     // closes drained
}

func newPublished(plan *protocol.Plan, delivered <-chan struct{}) *published {
	b := &published{
		plan:      plan,
		enabled:   make(map[string]bool),
		next:      make(chan struct{}),
		delivered: delivered,
		drained:   make(chan struct{}),
	}
	for i := range plan.Arms {
		for k := range plan.Arms[i].Tracepoints {
			b.enabled[plan.Arms[i].Tracepoints[k].ID] = true
		}
	}
	return b
}

// enables reports whether an arm of the plan enables the tracepoint with the given id.
func (b *published) enables(id string) bool { return b.enabled[id] }

// removeWaiting records that the given number of agents have stopped waiting. It closes drained if the plan was
// replaced and no agent waits any longer.
func (b *published) removeWaiting(agents int64) {
	if b.waiting.Add(-agents) > 0 {
		return
	}
	select {
	case <-b.next:
		b.once.Do(func() { close(b.drained) })
	default:
	}
}

// newPlan returns a plan with the given version and no arms.
func (p *Plane) newPlan(version int64) *protocol.Plan {
	return &protocol.Plan{
		Protocol:     protocol.Version,
		Version:      version,
		LeaseSeconds: int(p.options.Lease.Seconds()),
		Arms:         []protocol.Arm{},
	}
}

// Publish sends plan to all agents. table must contain the symbols in it. A plan with the current version is ignored.
func (p *Plane) Publish(plan *search.Plan, table *trace.Table) {
	before := p.published.Load()
	if before.plan.Version == plan.Version {
		return
	}
	next := p.newPlan(plan.Version)
	for i := range plan.Arms {
		a := &plan.Arms[i]
		next.Arms = append(next.Arms, protocol.Arm{
			Name:        search.ArmName(a.Name),
			Share:       a.Share,
			Tracepoints: []protocol.Enabled{},
		})
	}
	for i := range plan.Leases {
		l := &plan.Leases[i]
		arm := &next.Arms[l.Arm]
		arm.Tracepoints = append(arm.Tracepoints, protocol.Enabled{ID: table.Text(l.Tracepoint), Rate: 1})
	}
	for i := range next.Arms {
		sorting.Slice(next.Arms[i].Tracepoints, func(a, b protocol.Enabled) int { return cmp.Compare(a.ID, b.ID) })
	}
	p.published.Store(newPublished(next, before.drained))
	close(before.next)
	before.removeWaiting(0)
}

// Run removes agents that have fallen silent, and reports changes to the engine, until ctx is done. Call Begin first.
func (p *Plane) Run(ctx context.Context) error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		p.expire()
		f, accepted := p.feedback(n%measureTicks == 0)
		if f == nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, recordTimeout)
		err := p.engine.Record(limited, f)
		cancel()
		if err == nil {
			accepted()
		} else if ctx.Err() == nil {
			p.options.Log.WarnContext(ctx, "reports of agents could not be recorded and will be repeated",
				slog.Any("error", err))
		}
	}
}
