//go:build amd64 || arm64

package kernel

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/bpf"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Probes holds the BPF programs in the kernel. The programs are attached only while there are targets. Probes is not
// safe for concurrent use.
type Probes struct {
	objects bpf.WaitObjects
	ring    *ringbuf.Reader
	states  *link.Iter
	links   []io.Closer // of the attached programs; empty if detached
	rate    uint64      // stack samples per second
	applied map[uint32]Target
	added   map[uint32]uint64 // times when processes became targets
	refused map[uint32]bool   // targets that did not fit
	lost    uint64            // total number of targets that did not fit
	thresh  waits.Thresholds
	changed uint64 // number of changes of targets
	begun   uint64 // time when targets were last added
	until   uint64 // time when the programs stop
	gaps    uint64

	tellsDelay bool // the scheduler reports when threads were woken, so no program needs to watch for it

	rotations uint32 // see rotate
	rotatedAt uint64

	named [1024]uint64 // bits of the targets, by the low bits of their numbers, as in bpf/wait.bpf.c
	batch batches
}

// Open loads the programs. It returns an error that wraps [ErrMissing] if the kernel lacks a feature or the process
// lacks a capability.
func Open(o Options) (*Probes, error) {
	o = o.withDefaults()
	if _, err := Check(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil { // tries bpf first, which suffices since Linux 5.11
		return nil, explain(err)
	}
	spec, err := bpf.LoadWait()
	if err != nil {
		return nil, fmt.Errorf("read the probes: %w", err)
	}
	spec.Maps[bpf.WaitMapSums].MaxEntries = o.Sums
	spec.Maps[bpf.WaitMapEvents].MaxEntries = max(o.RingBytes, uint32(os.Getpagesize()))
	var kinds [512]uint8
	for i := range kinds {
		kinds[i] = uint8(waits.Other)
	}
	for nr, s := range syscalls {
		kinds[nr] = uint8(s.kind)
	}
	for name, value := range map[string]any{
		bpf.WaitVarKinds:          kinds,
		bpf.WaitVarStackPeriodNs:  uint64(o.StackPeriod),
		bpf.WaitVarSamplePeriodNs: uint64(time.Second) / o.SampleRate,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of the probes: %w", name, err)
		}
	}
	p := &Probes{
		rate:       o.SampleRate,
		applied:    make(map[uint32]Target),
		added:      make(map[uint32]uint64),
		refused:    make(map[uint32]bool),
		tellsDelay: tellsDelay(),
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return nil, explain(err)
	}
	if err := p.openReaders(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Probes) openReaders() (err error) {
	if p.ring, err = ringbuf.NewReader(p.objects.Events); err != nil {
		return fmt.Errorf("open the ring buffer: %w", err)
	}
	if p.states, err = link.AttachIter(link.IterOptions{Program: p.objects.Observe}); err != nil {
		return fmt.Errorf("iterate over the threads: %w", err)
	}
	return nil
}

// Close removes the programs from the kernel.
func (p *Probes) Close() error {
	err := p.detach()
	if p.states != nil {
		err = errors.Join(err, p.states.Close())
	}
	if p.ring != nil {
		err = errors.Join(err, p.ring.Close())
	}
	return errors.Join(err, p.objects.Close())
}

// Apply applies a specification: it adds, changes and removes targets, and attaches the programs if there are any
// targets. Processes started by a target stay targets as long as Children is set for any target. Targets that are not
// running do no harm. Targets beyond [MaxTargets] are skipped and count as lost.
func (p *Probes) Apply(s Spec) error {
	if len(s.Targets) > 0 || s.Comm != "" {
		if err := p.attach(); err != nil {
			return errors.Join(err, p.detach())
		}
	}
	removed := p.remove(s)
	added, err := p.put(s)
	if err := errors.Join(removed, err, p.want(s), p.name(), p.renewCopies()); err != nil {
		return err
	}
	p.thresh = s.Thresholds
	if len(s.Targets) == 0 && s.Comm == "" {
		p.until = 0 // not to be renewed now
		return p.detach()
	}
	if err := p.Renew(); err != nil || !added {
		return err
	}
	_, _, err = p.threads() // initializes the state of threads that are already waiting
	return err
}

// renewCopies makes each thread copy its target again.
func (p *Probes) renewCopies() error {
	p.changed++
	if err := p.objects.Applied.Set(1 + p.changed); err != nil { // the programs start with 1
		return fmt.Errorf("apply the targets: %w", err)
	}
	return nil
}

// remove deletes the targets that are not in s. It keeps children of targets if Children is set for any target in s.
func (p *Probes) remove(s Spec) error {
	children := s.Comm != "" // the programs add targets
	for _, t := range s.Targets {
		children = children || t.Children
	}
	running, err := p.targets()
	if err != nil {
		return err
	}
	for pid := range running {
		_, wanted := s.Targets[pid]
		_, named := p.applied[pid]
		if wanted || !named && children {
			continue
		}
		if err := p.objects.Targets.Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove target %d: %w", pid, err)
		}
		delete(p.applied, pid)
		delete(running, pid)
	}
	clear(p.added)
	for pid := range running { // includes children
		p.added[pid] = running[pid].Added
	}
	for pid := range p.applied {
		// A process that is no longer a target has ended. If it is wanted, its ID belongs to another process. A target
		// without context runs another program.
		if now, ok := running[pid]; !ok || now.Context.Kind != uint32(p.applied[pid].Context.Kind) {
			delete(p.applied, pid)
		}
	}
	return nil
}

// put writes the targets of s that are new or have changed, and reports whether it wrote any. Targets that don't fit
// are counted as lost.
func (p *Probes) put(s Spec) (added bool, err error) {
	now, err := monotonic()
	if err != nil {
		return false, err
	}
	if p.begun == 0 {
		p.begun = now // without targets so far: programs may start
	}
	full := false
	maps.DeleteFunc(p.refused, func(pid uint32, _ bool) bool { _, wanted := s.Targets[pid]; return !wanted })
	for pid, t := range s.Targets {
		before, exists := p.applied[pid]
		if exists && before == t && s.Thresholds == p.thresh {
			continue
		}
		since, observed := p.added[pid]
		if !observed {
			since = now
		}
		if !observed && full {
			p.refuse(pid)
			continue
		}
		v := targetOf(t, s.Thresholds)
		v.Begun, v.Added = now, since
		err := p.objects.Targets.Put(pid, &v)
		if errors.Is(err, unix.E2BIG) {
			full = true
			p.refuse(pid)
			continue
		}
		if err != nil {
			return added, fmt.Errorf("add target %d: %w", pid, err)
		}
		p.applied[pid], p.added[pid] = t, since
		delete(p.refused, pid)
		p.begun, added = now, true
	}
	return added, nil
}

// want makes programs named s.Comm targets when they start.
func (p *Probes) want(s Spec) error {
	var comm waits.Comm
	copy(comm[:maxComm], s.Comm)
	if err := errors.Join(p.objects.WantedTarget.Set(targetOf(s.Started, s.Thresholds)),
		p.objects.WantedComm.Set(comm)); err != nil {
		return fmt.Errorf("name the program to observe: %w", err)
	}
	return nil
}

// targetOf returns t as the programs store it, without its times.
func targetOf(t Target, thresholds waits.Thresholds) bpf.WaitTarget {
	v := bpf.WaitTarget{
		ThresholdNs: thresholds, Classes: uint32(t.Classes), Events: uint32(t.Events), MaxEvents: t.MaxEvents,
	}
	if t.Stacks {
		v.Flags |= withStacks
	}
	if t.Children {
		v.Flags |= withChildren
	}
	if t.InSpans {
		v.Flags |= onlyInSpans
	}
	v.Context.Kind, v.Context.Tls = uint32(t.Context.Kind), t.Context.TLS
	v.Context.M, v.Context.Curg, v.Context.Labels = t.Context.M, t.Context.Curg, t.Context.Labels
	v.Context.Table, v.Context.Slots = t.Context.Table, t.Context.Slots
	return v
}

// observedSince returns the time when observation of the most recently added targets started.
func (p *Probes) observedSince() time.Time {
	now, err := monotonic()
	if err != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(now - p.begun))
}

// refuse counts a target that doesn't fit, unless it has been counted before.
func (p *Probes) refuse(pid uint32) {
	if !p.refused[pid] {
		p.refused[pid] = true
		p.lost++
	}
}

// name passes the IDs of the targets to the programs, so that a former target costs no more than a process that was
// never a target.
func (p *Probes) name() error {
	before := p.named
	clear(p.named[:])
	for pid := range p.added {
		bit := pid % (64 * uint32(len(p.named)))
		p.named[bit/64] |= 1 << (bit % 64)
	}
	if p.named != before {
		if err := p.objects.Named.Set(p.named); err != nil {
			return fmt.Errorf("name the targets: %w", err)
		}
	}
	return p.rotate()
}

// rotateAfter is the minimum number of changes of targets by the programs between two rotations; see rotate. Each child
// causes up to three changes.
const rotateAfter = 1 << 14

// rotate forgets the IDs of ended children that were started before the previous rotation. It does nothing if there
// have been fewer than rotateAfter changes since that rotation.
func (p *Probes) rotate() error {
	changes := p.Changes()
	if changes-p.rotatedAt < rotateAfter {
		return nil
	}
	next := p.objects.InheritedEven
	if p.rotations++; p.rotations%2 == 1 {
		next = p.objects.InheritedOdd
	}
	p.rotatedAt = changes
	if err := errors.Join(next.Set([len(p.named)]uint64{}), p.objects.Rotations.Set(p.rotations)); err != nil {
		return fmt.Errorf("remove targets that have ended: %w", err)
	}
	return nil
}

// Flags of targets, as in bpf/wait.bpf.c.
const (
	withStacks   = 1
	withChildren = 2
	onlyInSpans  = 4
)

// targets returns the current targets by process ID. It may miss some targets if many end during the call.
func (p *Probes) targets() (map[uint32]bpf.WaitTarget, error) {
	all := make(map[uint32]bpf.WaitTarget)
	var pid uint32
	var v bpf.WaitTarget
	it := p.objects.Targets.Iterate()
	for it.Next(&pid, &v) {
		all[pid] = v
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // aborted if many have ended
		return nil, fmt.Errorf("list targets: %w", err)
	}
	return all, nil
}

// Renew lets the programs continue for another [Lease]. If the last lease has expired, all targets start from scratch.
func (p *Probes) Renew() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	if p.until != 0 && now >= p.until {
		if err := p.restart(now); err != nil {
			return err
		}
	}
	return p.setUntil(now + uint64(Lease))
}

// restart makes the observation of all targets start anew at now, because earlier state changes of their threads were
// not observed.
func (p *Probes) restart(now uint64) error {
	p.gaps++
	all, err := p.targets()
	if err != nil {
		return err
	}
	for pid, v := range all {
		v.Begun = now
		if err := p.objects.Targets.Update(pid, &v, ebpf.UpdateExist); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("restart target %d: %w", pid, err)
		}
	}
	return p.renewCopies()
}

// Stop ends the observation: later intervals are not counted, and [Probes.Read] returns the states as of now.
func (p *Probes) Stop() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	return p.setUntil(now)
}

func (p *Probes) setUntil(t uint64) error {
	if err := p.objects.Until.Set(t); err != nil {
		return fmt.Errorf("set the end of the observation: %w", err)
	}
	p.until = t
	return nil
}

// attach attaches all programs unless they are already attached.
func (p *Probes) attach() error {
	if len(p.links) > 0 {
		return nil
	}
	for _, program := range p.tracepoints() {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attach %s: %w", program, err)
		}
		p.links = append(p.links, l)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	for cpu := range cpus { // all of the machine, not only those that this process may use
		if err := p.attachClock(cpu); err != nil {
			return err
		}
	}
	return nil
}

// CPUs returns the number of online CPUs of the machine. If it is unknown, CPUs returns runtime.NumCPU, which only
// counts the CPUs that this process may use.
func CPUs() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err == nil {
		if n := countCPUs(string(text)); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs returns the number of CPUs in a list like 0-3,8, or 0 if the list is invalid.
func countCPUs(list string) (n int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, several := strings.Cut(part, "-")
		if !several {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

func (p *Probes) tracepoints() []*ebpf.Program {
	o := &p.objects.WaitPrograms
	all := []*ebpf.Program{o.Forked, o.Created, o.Executed, o.Exited, o.Switched}
	if !p.tellsDelay {
		all = append(all, o.Woken)
	}
	return all
}

// attachClock starts sampling stacks on a CPU, driven by the CPU's clock. It does nothing if the CPU is offline.
func (p *Probes) attachClock(cpu int) error {
	attributes := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER0,
		Sample: p.rate, Bits: unix.PerfBitFreq,
	}
	fd, err := unix.PerfEventOpen(&attributes, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil // the CPU is offline
	}
	if isDenied(err) {
		return denied("perf_event_open", err)
	}
	if err != nil {
		return fmt.Errorf("sample CPU %d: %w", cpu, err)
	}
	event := os.NewFile(uintptr(fd), "perf event")
	l, err := link.AttachRawLink(link.RawLinkOptions{
		Target: fd, Program: p.objects.Sampled, Attach: ebpf.AttachPerfEvent,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("sample CPU %d: %w", cpu, err), event.Close())
	}
	p.links = append(p.links, l, event)
	return nil
}

func (p *Probes) detach() error {
	var err error
	for _, l := range p.links {
		err = errors.Join(err, l.Close())
	}
	p.links = nil
	return err
}

// monotonic returns the time of the clock that the programs use, in ns.
func monotonic() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(t.Nano()), nil
}
