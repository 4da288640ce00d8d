package steer

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// maxEvents is the maximum number of individual waits that are recorded per process and second. Further waits are
// missing from the evidence.
const maxEvents = 10_000

// steering applies plans by converting them to targets of the probes. It implements [exchange.Tracepoints].
type steering struct {
	thresholds waits.Thresholds
	stacks     bool
	apply      func(kernel.Spec) error
	changes    func() uint64                          // number of targets that ended or ran another program
	context    func(pid uint32) (join.Context, error) // location of the spans of a process's threads
	program    func(pid uint32) string                // path of the program that a process runs
	changed    chan struct{}                          // holds a value if the catalogue changed
	due        chan struct{}                          // holds a value if the states of tracepoints changed

	mu        sync.Mutex // guards the fields below
	processes processes
	enabled   *enabled
	governor  governor
	slice     bool              // at the level sampled: whether threads are currently observed
	targets   map[uint32]target // of applied
	omitted   map[string]int    // processes of enabled services beyond the number that can be observed
	failure   error             // of the last apply
	applied   map[uint32]kernel.Target
	seen      uint64            // changes before the last apply
	usage     map[string]*usage // by tracepoint
}

// target is an observed process that is a target of the probes.
type target struct {
	service *join.Service
	classes waits.Set // that the plan enables
	lacks   error     // reason why the spans of its threads are unknown
	program string    // path; empty if unknown
}

// usage counts the use of a tracepoint since the start of the session.
type usage struct {
	sent   uint64  // spans
	waits  uint64  // above the threshold, including waits of requests that the plan does not select
	recent uint64  // waits since the last distribution of costs
	drops  uint64  // waits that were not sent
	nanos  float64 // time of the probes
	lately lately
}

// Catalogue implements [exchange.Tracepoints].
func (s *steering) Catalogue() []protocol.Tracepoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tracepointsOf(s.processes.serviceNames())
}

// Apply implements [exchange.Tracepoints]. When it returns, the probes observe exactly the classes that the plan
// enables, unless the level is reduced or the kernel refused the change, which [steering.Outcomes] reports.
func (s *steering) Apply(p *protocol.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enabled = index(p)
	s.update()
}

// Outcomes implements [exchange.Tracepoints].
func (s *steering) Outcomes() []protocol.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []protocol.Outcome
	planned := make(map[string]bool)
	for service, classes := range s.enabled.classes {
		for c := range waits.Class(waits.NumClasses) {
			if classes.Has(c) {
				id := waits.TracepointID(service, c)
				planned[id] = true
				list = append(list, s.outcome(id, service))
			}
		}
	}
	for _, id := range s.enabled.unknown {
		list = append(list,
			protocol.Outcome{ID: id, State: protocol.Unsupported, Reason: "the kernel agent has no such tracepoint"})
	}
	for id, u := range s.usage {
		if !planned[id] && (u.sent > 0 || s.processes.scans < u.lately.until) {
			service, _, _ := parseID(id)
			list = append(list, s.outcome(id, service))
		}
	}
	sorting.SliceStable(list, func(a, b protocol.Outcome) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), protocol.MaxOutcomes)]
}

// outcome returns the state of a tracepoint. The caller must hold s.mu.
func (s *steering) outcome(id, service string) protocol.Outcome {
	o := protocol.Outcome{ID: id, State: protocol.Applied}
	_, served := s.processes.services[service]
	u := s.usage[id]
	switch reason := s.governor.reason(); {
	case !served:
		o.State, o.Reason = protocol.Unsupported, "the kernel agent observes no process of this service"
	case s.failure != nil:
		o.State, o.Reason = protocol.Failed, protocol.Printable(s.failure.Error(), protocol.MaxReason)
	case reason != "":
		o.State, o.Reason, o.Incomplete = protocol.Failed, reason, true
	default:
		if err := s.unjoined(service); err != nil {
			o.State, o.Reason = protocol.Failed, "the spans of its threads are unknown: "+err.Error()
		} else if n := s.omitted[service]; n > 0 {
			o.Incomplete = true
			o.Reason = fmt.Sprintf("processes that are not observed: %d (the plan has more than %d)",
				n, kernel.MaxTargets)
		} else if u != nil && s.processes.scans < u.lately.until {
			o.Incomplete, o.Reason = true, "much of its time is missing: "+u.lately.reason
		}
		o.Reason = protocol.Printable(o.Reason, protocol.MaxReason)
	}
	if u != nil {
		o.Hits, o.Drops = u.sent+u.drops, u.drops
		if u.waits > 0 {
			o.Nanos = min(u.nanos/float64(u.waits), protocol.MaxCPU)
		}
		if u.sent > 0 {
			o.Bytes = hitBytes
		}
	}
	return o
}

// unjoined returns the reason why no process of a service provides the spans of its threads. It returns nil if at least
// one process does, or if the service has no targets. The caller must hold s.mu.
func (s *steering) unjoined(service string) (err error) {
	for _, t := range s.targets {
		if t.service.Name != service {
			continue
		}
		if t.lacks == nil {
			return nil
		}
		if err == nil || t.lacks.Error() < err.Error() {
			err = t.lacks
		}
	}
	return err
}

// scan looks for processes, and makes processes of services that the plan enables targets.
func (s *steering) scan() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, err := s.processes.scan()
	if err != nil {
		return err
	}
	if changed {
		select {
		case s.changed <- struct{}{}:
		default: // signalled already
		}
	}
	s.assess()
	s.update()
	return nil
}

// judge passes the cost of the agent to the governor, and reports whether the level changed. While no plan enables
// anything, there is nothing to reduce, so the level stays full.
func (s *steering) judge(cost float64) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.enabled.classes) == 0 && s.governor.level == full {
		return false
	}
	if changed = s.governor.judge(cost); changed {
		s.update()
		s.report()
	}
	return changed
}

// sample starts or ends an observed part at the level sampled.
func (s *steering) sample(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slice != on {
		s.slice = on
		s.update()
	}
}

// update applies the plan to the current processes. The caller must hold s.mu.
func (s *steering) update() {
	spec := kernel.Spec{Targets: make(map[uint32]kernel.Target), Thresholds: s.thresholds}
	before := s.targets
	s.targets, s.omitted = make(map[uint32]target), make(map[string]int)
	l := s.governor.level
	if l < sampled || l == sampled && s.slice {
		for _, pid := range s.processes.ofServices() {
			t := target{service: s.processes.all[pid]}
			if t.classes = s.enabled.classes[t.service.Name]; t.classes == 0 {
				continue
			}
			if len(s.targets) >= kernel.MaxTargets {
				s.omitted[t.service.Name]++
				continue
			}
			x := targetOf(t.classes, l, s.stacks)
			x.Context, t.lacks = s.context(pid)
			t.program = s.program(pid)
			s.targets[pid], spec.Targets[pid] = t, x
		}
	}
	same := func(a, b target) bool { return a.service == b.service } // another process has another service
	changes := s.changes()
	if s.failure == nil && changes == s.seen && maps.Equal(spec.Targets, s.applied) &&
		maps.EqualFunc(before, s.targets, same) {
		return
	}
	s.seen = changes
	s.failure = s.apply(spec)
	s.applied = spec.Targets
}

// limits returns a text with the numbers of services that are omitted, or that have omitted processes, because there
// are too many. It returns "" if nothing is omitted.
func (s *steering) limits() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	if n := len(s.processes.dropped); n > 0 {
		parts = append(parts, fmt.Sprintf("services that are not announced: %d (there are more than "+
			"%d)", n, maxServices))
	}
	if len(s.omitted) > 0 {
		parts = append(parts, fmt.Sprintf("services with processes that are not observed: %d (the plan has more "+
			"than %d)", len(s.omitted), kernel.MaxTargets))
	}
	return strings.Join(parts, "; ")
}

// observes reports whether there are targets.
func (s *steering) observes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.applied) > 0
}

// targetOf returns the target for a process with enabled classes.
func targetOf(classes waits.Set, l level, stacks bool) kernel.Target {
	t := kernel.Target{Classes: classes}
	if l >= noEvents {
		return t
	}
	t.Events, t.InSpans, t.MaxEvents, t.Stacks = classes, true, maxEvents, stacks && l < noStacks
	return t
}

// target returns the target with process ID pid, and the gate of its service. ok is false if the process is not a
// target.
func (s *steering) target(pid uint32) (t target, enabled gate, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok = s.targets[pid]; ok {
		enabled = s.enabled.gate(t.service.Name)
	}
	return t, enabled, ok
}

// record counts part, a wait in a process of the service. If sent is true, it also counts the span that was sent for
// the wait.
func (s *steering) record(service string, part *waits.Part, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.usageOf(waits.TracepointID(service, part.Class))
	u.waits++
	u.recent++
	u.lately.seen += float64(part.End - part.Start)
	if sent {
		u.sent++
		u.lately.sent++
	}
}

// usageOf returns the usage of a tracepoint. The caller must hold s.mu.
func (s *steering) usageOf(id string) *usage {
	u := s.usage[id]
	if u == nil {
		u = &usage{}
		s.usage[id] = u
	}
	return u
}

// distribute divides nanos, the time that the probes took, among tracepoints. The share of a tracepoint depends on the
// number of its intervals, including short ones, and on the number of its individual waits. distribute also counts the
// intervals of processes that do or don't provide their spans.
func (s *steering) distribute(changes []waits.Row, nanos float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	work, total := make(map[string]uint64), uint64(0)
	tells := s.tellingPrograms()
	for i := range changes {
		r := &changes[i]
		if t, ok := s.targets[r.TGID]; ok && t.classes.Has(r.Class) {
			id := waits.TracepointID(t.service.Name, r.Class)
			work[id] += r.Count
			total += r.Count
			switch u := s.usageOf(id); {
			case t.lacks == nil:
				u.lately.told += float64(r.Count)
			case tells[program{t.service.Name, t.program}]:
				u.lately.untold += float64(r.Count)
				u.lately.lacks = t.lacks
			}
		}
	}
	for id, u := range s.usage {
		work[id] += u.recent
		total += u.recent
		u.recent = 0
	}
	for id, n := range work {
		if u := s.usage[id]; u != nil && n > 0 {
			u.nanos += nanos * float64(n) / float64(total)
		}
	}
}

// program is a program that processes of a service run.
type program struct{ service, path string }

// tellingPrograms returns the programs that provide the spans of their threads in at least one process. Other programs
// of the same service are mostly scripts and tools that the service has started, which inherit its environment. The
// caller must hold s.mu.
func (s *steering) tellingPrograms() map[program]bool {
	all := make(map[program]bool)
	for _, t := range s.targets {
		if t.lacks == nil {
			all[program{t.service.Name, t.program}] = true
		}
	}
	return all
}

// level returns the current extent of the observation.
func (s *steering) level() level {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.governor.level
}

// serviceNames returns the announced services, ascending.
func (s *steering) serviceNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes.serviceNames()
}
