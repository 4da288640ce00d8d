// Package control is between decisions and agents. It knows which agents there are and what each can switch on, tells each its part of the
// plan, and reduces what they report to what decisions depend on ([search.Feedback]). Agents come over HTTP ([Plane.ServeHTTP]) or OpAMP
// (package control/opamp).
//
// What it knows is not kept over a restart: agents register again. What decisions depend on goes to the engine, which keeps it. Agents that
// hear nothing go back to their baseline when their lease ends, so that nothing stays on because this package, or the way to it, fails.
//
// Everything is bounded: agents, catalogues, bodies that are read at a time. Ten thousand agents of twenty services share twenty
// catalogues, and twenty bodies of a plan.
package control

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Engine is told what agents say.
type Engine interface {
	// Record returns once f is durable. After an error it is called again later.
	Record(ctx context.Context, f *search.Feedback) error
}

// Options choose how a [Plane] works. Zero fields have the values of the constants below.
type Options struct {
	Lease     time.Duration // how long a plan applies after the last answer
	Forget    time.Duration // how long a service keeps its catalogue that no agent answers for
	Reading   int64         // bytes of bodies that are read at a time
	MaxAgents int
	Clock     func() time.Time // nil: time.Now
	Log       *slog.Logger
}

// What holds if options say nothing, and bounds that they do not change.
const (
	defaultLease     = 90 * time.Second
	defaultForget    = 10 * time.Minute
	defaultReading   = 256 << 20
	defaultMaxAgents = 20_000
	maxTracepoints   = 1_000_000 // of all catalogues together, each counted once
	maxOutcomes      = 4_000_000 // of tracepoints, of all agents together
	tick             = time.Second
	measureTicks     = 5 // ticks between two looks at what agents measured
	recordWithin     = 10 * time.Second
)

// Plane is the control plane. Its life is New, Begin, Run and Close; it is safe for concurrent use.
type Plane struct {
	options   Options
	engine    Engine
	published atomic.Pointer[published]
	reading   atomic.Int64  // bytes of bodies that are being read or worked on
	bodies    chan struct{} // one element for each body that is being worked on: half of the cores are left for plans
	begun     chan struct{} // closed when agents are answered
	closing   chan struct{} // closed when nobody waits any more
	counts    Counts

	mu           sync.Mutex // guards all below, and what agents and catalogues hold
	agents       map[string]*agent
	catalogues   map[string]*catalogue // by hash
	tracepoints  int                   // of all catalogues
	held         int                   // outcomes of all agents
	lastReported lastReported
}

// Counts says what happened since the start.
type Counts struct {
	Registered, Plans, Unchanged, Statuses atomic.Int64 // answers
	Refused, Conflicts, Expired            atomic.Int64 // requests; agents that took another's id; agents that were not heard of any more
}

// New returns a Plane that takes plans and refuses agents until it begins.
func New(engine Engine, o Options) *Plane {
	o.Lease, o.Forget, o.MaxAgents = cmp.Or(o.Lease, defaultLease), cmp.Or(o.Forget, defaultForget), cmp.Or(o.MaxAgents, defaultMaxAgents)
	o.Reading = cmp.Or(o.Reading, defaultReading)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	p := &Plane{
		options: o, engine: engine, bodies: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), begun: make(chan struct{}), closing: make(chan struct{}),
		agents: make(map[string]*agent), catalogues: make(map[string]*catalogue),
	}
	p.published.Store(newPublished(p.newPlan(0), nil))
	return p
}

// Begin has agents answered, once the plan that holds was published. Known holds the services whose catalogues the engine has.
func (p *Plane) Begin(known []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastReported = newLastReported(known, p.options.Clock())
	close(p.begun)
}

// ready returns an error unless agents are answered.
func (p *Plane) ready() error {
	select {
	case <-p.begun:
		return nil
	default:
		return ErrStarting
	}
}

// Close answers whoever waits. It is called once.
func (p *Plane) Close() { close(p.closing) }

// Counts returns what is counted.
func (p *Plane) Counts() *Counts { return &p.counts }

// published is a plan for all agents. It is immutable.
type published struct {
	plan      *protocol.Plan  // all tracepoints
	on        map[string]bool // these, in any arm; nil: whatever there is, because an arm has everything on
	next      chan struct{}   // closed when another plan is published
	delivered <-chan struct{} // closed when all that waited for this one have it; nil: nobody did

	waiting atomic.Int64 // agents that have this one and wait for the next
	once    sync.Once
	gone    chan struct{} // closed, once, when the next one is published and nobody waits any more
}

func newPublished(plan *protocol.Plan, delivered <-chan struct{}) *published {
	b := &published{plan: plan, on: make(map[string]bool), next: make(chan struct{}), delivered: delivered, gone: make(chan struct{})}
	for i := range plan.Arms {
		if plan.Arms[i].Everything {
			b.on = nil
			break
		}
		for k := range plan.Arms[i].Tracepoints {
			b.on[plan.Arms[i].Tracepoints[k].ID] = true
		}
	}
	return b
}

// wants reports whether the plan has a tracepoint on for any request.
func (b *published) wants(id string) bool { return b.on == nil || b.on[id] }

// leave is called when an agent does not wait for the next plan any more.
func (b *published) leave(agents int64) {
	if b.waiting.Add(-agents) > 0 {
		return
	}
	select {
	case <-b.next:
		b.once.Do(func() { close(b.gone) })
	default:
	}
}

// newPlan returns a plan without arms.
func (p *Plane) newPlan(version int64) *protocol.Plan {
	return &protocol.Plan{Protocol: protocol.Version, Version: version, LeaseSeconds: int(p.options.Lease.Seconds()), Arms: []protocol.Arm{}}
}

// Publish makes plan, which names things by table, the one that agents are told. It does nothing if it is that already.
func (p *Plane) Publish(plan *search.Plan, table *trace.Table) {
	before := p.published.Load()
	if before.plan.Version == plan.Version {
		return
	}
	next := p.newPlan(plan.Version)
	for i := range plan.Arms {
		a := &plan.Arms[i]
		next.Arms = append(next.Arms, protocol.Arm{Name: search.ArmName(a.Name), Share: a.Share, Everything: a.Everything, Tracepoints: []protocol.Enabled{}})
	}
	for i := range plan.Leases {
		l := &plan.Leases[i]
		arm := &next.Arms[l.Arm]
		arm.Tracepoints = append(arm.Tracepoints, protocol.Enabled{ID: table.Text(l.Tracepoint), Rate: 1})
	}
	for i := range next.Arms {
		slices.SortFunc(next.Arms[i].Tracepoints, func(a, b protocol.Enabled) int { return cmp.Compare(a.ID, b.ID) })
	}
	p.published.Store(newPublished(next, before.gone))
	close(before.next)
	before.leave(0)
}

// Run looks after agents and tells the engine what they say, from Begin on until ctx is done.
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
		within, cancel := context.WithTimeout(ctx, recordWithin)
		err := p.engine.Record(within, f)
		cancel()
		if err == nil {
			accepted()
		} else if ctx.Err() == nil {
			p.options.Log.WarnContext(ctx, "what agents say is not taken for now", slog.Any("error", err))
		}
	}
}
