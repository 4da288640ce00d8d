package incident

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Constants of the tracker. None depends on the application: there are no times of requests and no names.
const (
	// Window is the time by which services are judged. In three minutes an application with a request a second has
	// enough calls at most of its sites; an on-call engineer loses less than that before looking.
	Window = 3 * time.Minute
	// quiet is the time without evidence after which an incident is over.
	quiet = 2 * time.Minute
	// returning is the time after its end within which an incident that returns is the same one. Once a day is known it
	// is longer: some faults come and go, and others are small enough to be seen now and then only.
	returning       = 3 * time.Minute
	returningLonger = 10 * time.Minute
	// MaxClosed is the largest number of closed incidents that are kept.
	MaxClosed = 1000
	// keptSuspects and keptOperations bound the suspects of an incident and their operations once it is closed.
	keptSuspects   = 20
	keptOperations = 10
	// recordAge is the length of an age of records, and ages the number of those that count, the current one included:
	// many services and operations have their worst minutes once a week.
	recordAge = 24 * time.Hour
	ages      = 7
	// leastFailures is the number of failures in a window from which they are related to the calls of the service.
	leastFailures = 5
	// leastRecord is the highest healthy score that a service is assumed to have reached before it was observed.
	leastRecord = 0.01
	// leastHistory is the time before a window that must be known. In a shorter history most requests are unusual.
	leastHistory = 2 * Window
	// dominated is the share of the score of a neighbour below which a service is its victim, not a cause of its own.
	dominated = 0.5
	// waiting is the same for services that do not call each other: a service that waits for another one may have no
	// span that says so.
	waiting = 0.1
	// settling is the time after which scores tell victim from cause: while a window fills, they rise.
	settling = Window / 2
	// spreading is the time after which an incident shows all services that it affects: earlier none is learned.
	spreading = 30 * time.Minute
	// located is the number of suspects of an incident whose instances are told apart.
	located = 3
	// falseRate is the expected number of false incidents in a week, of services and of the operations in each scale:
	// one of all.
	falseRate = 1.0 / (1 + numScales)
)

// Tracker raises, follows and closes incidents. It is not safe for concurrent use.
type Tracker struct {
	gates     Gates
	incidents []*tracked // by the time of opening
	baseline
	exceeded    map[trace.Symbol]trace.Nanos // time since which services exceed their thresholds
	changed     map[trace.Symbol]ChangedCalls
	lastEpoch   trace.Nanos   // end of the last epoch, 0 before the first
	epochLength time.Duration // between the last two epochs, 0 if unknown
}

// tracked is an incident with its state. Each field has one writer: raise gives it evidence, merge and gather move
// evidence between incidents, and follow takes it.
type tracked struct {
	Incident
	evidence          // the strongest so far
	current  evidence // of this epoch, if its score is above the threshold
	// affected are the services whose calls may be those of the incident, ascending: its suspects so far, and their
	// callers.
	affected   []trace.Symbol
	every      time.Duration    // between windows that may have evidence, 0 for every epoch
	grown      trace.Nanos      // end of the epoch since which its evidence has neither grown nor returned after an end
	settled    float64          // the score at that time
	plateau    float64          // the score for which settled was steady for some time before, 0 if it never was
	symptoms   symptoms         // since it opened
	before     *compare.Suspect // what its service lost before, if it replaced an incident of that service, or nil
	searched   trace.Nanos      // the last time that a cause was searched, if it is unexplained
	skipFrom   trace.Nanos      // since when calls are no history, in its present opening
	acceptance *Acceptance      // by a person since the last epoch, or nil
}

// NewTracker returns a tracker without incidents.
func NewTracker() *Tracker {
	return &Tracker{
		gates:    DefaultGates(),
		baseline: newBaseline(),
		exceeded: make(map[trace.Symbol]trace.Nanos),
		changed:  make(map[trace.Symbol]ChangedCalls),
	}
}

// Incidents returns the open incidents and the closed ones that are kept, in the order in which they were opened. The
// result is valid until the next step.
func (t *Tracker) Incidents() []Incident {
	all := make([]Incident, len(t.incidents))
	for i, x := range t.incidents {
		all[i] = x.Incident
	}
	return all
}

// Step ends an epoch at time now, with the objectives that burn. It excludes the time of incidents from the history of
// the services that they affect.
//
//  1. Compare the window that ends now with the history, as it was before people accepted incidents in this epoch.
//  2. Take the time: a downtime of the service is no quiet time of an incident, and records age.
//  3. Accept incidents before judging, because their services are learned again and raise nothing meanwhile.
//  4. Judge windows by the records of healthy ones. Judging changes nothing: the order of services is irrelevant.
//  5. Raise incidents by what was judged.
//  6. Merge incidents of one cause once all are raised: a younger one may explain an older one. Services that only make
//     other calls are noted.
//  7. Burn objectives after that: they join an incident on the way of their requests rather than opening one.
//  8. Follow the open incidents once all evidence is known: renew their suspects, or close them.
//  9. Learn last: only a window that no incident touches is healthy.
func (t *Tracker) Step(now trace.Nanos, sites *compare.Comparer, burns ...Burn) {
	f, brief := t.compare(now, sites)
	t.resume(now, sites)
	t.age(now)
	t.accept(now, sites)
	ready := Ready(now, sites.Sites)
	if ready {
		t.review(now, sites)
		for _, e := range t.judgeAll(now, f, sites) {
			t.raise(now, e, sites)
		}
		t.merge(now, sites)
		t.gather(now, f, sites)
		t.noteCalls(now, f, sites)
	}
	t.burn(now, burns, sites)
	if brief && slices.ContainsFunc(t.incidents, (*tracked).grows) {
		f.Comparison = sites.Compare(f.window, compare.Steady)
	}
	open := t.followAll(now, sites)
	if open || ready {
		t.learnWindow(now, &f.Comparison, open)
	}
}

// compare compares the window that ends now. A brief comparison leaves out services without evidence; it cannot be
// repeated in full once the history has changed.
func (t *Tracker) compare(now trace.Nanos, sites *compare.Comparer) (f *finding, brief bool) {
	f = &finding{window: history.Interval{From: now.Add(-Window), To: now}}
	if slices.ContainsFunc(t.incidents, func(x *tracked) bool { return x.acceptance != nil }) {
		f.Comparison = sites.Compare(f.window, compare.Steady)
		return f, false
	}
	f.Comparison = sites.Compare(f.window, compare.Brief)
	return f, true
}

// judgeAll judges the windows that end now, and learns from the windows of slower scales. It returns the evidence that
// raises incidents.
func (t *Tracker) judgeAll(now trace.Nanos, f *finding, sites *compare.Comparer) []evidence {
	j, exceeded := t.judge(now, f, sites)
	slow := t.slowWindows(now, sites)
	for _, w := range slow {
		j.add(t.judgeSlowly(now, w, sites))
	}
	t.exceeded = exceeded
	t.keep(now, j.keeping)
	t.learnSlowly(now, slow)
	return j.raising
}

// followAll follows the open incidents. It reports whether any is open whose time teaches nothing.
func (t *Tracker) followAll(now trace.Nanos, sites *compare.Comparer) (open bool) {
	for _, x := range t.incidents {
		if x.IsOpen() {
			open = t.follow(now, x, sites) && !x.staysUnexplained(now) || open
		}
	}
	return open
}

// resume leaves a time out of account in which the service did not run: there were no epochs, and hardly any minute of
// it has traces. Nobody saw whether the evidence of the open incidents went on.
func (t *Tracker) resume(now trace.Nanos, sites *compare.Comparer) {
	gap := now.Sub(t.lastEpoch)
	if t.lastEpoch != 0 && gap >= time.Minute && gap > 2*t.epochLength {
		seen := time.Duration(sites.Minutes(now)-sites.Minutes(t.lastEpoch)) * time.Minute
		for _, x := range t.incidents {
			if x.IsOpen() && seen < gap/2 {
				x.Seen = x.Seen.Add(gap)
			}
		}
	}
	if t.lastEpoch != 0 {
		t.epochLength = gap
	}
	t.lastEpoch = now
}

// Ready reports whether the history before the current window is long enough to judge it. Minutes with traces count,
// not the time since the first one, which may have a wrong clock. The first minute may be incomplete.
func Ready(now trace.Nanos, sites *history.Sites) bool {
	return sites.Minutes(now.Add(-Window)) > int(leastHistory/time.Minute)
}

// Ages of an installation from which more is judged than all calls of a service together.
const (
	SilenceAfter    = compare.SteadyFor                       // requests that stop
	OperationsAfter = 24 * time.Hour                          // operations by themselves
	GrowthAfter     = 7*24*time.Hour + history.GrowthDuration // changes that take days
)

// Left returns how long requests must go on until [Ready] is true; 0 if it is.
func Left(now trace.Nanos, sites *history.Sites) time.Duration {
	if Ready(now, sites) {
		return 0
	}
	return max(time.Minute, leastHistory+Window+time.Minute-time.Duration(sites.Minutes(now))*time.Minute)
}

// Forget deletes the incidents that closed before a time, and the first closed ones beyond [MaxClosed].
func (t *Tracker) Forget(before trace.Nanos) {
	t.incidents = slices.DeleteFunc(t.incidents, func(x *tracked) bool { return !x.IsOpen() && x.Closed() < before })
	closed := 0
	for _, x := range t.incidents {
		if !x.IsOpen() {
			closed++
		}
	}
	t.incidents = slices.DeleteFunc(t.incidents, func(x *tracked) bool {
		if x.IsOpen() || closed <= MaxClosed {
			return false
		}
		closed--
		return true
	})
}

// Acceptance is the decision of a person that the behaviour since the onset of an incident is normal.
type Acceptance struct{ By, Text string }

// Accept marks an open incident as accepted by someone, with a note; both may be empty. The next step closes it and
// takes the behaviour of its first suspect since the onset as normal. It reports whether the incident is open.
func (t *Tracker) Accept(id uint64, by, text string) bool {
	for _, x := range t.incidents {
		if x.ID == id && x.IsOpen() {
			x.acceptance = &Acceptance{by, text}
			return true
		}
	}
	return false
}

// accept closes the accepted incidents. The service that raised one counts as its suspect, too: it may no longer be the
// first one.
func (t *Tracker) accept(now trace.Nanos, sites *compare.Comparer) {
	maps.DeleteFunc(t.relearned, func(_ trace.Symbol, since trace.Nanos) bool { return now.Sub(since) >= relearning })
	for _, x := range t.incidents {
		if x.acceptance == nil {
			continue
		}
		x.close(Transition{At: now, State: Accepted, Why: ByPerson, By: x.acceptance.By, Text: x.acceptance.Text})
		x.acceptance = nil
		for _, service := range []trace.Symbol{x.service, x.Suspects[0].Service} {
			sites.Accept(service, history.Interval{From: x.Onset, To: now})
			t.relearn(now, service)
		}
	}
}
