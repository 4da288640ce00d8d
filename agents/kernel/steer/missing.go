package steer

import (
	"fmt"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

const (
	// maxMissing is the part of a tracepoint's time that may be missing. If more is missing, the tracepoint is
	// incomplete, unless the missing time is less than leastMissing of all waiting time of the service.
	maxMissing   = 0.05
	leastMissing = 0.01
	// fading is the factor by which the sums decay at each scan, so that they describe about the last ten seconds.
	fading = 0.9
	// incompleteScans is the number of scans that a tracepoint remains incomplete. It is longer than the time until
	// Sibyl notices, even if the tracepoint is no longer in the plan.
	incompleteScans = 60
	// maxUntold is the part of a tracepoint's intervals that may be in processes that do not provide their spans,
	// although other processes of the same program do. Requests are spread over all processes, so the processes with
	// spans show the same waits.
	maxUntold = 0.25
)

// lately holds sums over the recent waits of a tracepoint, and judges whether the waits are complete.
type lately struct {
	seen, missing float64 // ns, by the probes
	sent, unsent  float64 // numbers of seen waits, which belong to few requests if the arm is small
	told, untold  float64 // numbers of all intervals in processes that do or do not provide spans
	lacks         error   // reason why the latest process does not provide its spans
	reason        string  // reason why waits were last missing
	fresh         bool    // waits have been missing since the last scan
	until         int     // scan until which the tracepoint is incomplete
}

// assess judges the sums at a scan, and reports whether the tracepoint has become incomplete. waited is the recent
// total waiting time of the tracepoint's service, in ns.
func (l *lately) assess(scan int, waited float64) (changed bool) {
	hides := l.missing > maxMissing*(l.seen+l.missing) && l.missing > leastMissing*waited
	if l.fresh && (hides || l.unsent > maxMissing*l.sent) {
		changed = scan >= l.until
		l.until = scan + incompleteScans
	}
	if l.lacks != nil && l.untold > maxUntold*(l.told+l.untold) {
		l.reason = "the spans of some of its processes are unknown: " + l.lacks.Error()
		changed = changed || scan >= l.until
		l.until = scan + incompleteScans
	}
	l.fresh, l.lacks = false, nil
	for _, x := range []*float64{&l.seen, &l.missing, &l.sent, &l.unsent, &l.told, &l.untold} {
		if *x *= fading; *x < 0.5 {
			*x = 0
		}
	}
	return changed
}

// miss counts individual waits that were not sent: missing waits by process, and unsent waits by tracepoint.
func (s *steering) miss(missing map[waits.MissingKey]waits.Missed, unsent map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, m := range missing {
		if t, ok := s.targets[k.TGID]; ok && t.classes.Has(k.Class) {
			u := s.usageOf(waits.TracepointID(t.service.Name, k.Class))
			u.drops += m.Count
			u.lately.missing += float64(m.TotalNs)
			u.lately.reason, u.lately.fresh = k.Cause.String(), true
		}
	}
	for id, n := range unsent {
		u := s.usageOf(id)
		u.drops += n
		u.sent -= min(u.sent, n)
		u.lately.unsent += float64(n)
		u.lately.reason, u.lately.fresh = "the receiver does not accept them", true
	}
}

// missUnknown accounts for missing records that can't be attributed to a tracepoint. intervals is the number of
// intervals that are not missing. If many are missing, it marks all tracepoints of the plan as incomplete.
func (s *steering) missUnknown(l *waits.Losses, intervals uint64) {
	reason := ""
	switch unseen := l.Threads + l.Missed + l.Switches; {
	case l.Gaps > 0:
		reason = "the agent was stopped for longer than its lease"
	case l.Uncounted > 0:
		reason = "waits of very many processes are missing"
	case float64(unseen) > maxMissing*float64(intervals+unseen):
		reason = fmt.Sprintf("the probes missed %d of %d intervals", unseen, intervals+unseen)
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for service, classes := range s.enabled.classes {
		for c := range waits.Class(waits.NumClasses) {
			if classes.Has(c) {
				u := s.usageOf(waits.TracepointID(service, c))
				u.lately.reason, u.lately.until = reason, s.processes.scans+incompleteScans
			}
		}
	}
	s.report()
}

// assess judges the completeness of all tracepoints. The caller must hold s.mu.
func (s *steering) assess() {
	waited := make(map[string]float64)
	for id, u := range s.usage {
		service, _, _ := parseID(id)
		waited[service] += u.lately.seen + u.lately.missing
	}
	changed := false
	for id, u := range s.usage {
		service, _, _ := parseID(id)
		changed = u.lately.assess(s.processes.scans, waited[service]) || changed
	}
	if changed {
		s.report()
	}
}

// report makes the agent report the states of tracepoints soon.
func (s *steering) report() {
	select {
	case s.due <- struct{}{}:
	default: // a report is already due
	}
}
