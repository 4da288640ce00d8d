//go:build amd64 || arm64

package steer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/symbols"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/exchange"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// stackID identifies a stack of a process. The process is identified by its Service, because process IDs are reused.
type stackID struct {
	process *join.Service
	stack   int32
}

// maxNames limits the number of stacks whose names are kept.
const maxNames = 8192

// Run lets Sibyl steer the kernel agent until ctx is done.
func Run(ctx context.Context, s Settings) (err error) {
	if err := s.Selection.Check(); err != nil {
		return err
	}
	s.Options.StackPeriod = cmp.Or(s.Options.StackPeriod, StackPeriod)
	probes, err := kernel.Open(s.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probes.Close()) }()
	a := newAgent(s, probes)
	defer func() { err = errors.Join(err, a.meter.Close()) }()
	e, err := exchange.New(a.exchangeSettings(), a.steering)
	if err != nil {
		return err
	}
	if err := a.steering.scan(); err != nil {
		return err
	}
	if probes.Others() {
		a.logger.WarnContext(ctx,
			"another kernel agent runs on this machine: waits of processes that both observe are sent twice")
	}
	e.Start(ctx, func() {})
	defer e.Close()
	a.logger.InfoContext(ctx, "observing processes for Sibyl", slog.String("agent", e.ID()),
		slog.Any("services", a.steering.serviceNames()))
	return a.run(ctx)
}

// agent reads the probes. A single goroutine uses it, while the exchange with Sibyl changes the targets concurrently.
type agent struct {
	settings Settings
	parts    waits.Thresholds // of parts of events
	logger   *slog.Logger
	probes   *sharedProbes
	steering *steering
	meter    *kernel.Meter
	ledger   *waits.Ledger
	resolver *symbols.Resolver
	joiner   *sharedJoiner
	events   []waits.Event // scratch
	names    map[stackID][]string
	named    map[uint32]*join.Service // processes that the resolver knows

	judged time.Time     // time of the last judgement
	used   time.Duration // CPU time that the process had used by then
	losses waits.Losses  // at the last reading
	limits string        // exceeded limits, as last logged
}

func newAgent(s Settings, p *kernel.Probes) *agent {
	const proc = "/proc"
	joiner := join.NewJoiner(proc, s.Service, s.Host)
	joiner.Hurried = s.Everything
	joiner.Inspector.Patience = tick / 2 // asked again in the next scan
	a := &agent{
		settings: s,
		parts:    s.Thresholds.InSpans(),
		logger:   s.Logger,
		probes:   &sharedProbes{probes: p},
		meter:    kernel.NewMeter(p),
		ledger:   waits.NewLedger(s.Thresholds, waits.All),
		resolver: symbols.NewResolver(proc, time.Now),
		judged:   time.Now(),
		names:    make(map[stackID][]string),
		named:    make(map[uint32]*join.Service),
		joiner:   &sharedJoiner{joiner: joiner, used: make(map[uint32]int)},
	}
	if a.logger == nil {
		a.logger = slog.New(slog.DiscardHandler)
	}
	a.used, _ = ownTime()
	a.steering = &steering{
		thresholds: s.Thresholds,
		stacks:     s.Stacks,
		apply:      a.probes.Apply,
		changes:    a.probes.Changes,
		context:    a.joiner.Context,
		program:    a.joiner.Program,
		changed:    make(chan struct{}, 1),
		due:        make(chan struct{}, 1),
		enabled:    index(nil),
		governor:   governor{limit: s.CPULimit * float64(kernel.CPUs())},
		usage:      make(map[string]*usage),
		processes: processes{
			proc:       proc,
			own:        uint32(os.Getpid()),
			selection:  s.Selection,
			everything: s.Everything,
			serviceOf:  a.joiner.Service,
			all:        make(map[uint32]*join.Service),
			services:   make(map[string]int),
		},
	}
	return a
}

// ServiceName is the service name that the agent itself registers with.
const ServiceName = "sibyl-agent-kernel"

func (a *agent) exchangeSettings() exchange.Settings {
	return exchange.Settings{
		Endpoint:     a.settings.Endpoint,
		Token:        a.settings.Token,
		ID:           a.settings.ID,
		Changed:      a.steering.changed,
		Due:          a.steering.due,
		Client:       a.settings.Client,
		Logger:       a.logger,
		Capabilities: []protocol.Capability{protocol.CanProbe, protocol.CanRate},
		Resource:     map[string]string{"service.name": ServiceName, "host.name": a.settings.Host, "os.type": "linux"},
	}
}

// run calls tick until ctx is done.
func (a *agent) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := a.tick(ctx, n); err != nil {
				return err
			}
		}
	}
}

// tick does the work of tick n. While nothing is observed, it only looks for processes and judges the cost.
func (a *agent) tick(ctx context.Context, n int) error {
	a.steering.sample(n%samplePeriod < sampleTicks)
	observes := a.steering.observes()
	if observes {
		if err := a.readEvents(); err != nil { // before the scan forgets processes that have ended
			return err
		}
	}
	if n%scanTicks == 0 {
		if err := a.scan(ctx, observes); err != nil {
			return err
		}
	}
	if !observes && n%judgeTicks != 0 {
		return nil
	}
	if err := a.meter.Keep(n%judgeTicks == judgeTicks/2 && observes); err != nil {
		return err
	}
	if n%judgeTicks == 0 {
		return a.judge(ctx)
	}
	return nil
}

// scan looks for processes. If observes is true, it first counts missing waits and renews the lease.
func (a *agent) scan(ctx context.Context, observes bool) error {
	if observes {
		missing, err := a.probes.Missing()
		if err != nil {
			return err
		}
		var unsent map[string]uint64
		if a.settings.Unsent != nil {
			unsent = a.settings.Unsent()
		}
		a.steering.miss(missing, unsent)
		if err := a.probes.Renew(); err != nil {
			return err
		}
	}
	if err := a.steering.scan(); err != nil {
		return err
	}
	if limits := a.steering.limits(); limits != a.limits {
		if a.limits = limits; limits != "" {
			a.logger.WarnContext(ctx, "there are too many processes or services", slog.String("omitted", limits))
		}
	}
	a.joiner.Sweep()
	return nil
}

// readEvents sends the waits in the ring buffer that belong to spans of enabled requests.
func (a *agent) readEvents() error {
	a.events = a.events[:0]
	if err := a.probes.Events(func(e waits.Event) { a.events = append(a.events, e) }); err != nil {
		return err
	}
	var send []join.Wait
	for i := range a.events {
		e := &a.events[i]
		t, enabled, ok := a.steering.target(e.TGID)
		if !ok {
			continue
		}
		w, joined := a.joiner.Join(e)
		joined = joined && w.Service.Name == t.service.Name // not the waits of a later process with the same ID
		w.Event = *e
		for _, part := range w.Parts(t.classes, a.parts) {
			wanted := joined && enabled(part.Part.Class, part.Trace)
			a.steering.record(t.service.Name, &part.Part, wanted)
			if wanted {
				part.Frames = a.frames(e, t.service)
				send = append(send, part)
			}
		}
	}
	if len(send) > 0 {
		a.settings.Send(send)
	}
	return nil
}

// frames returns the names of the functions in the stack of e, or nil if e has no stack or the stack has been deleted.
func (a *agent) frames(e *waits.Event, process *join.Service) []string {
	if e.Stack < 0 {
		return nil
	}
	id := stackID{process, e.Stack}
	if names, ok := a.names[id]; ok {
		return names
	}
	if a.named[e.TGID] != process { // another process has the ID
		a.resolver.Forget(e.TGID)
		a.named[e.TGID] = process
	}
	addresses, err := a.probes.Stack(e.Stack)
	if err != nil {
		return nil // deleted
	}
	names, final := a.resolver.Names(e.TGID, addresses)
	if final && len(a.names) < maxNames {
		a.names[id] = names
	}
	return names
}

// forgetNames forgets the names of processes that are no longer observed.
func (a *agent) forgetNames() {
	for pid, process := range a.named {
		if t, _, ok := a.steering.target(pid); !ok || t.service != process {
			a.resolver.Forget(pid)
			delete(a.named, pid)
			clear(a.names)
		}
	}
}

// forgetStacks deletes all stacks in the kernel to make room for new ones.
func (a *agent) forgetStacks() error {
	clear(a.names)
	return a.probes.ForgetStacks()
}

// judge reads the sums, distributes the cost of the probes among tracepoints, and adapts the level to the cost of the
// agent.
func (a *agent) judge(ctx context.Context) error {
	reading, err := a.probes.Read()
	if err != nil {
		return err
	}
	changes, ended := a.ledger.Update(reading)
	if err := a.probes.Delete(ended); err != nil {
		return err
	}
	losses, err := a.probes.Losses()
	if err != nil {
		return err
	}
	cost, err := a.meter.Since()
	if err != nil {
		return err
	}
	used, err := ownTime()
	if err != nil {
		return err
	}
	now := time.Now()
	elapsed, own := now.Sub(a.judged), used-a.used
	lost := losses.Since(a.losses)
	a.steering.distribute(changes, cost.CPUShare*float64(elapsed))
	a.steering.missUnknown(&lost, count(changes))
	a.judged, a.used, a.losses = now, used, losses
	share := cost.CPUShare + own.Seconds()/elapsed.Seconds()
	a.forgetNames()
	if lost.Stacks > 0 {
		if err := a.forgetStacks(); err != nil {
			return err
		}
	}
	if a.steering.judge(share) {
		a.logger.WarnContext(ctx, "observing more or less than before, because of the cost",
			slog.String("level", a.steering.level().String()), slog.Float64("cpus_probes", cost.CPUShare),
			slog.Float64("cpus_agent", share-cost.CPUShare),
			slog.Float64("limit", a.settings.CPULimit*float64(kernel.CPUs())))
	}
	if lost.Events+lost.Limited > 0 {
		a.logger.WarnContext(ctx, "single waits are missing", slog.Uint64("ring_buffer_full", lost.Events),
			slog.Uint64("above_limit", lost.Limited))
	}
	return nil
}

// count returns the number of intervals in changes.
func count(changes []waits.Row) (n uint64) {
	for i := range changes {
		n += changes[i].Count
	}
	return n
}

// ownTime returns the CPU time that this process has used.
func ownTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the CPU time of this process: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
