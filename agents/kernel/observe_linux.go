//go:build amd64 || arm64

package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/symbols"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

const (
	tick       = 200 * time.Millisecond // between readings of the ring buffer
	sumsEvery  = 5                      // ticks between readings of sums and searches for processes
	statsEvery = 5                      // run statistics are kept in one tick of this many, because they have a cost
	statsTick  = 2                      // that tick; it isn't the tick with readings, which causes more switches
	maxEvents  = 1000                   // per process and second
	maxStacks  = 6000                   // kept in the kernel, which has room for 8 192
)

// observer observes selected processes. One goroutine owns it.
type observer struct {
	settings Settings
	probes   *Probes
	resolver *symbols.Resolver
	ledger   *waits.Ledger
	limits   *throttling
	costs    costs

	alive      map[uint32]bool                   // running processes as of the last reading
	stacks     map[waits.StackKey]waits.StackSum // as of the last reading
	names      map[stackID][]string              // of known stacks
	losses     waits.Losses                      // as of the last report
	joins      waits.Joins                       // as of the last report
	known      map[uint32]int                    // processes known to the joiner, with their last reading
	reads      int                               // readings so far
	madeRoom   int                               // number of the reading at which stacks were last deleted to make room
	lostStacks uint64                            // stacks lost up to that reading
	execs      uint64                            // number of changes of targets up to the last reading
	began      time.Time                         // of the next report
	sums       *waits.Collector                  // of the next report
	times      map[waits.StackKey]*waits.Stack   // of the next report
	worst      []waits.Longest                   // of the next report, longest first
	gone       map[uint32]bool                   // processes selected by ID whose end has been reported
}

// stackID identifies a stack of a process.
type stackID struct {
	pid   uint32
	stack int32
}

// Observe observes the selected processes and passes reports to emit: one at the end, or one for each interval. It
// returns when the duration is over, ctx is done, or all processes selected by ID have ended.
func Observe(ctx context.Context, s Settings, emit func(*waits.Report) error) (err error) {
	if err := s.Selection.Check(); err != nil {
		return err
	}
	found, err := s.Selection.Find()
	if err != nil {
		return err
	}
	if len(found) == 0 && s.Selection.Comm == "" { // a program may start later
		return fmt.Errorf("there is no %s", &s.Selection)
	}
	probes, err := Open(s.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probes.Close()) }()
	o := &observer{
		settings: s,
		probes:   probes,
		resolver: symbols.NewResolver("/proc", time.Now),
		ledger:   waits.NewLedger(s.Thresholds, s.Classes),
		limits:   newThrottling("/proc", "/sys/fs/cgroup"),
		costs:    costs{probes: probes},
		names:    make(map[stackID][]string),
		alive:    make(map[uint32]bool),
		known:    make(map[uint32]int),
		gone:     make(map[uint32]bool),
	}
	defer func() { err = errors.Join(err, o.costs.stop()) }()
	if err := o.apply(found); err != nil {
		return err
	}
	if err := o.costs.keep(true); err != nil {
		return err
	}
	o.clear(o.probes.observedSince())
	if s.began != nil {
		s.began()
	}
	return o.run(ctx, emit)
}

// clear starts a new report.
func (o *observer) clear(now time.Time) {
	o.began = now
	o.ledger.Begin()
	o.sums = waits.NewCollector()
	o.times = make(map[waits.StackKey]*waits.Stack)
	o.worst = nil
}

// run reads once per tick and emits reports, until the duration is over, ctx is done, or all processes selected by ID
// have ended.
func (o *observer) run(ctx context.Context, emit func(*waits.Report) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var end, report <-chan time.Time
	if o.settings.Duration > 0 {
		timer := time.NewTimer(o.settings.Duration)
		defer timer.Stop()
		end = timer.C
	}
	if o.settings.Interval > 0 {
		reports := time.NewTicker(o.settings.Interval)
		defer reports.Stop()
		report = reports.C
	}
	for ticks := 0; ; {
		select {
		case <-ctx.Done():
			return o.finish(emit)
		case <-end:
			return o.finish(emit)
		case <-report:
			if err := o.report(emit); err != nil {
				return err
			}
		case <-ticker.C:
			ticks++
			if ended, err := o.tick(ticks); err != nil {
				return err
			} else if ended {
				return o.finish(emit)
			}
		}
	}
}

// finish ends the observation with a report.
func (o *observer) finish(emit func(*waits.Report) error) error {
	if err := o.probes.Stop(); err != nil {
		return err
	}
	return o.report(emit)
}

// tick does the work of a tick, and reports whether all processes selected by ID have ended. It never reports so for
// processes selected in other ways, because these may start again.
func (o *observer) tick(n int) (ended bool, err error) {
	if err := o.costs.keep(n%statsEvery == statsTick); err != nil {
		return false, err
	}
	if err := o.readEvents(); err != nil || n%sumsEvery != 0 {
		return false, err
	}
	if err := o.read(); err != nil {
		return false, err
	}
	found, err := o.settings.Selection.Find()
	if err != nil {
		return false, err
	}
	ended = len(o.settings.Selection.PIDs) > 0 && len(o.alive) == 0 && len(found) == 0
	return ended, o.apply(o.withChildren(found))
}

// withChildren returns found and, if spans are wanted, the processes that selected processes have started. The kernel
// already observes these, but doesn't know where they store their spans.
func (o *observer) withChildren(found []uint32) []uint32 {
	if o.settings.Join == nil || !o.settings.Children {
		return found
	}
	all := slices.AppendSeq(found, maps.Keys(o.alive))
	slices.Sort(all)
	return slices.Compact(all)
}

// apply makes the processes pids the targets, and renews the lease.
func (o *observer) apply(pids []uint32) error {
	s := Spec{
		Targets: make(map[uint32]Target, len(pids)), Thresholds: o.settings.Thresholds,
		Comm: o.settings.Selection.Comm, Started: o.newTarget(),
	}
	for _, pid := range pids {
		if o.settings.Stacks {
			o.resolver.Know(pid)
		}
		o.limits.add(pid)
		s.Targets[pid] = o.target(pid)
	}
	maps.DeleteFunc(o.limits.known, func(pid uint32, _ bool) bool { _, exists := s.Targets[pid]; return !exists })
	if err := o.probes.Apply(s); err != nil {
		return err
	}
	return o.probes.Renew()
}

// target returns the target for a process.
func (o *observer) target(pid uint32) Target {
	t := o.newTarget()
	t.Context = o.contextOf(pid)
	return t
}

// newTarget returns the target for a process that has just started, so that the place of its spans is unknown.
func (o *observer) newTarget() Target {
	return Target{
		Classes: o.settings.Classes, Events: o.settings.Classes, MaxEvents: maxEvents, Stacks: o.settings.Stacks,
		Children: o.settings.Children || o.settings.Selection.children(),
	}
}

// contextOf returns the location of the spans of a process's threads, or the zero value if it is unknown or no spans
// are wanted.
func (o *observer) contextOf(pid uint32) join.Context {
	if o.settings.Join == nil {
		return join.Context{}
	}
	o.known[pid] = o.reads
	o.settings.Join.Service(pid)
	c, first, err := o.settings.Join.Context(pid)
	if err != nil && first {
		o.settings.Join.Cannot(pid, err)
	}
	return c
}

// read adds the changes of all sums since the last reading to the next report.
func (o *observer) read() error {
	r, err := o.probes.Read()
	if err != nil {
		return err
	}
	changes, ended := o.ledger.Update(r)
	o.sums.Add(changes)
	o.sums.Name(r.Open)
	if err := o.probes.Delete(ended); err != nil {
		return err
	}
	if o.settings.Stacks {
		if err := o.readStacks(); err != nil {
			return err
		}
	}
	o.follow(r.Open, o.probes.Changes())
	return nil
}

// follow updates the memory maps of running processes, because a process may have ended by the time its stacks are
// read. execs is the number of changes of targets. If it has grown, a process may be running another program.
func (o *observer) follow(open []waits.Open, execs uint64) {
	alive := make(map[uint32]bool)
	for i := range open {
		alive[open[i].TGID] = true
	}
	o.reads++
	for pid, seen := range o.known {
		if alive[pid] {
			o.known[pid] = o.reads
		} else if o.reads-seen > keptReads {
			o.settings.Join.Forget(pid)
			delete(o.known, pid)
		}
	}
	for pid := range o.alive {
		if !alive[pid] {
			o.resolver.Forget(pid)
		}
	}
	if o.settings.Stacks {
		for pid := range alive {
			if execs != o.execs && o.resolver.Renew(pid) {
				maps.DeleteFunc(o.names, func(id stackID, _ []string) bool { return id.pid == pid })
			}
			o.resolver.Know(pid)
		}
	}
	o.alive, o.execs = alive, execs
}

// keptReads is the number of readings that a process is kept after the last reading that contained it, because its last
// events arrive late.
const keptReads = 2

func (o *observer) readStacks() error {
	all, err := o.probes.Stacks()
	if err != nil {
		return err
	}
	for k, sum := range all {
		before := o.stacks[k]
		if sum.Count <= before.Count {
			continue
		}
		frames, err := o.frames(k.TGID, k.Stack)
		if err != nil {
			return err
		}
		t := o.times[k]
		if t == nil {
			t = &waits.Stack{PID: k.TGID, Class: k.Class, Syscall: k.Syscall, Frames: frames}
			o.times[k] = t
		}
		t.Count += sum.Count - before.Count
		t.TotalNs += sum.TotalNs - before.TotalNs
	}
	losses, err := o.probes.Losses()
	if err != nil {
		return err
	}
	if len(all) >= maxStacks || o.crowded(all, losses.Stacks) {
		o.madeRoom, o.lostStacks = o.reads, losses.Stacks
		return o.makeRoom(all)
	}
	o.stacks = all
	return nil
}

// The stacks in the kernel are deleted to make room once more than the fraction mostLost of the samples have lost their
// stack, but at the earliest keptStacks readings after the last deletion.
const (
	keptStacks = 10
	mostLost   = 0.02
)

// crowded reports whether too many samples have lost their stack since the stack map was last cleared. The kernel's map
// has one slot per hash, so a stack is lost if its slot is already taken.
func (o *observer) crowded(all map[waits.StackKey]waits.StackSum, lost uint64) bool {
	samples := uint64(0)
	for _, sum := range all {
		samples += sum.Count
	}
	return o.reads-o.madeRoom >= keptStacks && float64(lost-o.lostStacks) > mostLost*float64(samples)
}

// makeRoom deletes all stacks and their sums in the kernel. Waits that currently refer to a stack lose it.
func (o *observer) makeRoom(all map[waits.StackKey]waits.StackSum) error {
	o.stacks = nil
	clear(o.names)
	if err := o.probes.DeleteStackSums(all); err != nil {
		return err
	}
	return o.probes.ForgetStacks()
}

// frames returns the names of a stack's functions, innermost first.
func (o *observer) frames(pid uint32, stack int32) ([]string, error) {
	id := stackID{pid, stack}
	if names, ok := o.names[id]; ok {
		return names, nil
	}
	addresses, err := o.probes.Stack(stack)
	if err != nil {
		return nil, err
	}
	names, final := o.resolver.Names(pid, addresses)
	if final {
		o.names[id] = names
	}
	return names, nil
}

// readEvents records the longest intervals above thresholds, and passes the waits whose spans are known to
// [Join].Waits.
func (o *observer) readEvents() error {
	var joined []join.Wait
	err := o.probes.Events(func(e waits.Event) {
		o.keep(e)
		if o.settings.Join != nil {
			if w, ok := o.settings.Join.Join(&e); ok {
				joined = append(joined, w.Parts(o.settings.Classes, o.settings.Thresholds)...)
			}
		}
	})
	if len(joined) > 0 {
		for i := range joined {
			if w := &joined[i]; w.Stack >= 0 {
				w.Frames, _ = o.frames(w.TGID, w.Stack) // without names if the stack has been deleted
			}
		}
		o.settings.Join.Waits(joined)
	}
	return err
}

// keep records an event if its parts above the thresholds are among the longest.
func (o *observer) keep(e waits.Event) {
	l := waits.Longest{Event: e}
	for _, part := range e.Parts(o.settings.Classes, o.settings.Thresholds) {
		if part.Class == e.Class {
			l.WaitTooLong = true
		} else {
			l.TurnTooLong = true
		}
	}
	at, _ := slices.BinarySearchFunc(o.worst, l, func(a, b waits.Longest) int {
		return cmp.Compare(b.TooLongNs(), a.TooLongNs())
	})
	if at >= waits.MaxLongest || l.TooLongNs() == 0 {
		return
	}
	if e.Stack >= 0 {
		l.Frames, _ = o.frames(e.TGID, e.Stack) // without names if the stack has been deleted
	}
	o.worst = slices.Insert(o.worst, at, l)
	o.worst = o.worst[:min(len(o.worst), waits.MaxLongest)]
}

// report emits the report for the time since the last report.
func (o *observer) report(emit func(*waits.Report) error) error {
	if err := o.readEvents(); err != nil {
		return err
	}
	if err := o.read(); err != nil {
		return err
	}
	losses, err := o.probes.Losses()
	if err != nil {
		return err
	}
	cost, err := o.costs.since()
	if err != nil {
		return err
	}
	now := time.Now()
	r := &waits.Report{
		From: o.began, Duration: now.Sub(o.began), Losses: losses.Since(o.losses), Processes: o.sums.Processes(),
		Longest: o.worst, Cost: cost, Syscalls: make(map[int32]string),
	}
	for i := range r.Processes {
		for j := range r.Processes[i].Calls {
			nr := r.Processes[i].Calls[j].Syscall
			r.Syscalls[nr] = SyscallName(nr)
		}
	}
	if o.settings.Join != nil {
		now := o.settings.Join.Joins()
		since := now.Since(o.joins)
		r.Joins, o.joins = &since, now
	}
	r.Throttles = o.limits.since()
	r.Ended = o.ended()
	r.Stacks = o.stackTimes(r.Processes)
	o.losses = losses
	o.clear(now)
	return emit(r)
}

// ended returns the processes selected by ID that have ended since the last report.
func (o *observer) ended() (pids []uint32) {
	for _, pid := range o.settings.Selection.PIDs {
		if !o.gone[pid] && !o.settings.Selection.runs("/proc", pid) {
			o.gone[pid] = true
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// stackTimes returns the times of stacks, longest first.
func (o *observer) stackTimes(processes []waits.ProcessReport) []waits.Stack {
	names := make(map[uint32]string, len(processes))
	for i := range processes {
		names[processes[i].PID] = processes[i].Comm
	}
	all := make([]waits.Stack, 0, len(o.times))
	for _, t := range o.times {
		t.Comm = names[t.PID]
		all = append(all, *t)
	}
	sorting.SliceStable(all, func(a, b waits.Stack) int {
		return cmp.Or(
			cmp.Compare(b.TotalNs, a.TotalNs), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Syscall, b.Syscall),
			slices.Compare(a.Frames, b.Frames),
		)
	})
	return all
}
