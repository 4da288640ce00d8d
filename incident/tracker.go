package incident

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// The constants of the tracker don't depend on the application: they contain no request durations and no names.
const (
	// Window is the length of the windows that we judge services by. In three minutes, even an application with one
	// request per second makes enough calls at most sites, and an on-call engineer takes longer than that to look.
	Window = 3 * time.Minute
	// quiet is the minimum time without evidence before an incident is over.
	quiet = 2 * time.Minute
	// returning is the time after the end of an incident within which new evidence reopens it. It is longer once a day
	// is known, because some faults come and go, and others are so small that they show only now and then.
	returning       = 3 * time.Minute
	returningLonger = 10 * time.Minute
	// MaxClosed is the maximum number of closed incidents that are kept.
	MaxClosed = 1000
	// keptSuspects and keptOperations limit the suspects of a closed incident and the operations of each suspect.
	keptSuspects   = 20
	keptOperations = 10
	// recordAge is the length of an age of records, and ages is the number of ages that count, including the current
	// one. They add up to a week because many services and operations have their worst minutes once a week.
	recordAge = 24 * time.Hour
	ages      = 7
	// leastFailures is the minimum number of failures in a window for relating them to the calls of the service.
	leastFailures = 5
	// leastRecord is the score that we assume a service to have reached in a healthy window before we observed it.
	leastRecord = 0.01
	// leastHistory is the minimum length of the history before a window. With a shorter history, most requests look
	// unusual.
	leastHistory = 2 * Window
	// dominated is the maximum score of a victim, relative to its neighbour's score. A service with a higher score has
	// a cause of its own.
	dominated = 0.5
	// waiting is like dominated, but for services that don't call each other: a service that waits for another may have
	// no span that shows it.
	waiting = 0.1
	// settling is the time until scores, which rise as a window fills, can tell the victim from the cause.
	settling = Window / 2
	// spreading is the time that an incident may take to show all services that it affects. Until then, we don't learn
	// from any service.
	spreading = 30 * time.Minute
	// located is the number of suspects per incident whose instances are compared.
	located = 3
	// falseRate is the expected number of false incidents per week from services, and from operations at each scale.
	// The total is one.
	falseRate = 1.0 / (1 + numScales)
)

// Tracker raises, follows and closes incidents. It is not safe for concurrent use.
type Tracker struct {
	incidents   incidents
	baseline    baseline
	exceeded    map[trace.Symbol]trace.Nanos // time when services first exceeded their thresholds
	changed     map[trace.Symbol]ChangedCalls
	lastEpoch   trace.Nanos   // end of the last epoch, or 0 before the first
	epochLength time.Duration // time between the last two epochs, or 0 if unknown
}

// tracked is an incident with the state that the tracker keeps for it. raise adds evidence, merge and gather move
// evidence between incidents, and follow consumes it.
type tracked struct {
	Incident
	evidence          // the strongest so far
	current  evidence // evidence of this epoch, if above the thresholds
	// affected are the services whose calls may belong to the incident, ascending: its suspects so far and their
	// callers.
	affected   []trace.Symbol
	every      time.Duration    // time between windows that may have evidence; 0 for every epoch
	grown      trace.Nanos      // end of the epoch when its evidence last grew, or returned after an end
	settled    float64          // score at that time
	plateau    float64          // the steady score before it grew to settled, or 0
	symptoms   symptoms         // symptoms since it opened
	before     *compare.Suspect // first suspect of the incident that it replaced, or nil
	searched   trace.Nanos      // when we last searched for a cause, if unexplained
	skipFrom   trace.Nanos      // start of the excluded calls since it last opened
	acceptance *Acceptance      // made since the last epoch, or nil
}

// NewTracker returns a tracker without incidents.
func NewTracker() *Tracker {
	return &Tracker{
		baseline: newBaseline(),
		exceeded: make(map[trace.Symbol]trace.Nanos),
		changed:  make(map[trace.Symbol]ChangedCalls),
	}
}

// Incidents returns the open incidents and the closed ones that are kept, in the order of opening. The result is valid
// until the next call to Step.
func (t *Tracker) Incidents() []Incident {
	all := make([]Incident, len(t.incidents))
	for i, x := range t.incidents {
		all[i] = x.Incident
	}
	return all
}

// Step ends an epoch at time now. burns holds the burning objectives. Step excludes the time of incidents from the
// history of the services that they affect.
//
//  1. Compare the window that ends now with the history, as it was before people accepted incidents in this epoch.
//  2. Advance the time: if Sibyl itself was down, that was not a quiet time of an incident, and records age.
//  3. Accept incidents before judging, because their services are then learned again and raise nothing.
//  4. Judge windows by the records of healthy ones. Judging changes nothing, so the order of services is irrelevant.
//  5. Raise incidents from the evidence.
//  6. Merge incidents of one cause once all are raised, because a younger one may explain an older one. Note services
//     whose only change is that they make other calls.
//  7. Burn objectives after that: they join an incident on the path of their requests if there is one.
//  8. Follow the open incidents once all evidence is known: update their suspects, or close them.
//  9. Learn last, because a window is healthy only if no incident touches it.
func (t *Tracker) Step(now trace.Nanos, comparer *compare.Comparer, burns ...Burn) {
	f, brief := t.compare(now, comparer)
	t.resume(now, comparer)
	t.baseline.age(now)
	t.accept(now, comparer)
	ready := Ready(now, comparer.Sites)
	if ready {
		if len(t.incidents) == 0 {
			t.baseline.review(now, comparer)
		}
		for _, e := range t.judgeAll(now, f, comparer) {
			t.raise(now, e, comparer)
		}
		t.merge(now, comparer)
		t.gather(now, f, comparer)
		t.noteCalls(now, f, comparer)
	}
	t.burn(now, burns, comparer)
	if brief && slices.ContainsFunc(t.incidents, (*tracked).grows) {
		f.Comparison = comparer.Compare(f.window, compare.Steady)
	}
	open := t.followAll(now, comparer)
	if open || ready {
		t.learnWindow(now, &f.Comparison, open)
	}
}

// compare compares the window that ends now with the history. brief reports whether the comparison leaves out services
// without evidence. If an incident has been accepted, the comparison is a full one, because it can't be repeated once
// the history has changed.
func (t *Tracker) compare(now trace.Nanos, comparer *compare.Comparer) (f *finding, brief bool) {
	f = &finding{window: history.Interval{From: now.Add(-Window), To: now}}
	if slices.ContainsFunc(t.incidents, func(x *tracked) bool { return x.acceptance != nil }) {
		f.Comparison = comparer.Compare(f.window, compare.Steady)
		return f, false
	}
	f.Comparison = comparer.Compare(f.window, compare.Brief)
	return f, true
}

// judgeAll judges f and the windows of slower scales that end now, and learns from the slower windows. It returns the
// evidence that raises incidents.
func (t *Tracker) judgeAll(now trace.Nanos, f *finding, comparer *compare.Comparer) []evidence {
	j, exceeded := t.judge(now, f, comparer)
	slow := t.baseline.slowWindows(now, comparer)
	for _, w := range slow {
		j.add(t.judgeSlowly(now, w, comparer))
	}
	t.exceeded = exceeded
	for _, service := range j.keeping {
		t.incidents.openOf(service).Seen = now
	}
	t.learnSlowly(now, slow)
	return j.raising
}

// followAll follows the open incidents. It reports whether an incident is open that keeps us from learning.
func (t *Tracker) followAll(now trace.Nanos, comparer *compare.Comparer) (open bool) {
	for _, x := range t.incidents {
		if x.IsOpen() {
			open = t.follow(now, x, comparer) && !x.staysUnexplained(now) || open
		}
	}
	return open
}

// resume makes the open incidents ignore a period when Sibyl wasn't running, that is, when there were no epochs and few
// minutes have traces. Nobody saw whether the evidence of these incidents continued.
func (t *Tracker) resume(now trace.Nanos, comparer *compare.Comparer) {
	gap := now.Sub(t.lastEpoch)
	if t.lastEpoch != 0 && gap >= time.Minute && gap > 2*t.epochLength {
		seen := time.Duration(comparer.Requests.Minutes(now)-comparer.Requests.Minutes(t.lastEpoch)) * time.Minute
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

// Ready reports whether the history before the window that ends now is long enough to judge the window. It counts
// minutes with traces instead of the time since the first trace, which may have a wrong clock, and one minute more
// because the first may be incomplete.
func Ready(now trace.Nanos, sites *history.Sites) bool {
	return sites.Requests.Minutes(now.Add(-Window)) > int(leastHistory/time.Minute)
}

// Ages that an installation must reach before we judge the following changes. Until then, we judge only all calls of a
// service together.
const (
	SilenceAfter    = compare.SteadyFor                       // requests that stop
	OperationsAfter = 24 * time.Hour                          // individual operations
	GrowthAfter     = 7*24*time.Hour + history.GrowthDuration // changes that take days
)

// Left returns how much longer requests must arrive until [Ready] returns true: at least a minute, or 0 if it already
// does.
func Left(now trace.Nanos, sites *history.Sites) time.Duration {
	if Ready(now, sites) {
		return 0
	}
	return max(time.Minute, leastHistory+Window+time.Minute-time.Duration(sites.Requests.Minutes(now))*time.Minute)
}

// Forget deletes the incidents that closed before the given time, and the oldest closed incidents beyond [MaxClosed].
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

// Acceptance is a person's decision that the behaviour since the onset of an incident is normal.
type Acceptance struct{ By, Text string }

// Accept marks an open incident as accepted by a person, with a note; both may be empty. The next call to Step closes
// the incident and makes the behaviour of its first suspect since the onset normal. Accept returns false if no open
// incident has this ID.
func (t *Tracker) Accept(id uint64, by, text string) bool {
	for _, x := range t.incidents {
		if x.ID == id && x.IsOpen() {
			x.acceptance = &Acceptance{by, text}
			return true
		}
	}
	return false
}

// accept closes the accepted incidents and relearns their first suspects. It also relearns the service that raised an
// incident, which may no longer be the first suspect.
func (t *Tracker) accept(now trace.Nanos, comparer *compare.Comparer) {
	maps.DeleteFunc(t.baseline.relearned, func(_ trace.Symbol, since trace.Nanos) bool {
		return now.Sub(since) >= relearning
	})
	for _, x := range t.incidents {
		if x.acceptance == nil {
			continue
		}
		x.close(Transition{At: now, State: Accepted, Why: ByPerson, By: x.acceptance.By, Text: x.acceptance.Text})
		x.acceptance = nil
		for _, service := range []trace.Symbol{x.service, x.Suspects[0].Service} {
			comparer.Accept(service, history.Interval{From: x.Onset, To: now})
			t.baseline.relearn(now, service)
		}
	}
}
