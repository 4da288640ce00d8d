package incident

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
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
	records   map[trace.Symbol]*record
	healthy   [ages]float64 // number of windows judged healthy, by age of records: the current one first
	requests  [ages]float64 // in these windows
	scales    [numScales]scale
	aged      trace.Nanos                  // beginning of the current age
	judged    trace.Nanos                  // end of the first window that was judged or reviewed; 0: none
	stepped   trace.Nanos                  // end of the last epoch; 0: none
	pace      time.Duration                // between the last two epochs; 0: not known
	pending   []window                     // not yet known to be healthy
	relearned map[trace.Symbol]trace.Nanos // services that are learned anew, with the time of their acceptance
	above     map[trace.Symbol]trace.Nanos // since when the scores of services are above their thresholds
}

// window is the evidence of one epoch.
type window struct {
	end      trace.Nanos
	requests uint64
	scores   []score // above 0
}

// score holds the levels of a service in a window.
type score struct {
	service trace.Symbol
	levels
}

// levels are the numbers that raise incidents, each above its own record. Times vary more than failures: next to a
// service's record of times, those of many requests would not count.
type levels struct {
	all      float64 // the score
	failures float64 // failures per request or, of a service with fewer calls than requests, per call
	// chance is the score times the square root of the number of requests. What scores are by chance grows when traffic
	// falls, at night and at weekends.
	chance float64
}

// levelsOf returns the levels of a suspect. A few failures count among all requests, since one or two may be most of
// the calls to a service that is rarely called.
func levelsOf(s *baselinediff.Suspect, requests uint64) levels {
	failures := s.Errors + s.Unanswered
	if s.Failures >= leastFailures && s.Calls > 0 {
		failures /= s.Calls
	}
	return levels{s.Score, failures, s.Score * math.Sqrt(float64(requests))}
}

// max returns the larger ones of the levels.
func (l levels) max(m levels) levels {
	return levels{max(l.all, m.all), max(l.failures, m.failures), max(l.chance, m.chance)}
}

// tracked is an incident with its state.
type tracked struct {
	Incident
	charge        // the highest so far
	now    charge // of this epoch, if its score is above the threshold
	// affected are the services whose calls may be those of the incident, ascending: its suspects so far, and their
	// callers.
	affected  []trace.Symbol
	every     time.Duration // between windows that may have evidence; 0: every epoch
	looked    trace.Nanos   // of an unexplained one: the last time that a cause was looked for
	level     float64       // the score since Steady
	unhealthy trace.Nanos   // since when the calls are no history while x is open
}

// finding is the comparison of a window.
type finding struct {
	baselinediff.Comparison
	window baselinediff.Interval
	every  time.Duration // between two windows; 0: every epoch
	weeks  int           // that the times it compares with are ago; 0: they are those of the hours before
}

// charge is the evidence against the service that an incident is about.
type charge struct {
	service trace.Symbol
	score   float64
	waits   bool // the score is time spent in the service, which may be time in which it waits for another one
	opaque  bool // the service emits no spans: its score is time that its callers wait, which is also charged to them
	// beyond is the part of the score above its threshold, without changed call flows: neighbours of a slow service may
	// make other calls. At 0 or less, only they raise an incident.
	beyond float64
	shared []baselinediff.SharedPart
	from   *finding // nil: of an earlier epoch
}

// chargeOf returns the evidence against a suspect whose levels raise an incident. Threshold is that of its score.
func chargeOf(s *baselinediff.Suspect, threshold float64, from *finding) charge {
	const nearlyAll = 0.95
	return charge{
		service: s.Service, score: s.Score, waits: s.Own >= nearlyAll*s.Score, opaque: s.Opaque,
		beyond: s.Score - s.Shape - s.Unanswered - threshold, shared: s.Shared, from: from,
	}
}

// include adds the evidence of an operation that raises an incident by itself. That of its typical time may come
// earlier than any other of its service.
func (c *charge) include(o *baselinediff.SuspectOperation) {
	c.score, c.beyond = max(c.score, o.Score), max(c.beyond, o.Score)
}

// apart reports whether the evidence raises an incident without the part that the service shares with a neighbour.
func (c *charge) apart(neighbour trace.Symbol) bool {
	for _, x := range c.shared {
		if x.Service == neighbour {
			return c.beyond > x.Score
		}
	}
	return c.beyond > 0
}

// record is the highest levels of a service in healthy windows, by age: the current one first.
type record [ages]levels

// NewTracker returns a tracker without incidents.
func NewTracker() *Tracker {
	t := &Tracker{
		gates: DefaultGates(), records: make(map[trace.Symbol]*record), relearned: make(map[trace.Symbol]trace.Nanos), above: make(map[trace.Symbol]trace.Nanos),
	}
	for i := range t.scales {
		t.scales[i].records = make(map[operation]*operationRecord)
	}
	return t
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
func (t *Tracker) Step(now trace.Nanos, history *baselinediff.Sites, burns ...Burn) {
	f := &finding{window: baselinediff.Interval{From: now.Add(-Window), To: now}}
	manner := baselinediff.Brief
	if slices.ContainsFunc(t.incidents, func(x *tracked) bool { return x.Accepted && x.Closed == 0 }) {
		manner = baselinediff.Steady // accepting them changes the history
	}
	f.Comparison = history.Compare(f.window, manner)
	t.resume(now, history)
	t.age(now)
	t.accept(now, history)
	ready := Ready(now, history)
	if ready {
		t.review(now, history)
		for _, c := range append(t.charges(now, f, history), t.judgeSlowly(now, history)...) {
			t.raise(now, c, history)
		}
		t.merge(now, history)
	}
	t.burn(now, burns, history)
	if manner == baselinediff.Brief && slices.ContainsFunc(t.incidents, (*tracked).grows) {
		f.Comparison = history.Compare(f.window, baselinediff.Steady)
	}
	open := false
	for _, x := range t.incidents {
		if x.Closed == 0 {
			open = t.follow(now, x, history) && !x.lasts(now) || open
		}
	}
	switch {
	case open:
		t.learnBefore(t.onset(now))
		t.pending = t.pending[:0]
		t.pendUnaffected(now, &f.Comparison)
	case ready && f.Requests > 0 && !t.inWindow(now):
		t.pend(now, &f.Comparison)
	}
}

// resume leaves a time out of account in which the service did not run: there were no epochs, and hardly any minute of
// it has traces. Nobody saw whether the evidence of the open incidents went on.
func (t *Tracker) resume(now trace.Nanos, history *baselinediff.Sites) {
	gap := now.Sub(t.stepped)
	if t.stepped != 0 && gap >= time.Minute && gap > 2*t.pace {
		seen := time.Duration(history.Minutes(now)-history.Minutes(t.stepped)) * time.Minute
		for _, x := range t.incidents {
			if x.Closed == 0 && seen < gap/2 {
				x.Seen = x.Seen.Add(gap)
			}
		}
	}
	if t.stepped != 0 {
		t.pace = gap
	}
	t.stepped = now
}

// Ready reports whether the history before the current window is long enough to judge it. Minutes with traces count,
// not the time since the first one, which may have a wrong clock. The first minute may be incomplete.
func Ready(now trace.Nanos, history *baselinediff.Sites) bool {
	return history.Minutes(now.Add(-Window)) > int(leastHistory/time.Minute)
}

// Ages of an installation from which more is judged than all calls of a service together.
const (
	OperationsAfter = 24 * time.Hour                               // operations by themselves
	GrowthAfter     = 7*24*time.Hour + baselinediff.GrowthDuration // changes that take days
)

// Left returns how long requests must go on until [Ready] is true; 0 if it is.
func Left(now trace.Nanos, history *baselinediff.Sites) time.Duration {
	if Ready(now, history) {
		return 0
	}
	return max(time.Minute, leastHistory+Window+time.Minute-time.Duration(history.Minutes(now))*time.Minute)
}

// review learns the scores of the windows before the first one that was judged. There are some if a history becomes
// known at once, like that of a replayed recording, which may take several epochs to arrive.
func (t *Tracker) review(now trace.Nanos, history *baselinediff.Sites) {
	if len(t.incidents) > 0 {
		return
	}
	first, last := now.Add(-history.Covered(now)).Add(leastHistory+Window), now.Add(-lengths[fine].proving)
	if t.judged != 0 {
		last = min(last, t.judged.Add(-Window))
	}
	if t.judged == 0 || first < t.judged {
		t.judged = min(first, now)
	}
	for end := first; end <= last; end = end.Add(Window) {
		c := history.Compare(baselinediff.Interval{From: end.Add(-Window), To: end}, baselinediff.Brief)
		ratio := t.ratio(history.Services())
		unusual := func(s baselinediff.Suspect) bool { return t.unusual(&s, c.Requests, ratio, 1) }
		if c.Requests > 0 && !slices.ContainsFunc(c.Suspects, unusual) {
			t.learn(&window{end, c.Requests, t.scores(end, &c)}, 1)
		}
	}
}

// Forget deletes the incidents that closed before a time, and the first closed ones beyond [MaxClosed].
func (t *Tracker) Forget(before trace.Nanos) {
	t.incidents = slices.DeleteFunc(t.incidents, func(x *tracked) bool { return x.Closed != 0 && x.Closed < before })
	closed := 0
	for _, x := range t.incidents {
		if x.Closed != 0 {
			closed++
		}
	}
	t.incidents = slices.DeleteFunc(t.incidents, func(x *tracked) bool {
		if x.Closed == 0 || closed <= MaxClosed {
			return false
		}
		closed--
		return true
	})
}

// relearning is the time after the acceptance of a service's behaviour in which it raises nothing. Its scores mean
// nothing until its history is long enough, and after that they are learned.
const relearning = leastHistory + 3*Window

// Accept marks an open incident as accepted by someone, with a note; both may be empty. The next step closes it and
// takes the behaviour of its first suspect since the onset as normal. It reports whether the incident is open.
func (t *Tracker) Accept(id uint64, by, text string) bool {
	for _, x := range t.incidents {
		if x.ID == id && x.Closed == 0 {
			x.Accepted, x.AcceptedBy, x.AcceptedText = true, by, text
			return true
		}
	}
	return false
}

// accept closes the accepted incidents. The service that raised one counts as its suspect, too: it may no longer be the
// first one.
func (t *Tracker) accept(now trace.Nanos, history *baselinediff.Sites) {
	maps.DeleteFunc(t.relearned, func(_ trace.Symbol, since trace.Nanos) bool { return now.Sub(since) >= relearning })
	for _, x := range t.incidents {
		if !x.Accepted || x.Closed != 0 {
			continue
		}
		x.close(now)
		for _, service := range []trace.Symbol{x.service, x.Suspects[0].Service} {
			history.Accept(service, baselinediff.Interval{From: x.Onset, To: now})
			t.relearned[service] = now
			delete(t.records, service)
			for i := range t.pending {
				t.pending[i].scores = slices.DeleteFunc(t.pending[i].scores, func(s score) bool { return s.service == service })
			}
			for i := range t.scales {
				t.scales[i].forget(func(s trace.Symbol) bool { return s == service })
				maps.DeleteFunc(t.scales[i].records, func(o operation, _ *operationRecord) bool { return o.service == service })
			}
		}
	}
}

// close closes x. It keeps the suspects that are worth showing.
func (x *tracked) close(now trace.Nanos) {
	x.Closed = now
	x.Suspects = slices.Clone(x.Suspects[:min(len(x.Suspects), keptSuspects)])
	for i := range x.Suspects {
		s := &x.Suspects[i]
		s.Operations = slices.Clone(s.Operations[:min(len(s.Operations), keptOperations)])
	}
}

// keeping is the share of a threshold that keeps an incident open: evidence near the threshold comes and goes.
const keeping = 0.5

// charges returns the suspects whose evidence raises an incident, in their order, and notes since when it is. It notes
// the evidence that keeps incidents open.
func (t *Tracker) charges(now trace.Nanos, f *finding, history *baselinediff.Sites) []charge {
	var above []charge
	ratio := t.ratio(history.Services())
	since := make(map[trace.Symbol]trace.Nanos)
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if s.Score == 0 && len(s.Operations) == 0 && s.Whole.Rise == 0 || t.isRelearned(s.Service) {
			continue
		}
		o, certain := t.grown(now, fine, s, f, 1, history)
		whole := t.withoutNews(now, s, history)
		unusual := t.unusual(whole, f.Requests, ratio, 1)
		if o == nil && !unusual {
			x, at := t.openOf(s.Service), t.above[s.Service]
			if x == nil && at == 0 {
				continue
			}
			if kept, _ := t.grown(now, fine, s, f, keeping, history); kept == nil && !t.unusual(whole, f.Requests, ratio, keeping) {
				continue
			}
			if at != 0 {
				since[s.Service] = at
			}
			if x != nil {
				x.Seen = now
			}
			continue
		}
		since[s.Service] = now
		if at, ok := t.above[s.Service]; ok {
			since[s.Service] = at
		}
		if now.Sub(since[s.Service]) < confirming && !unusual && !certain {
			continue
		}
		c := chargeOf(s, t.threshold(s.Service, f.Requests, ratio), f)
		if o != nil {
			c.include(o)
		}
		above = append(above, c)
	}
	t.above = since
	return above
}

// withoutNews returns a suspect without the changed call flows of a version that was deployed within the last half of
// the history, after which they are usual: a version that makes other calls is no incident, unless it is slower or
// fails more.
func (t *Tracker) withoutNews(now trace.Nanos, s *baselinediff.Suspect, history *baselinediff.Sites) *baselinediff.Suspect {
	if s.Shape == 0 || history.Covered(now) <= baselinediff.Span/2 || !history.Deployed(s.Service, now.Add(-baselinediff.Span/2)) {
		return s
	}
	whole := *s
	whole.Score -= whole.Shape
	return &whole
}

// isRelearned reports whether a service is learned anew.
func (t *Tracker) isRelearned(service trace.Symbol) bool {
	_, relearned := t.relearned[service]
	return relearned
}

// openOf returns the open incident of a service; nil if there is none.
func (t *Tracker) openOf(service trace.Symbol) *tracked {
	for _, x := range t.incidents {
		if x.Closed == 0 && x.service == service {
			return x
		}
	}
	return nil
}

// ratio returns how many times its record the score of a service must reach, see [ratioFor].
func (t *Tracker) ratio(services int) float64 { return ratioFor(services, fine, t.healthy[:]) }

// ratioFor returns how many times its record one of a number of scores must reach in a window of a scale, if a number
// of windows without overlap were healthy, by age.
//
// The highest scores of healthy windows fall off exponentially, so that the record of n windows is about θ·ln n, and
// one window exceeds r times the record with probability n^−r. With r = ln(N) ⁄ ln(n), for the N windows of all scores
// in a week, one of them is expected to. After a day both numbers count the windows that are as good as independent; at
// first it is rather the application that varies than chance.
func ratioFor(scores, of int, healthy []float64) float64 {
	const week = 7 * 24 * time.Hour
	length, independent, n := lengths[of].window, 1.0, sum(healthy)
	if n*length.Hours() > 24 {
		independent = lengths[of].independent
	}
	return max(1.25, math.Log(independent*float64(week/length)*float64(max(1, scores))/falseRate)/math.Log(max(2, independent*n)))
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// threshold returns the score that raises an incident, if healthy windows reached the given highest one.
func (g *Gates) threshold(highest, ratio float64) float64 {
	return max(g.Score, ratio*max(leastRecord, highest))
}

// threshold returns the score of a service that raises an incident in a window with a number of requests. With fewer
// requests than usual, chance makes higher scores, also of services that have none in the usual traffic.
func (t *Tracker) threshold(service trace.Symbol, requests uint64, ratio float64) float64 {
	fewer := 1.0
	if t.dayIsKnown() { // else the usual traffic is not known
		fewer = max(1, sum(t.requests[:])/sum(t.healthy[:])/float64(max(1, requests)))
	}
	return max(t.gates.threshold(t.highest(service).score(requests), ratio), math.Sqrt(fewer)*t.gates.threshold(0, ratio))
}

// highest returns the highest levels of a service in healthy windows.
func (t *Tracker) highest(service trace.Symbol) levels {
	var highest levels
	if r := t.records[service]; r != nil {
		for _, l := range r {
			highest = highest.max(l)
		}
	}
	return highest
}

// score returns the highest score that is usual in a window with a number of requests.
func (l levels) score(requests uint64) float64 {
	return max(l.all, l.chance/math.Sqrt(float64(max(1, requests))))
}

// unusual reports whether the evidence against a suspect reaches a share of the threshold.
func (t *Tracker) unusual(s *baselinediff.Suspect, requests uint64, ratio, share float64) bool {
	now := levelsOf(s, requests)
	return now.all >= share*t.threshold(s.Service, requests, ratio) || now.failures >= share*t.gates.threshold(t.highest(s.Service).failures, ratio)
}

// aboveRecord returns the part of a score above the record of its service.
func (t *Tracker) aboveRecord(s *baselinediff.Suspect) float64 {
	return max(0, s.Score-t.highest(s.Service).all)
}

// pend takes the scores of a window without an incident, and learns those of windows that have proved healthy.
func (t *Tracker) pend(now trace.Nanos, c *baselinediff.Comparison) {
	t.pending = append(t.pending, window{now, c.Requests, t.scores(now, c)})
	t.scales[fine].pend(now, c, t.isRelearned)
	t.learnBefore(now.Add(-lengths[fine].proving))
}

// pendUnaffected takes the growth of the operations that no incident affects. It is not yet known which those are while
// an incident is new.
func (t *Tracker) pendUnaffected(now trace.Nanos, c *baselinediff.Comparison) {
	x := &t.scales[fine]
	if slices.ContainsFunc(t.incidents, func(x *tracked) bool { return x.Closed == 0 && now.Sub(x.Opened) < spreading }) {
		x.pending = x.pending[:0]
		return
	}
	x.pend(now, c, func(service trace.Symbol) bool {
		return t.isRelearned(service) || t.affects(service, now.Add(-Window))
	})
	x.learnBefore(now.Add(-lengths[fine].proving), Window)
}

// scores returns the scores above 0 in a window that ends now, without those of services whose history is too short.
func (t *Tracker) scores(now trace.Nanos, c *baselinediff.Comparison) []score {
	var scores []score
	for i := range c.Suspects {
		s := &c.Suspects[i]
		if since, relearned := t.relearned[s.Service]; relearned && now.Sub(since) < leastHistory {
			continue
		}
		if x := (score{s.Service, levelsOf(s, c.Requests)}); x.levels != (levels{}) {
			scores = append(scores, x)
		}
	}
	return scores
}

// learnBefore learns the scores of the windows that ended before an instant.
func (t *Tracker) learnBefore(instant trace.Nanos) {
	for len(t.pending) > 1 && t.pending[0].end <= instant {
		t.learn(&t.pending[0], windowsBetween(t.pending[0].end, t.pending[1].end, Window))
		t.pending = slices.Delete(t.pending, 0, 1)
	}
	t.scales[fine].learnBefore(instant, Window)
}

// onset returns the onset of the open incidents, now if there is none.
func (t *Tracker) onset(now trace.Nanos) trace.Nanos {
	for _, x := range t.incidents {
		if x.Closed == 0 {
			now = min(now, x.Onset)
		}
	}
	return now
}

// inWindow reports whether the current window has evidence of a closed incident, unless it was accepted.
func (t *Tracker) inWindow(now trace.Nanos) bool {
	return slices.ContainsFunc(t.incidents, func(x *tracked) bool { return !x.Accepted && x.Seen > now.Add(-Window) && !x.lasts(now) })
}

// windowsBetween returns the number of windows of a length, without overlap, for which one counts whose epoch was
// followed by another: at most itself, since the service may not have run between them.
func windowsBetween(end, next trace.Nanos, length time.Duration) float64 {
	return min(1, float64(next.Sub(end))/float64(length))
}

// learn takes the scores of a healthy window, which counts as a number of windows without overlap.
func (t *Tracker) learn(w *window, windows float64) {
	t.healthy[0] += windows
	t.requests[0] += windows * float64(w.requests)
	for _, s := range w.scores {
		r := t.records[s.service]
		if r == nil {
			r = &record{}
			t.records[s.service] = r
		}
		r[0] = r[0].max(s.levels)
	}
}

// leastInAge is the number of healthy windows that an age of records has at least: during a long incident nothing is
// learned.
const leastInAge = float64(recordAge/Window) / 2

// age begins a new age of records if the current one is old enough.
func (t *Tracker) age(now trace.Nanos) {
	if t.aged == 0 {
		t.aged = now
	}
	if now.Sub(t.aged) < recordAge || t.healthy[0] < leastInAge {
		return
	}
	t.aged = now
	for i := range t.scales {
		t.scales[i].age()
	}
	copy(t.healthy[1:], t.healthy[:])
	copy(t.requests[1:], t.requests[:])
	t.healthy[0], t.requests[0] = 0, 0
	for s, r := range t.records {
		copy(r[1:], r[:])
		if r[0] = (levels{}); *r == (record{}) {
			delete(t.records, s)
		}
	}
}

// raise opens an incident for a service, unless the evidence belongs to one that is open or has just closed.
func (t *Tracker) raise(now trace.Nanos, c charge, history *baselinediff.Sites) {
	for _, x := range slices.Backward(t.incidents) {
		if x.Into != 0 || x.Accepted || x.service != c.service || x.Closed != 0 && now.Sub(x.Closed) > t.returning()+returningWindows*min(x.every, c.from.every) {
			continue
		}
		if x.Closed != 0 {
			if now.Sub(x.Closed) > returning {
				x.every = max(x.every, returningLonger) // it comes and goes
			}
			x.reopen(now, c.from.window.From)
		}
		x.Seen, x.now, x.every = now, c, max(x.every, c.from.every)
		return
	}
	for _, x := range t.incidents {
		if x.Closed != 0 {
			continue
		}
		strongest, sameTime := x.strongest(), t.aboveSince(c.service, now).Sub(x.Opened) < settling
		switch {
		case explained(c, strongest, sameTime, history):
			x.Seen = now
			return
		case explained(strongest, c, sameTime, history):
			x.charge, x.now, x.Seen = charge{service: c.service}, c, now
			return
		case now.Sub(x.Opened) < settling && history.Related(x.service, c.service):
			x.Seen = now // it is not yet known which of them is the cause
			return
		}
	}
	x := &tracked{charge: charge{service: c.service}, now: c, affected: history.Callers(c.service), every: c.from.every}
	w := c.from.window
	x.Onset, x.Opened = history.Onset(c.service, baselinediff.Interval{From: w.From.Add(-w.To.Sub(w.From)), To: now}), now
	x.Seen, x.Weeks, x.unhealthy = now, c.from.weeks, unhealthySince(x.Onset, now)
	x.ID = trace.Mix(uint64(c.service), uint64(now))
	t.incidents = append(t.incidents, x)
	for i := range t.scales {
		t.scales[i].forget(func(s trace.Symbol) bool { return t.affects(s, now) })
	}
}

// unhealthySince returns since when the calls are skipped of an incident that opens now. Until it is known which
// services it affects, those of all are: half of their history must be left, even if the onset is long past.
func unhealthySince(onset, now trace.Nanos) trace.Nanos {
	return max(min(onset, now.Add(-Window)), now.Add(-baselinediff.Span/2))
}

// reopen opens x again, by evidence since an instant. The calls of the time in which it was closed stay in the history:
// after hours there is no other one.
func (x *tracked) reopen(now, since trace.Nanos) {
	x.unhealthy = max(x.Closed, since)
	x.Closed, x.Reopened, x.Steady, x.Alerted = 0, now, now, x.Suspects[0].Service
}

// skip excludes the calls in the present opening of x from the history: of all services, or only of some. Earlier
// openings have skips of their own.
func (x *tracked) skip(now trace.Nanos, history *baselinediff.Sites, services ...trace.Symbol) {
	id := x.ID
	if x.Reopened != 0 {
		id = trace.Mix(id, uint64(x.Reopened))
	}
	history.Skip(id, baselinediff.Interval{From: x.unhealthy, To: now}, services...)
}

// growing is the growth of a score that makes an incident worse than it was. The highest score grows by chance, too.
const growing = 1.25

// returningWindows is the number of windows by which evidence of the slower scales may return later.
const returningWindows = 4

// returning returns the time after the end of an incident within which it is the same if evidence returns.
func (t *Tracker) returning() time.Duration {
	if t.dayIsKnown() {
		return returningLonger
	}
	return returning
}

// dayIsKnown reports whether the healthy windows make up a day.
func (t *Tracker) dayIsKnown() bool {
	return sum(t.healthy[:]) > float64(recordAge/Window)
}

// strongest returns the evidence against the service of x.
func (x *tracked) strongest() charge {
	if x.now.score > x.score {
		return x.now
	}
	return x.charge
}

// explained reports whether a service is the victim of another one. A service that emits no spans and its callers are
// charged with the same time. A neighbour with a much lower score is a victim, unless it has enough evidence apart from
// the calls between both and from the operations that call the cause. Services that do not call each other must be at
// fault since about the same time and have callers in common: then one may wait for the other without a span.
func explained(victim, cause charge, sameTime bool, history *baselinediff.Sites) bool {
	switch {
	case victim.service == cause.service:
		return victim.score <= cause.score
	case history.Adjacent(victim.service, cause.service):
		sameNanos := victim.opaque != cause.opaque && victim.score <= cause.score
		return sameNanos || victim.score < dominated*cause.score && !victim.apart(cause.service)
	default:
		return sameTime && victim.waits && victim.score < waiting*cause.score && history.Related(victim.service, cause.service)
	}
}

// aboveSince returns since when the evidence against a service has been above its threshold: now for that of a slower
// scale.
func (t *Tracker) aboveSince(service trace.Symbol, now trace.Nanos) trace.Nanos {
	if since, ok := t.above[service]; ok {
		return since
	}
	return now
}

// merge joins incidents, the younger to the older, if one explains the other: they have one cause. One that was
// reported in an earlier epoch is closed, others disappear.
func (t *Tracker) merge(now trace.Nanos, history *baselinediff.Sites) {
	t.incidents = slices.DeleteFunc(t.incidents, func(y *tracked) bool {
		for _, x := range t.incidents {
			if x == y {
				return false // x and the following are younger
			}
			if x.Closed != 0 || y.Closed != 0 || x.unexplained() || y.unexplained() {
				continue
			}
			a, b, sameTime := x.strongest(), y.strongest(), t.aboveSince(y.service, now).Sub(x.Opened) < settling
			switch {
			case explained(b, a, sameTime, history):
			case explained(a, b, sameTime, history):
				x.charge, x.now = y.charge, y.now
			default:
				continue
			}
			x.Seen = max(x.Seen, y.Seen)
			x.miss(y.Objectives...)
			if y.Opened == now {
				return true
			}
			y.Into = x.ID
			y.close(now)
			return false
		}
		return false
	})
}

// Silent reports whether no request has come for the quiet time.
func Silent(now trace.Nanos, history *baselinediff.Sites) bool {
	return history.Latest(now) <= now.Add(-quiet)
}

// follow renews the suspects of an open incident when there is more evidence than before, and closes it after a quiet
// time. It reports whether the incident is open.
func (t *Tracker) follow(now trace.Nanos, x *tracked, history *baselinediff.Sites) bool {
	switch {
	case x.lasts(now):
		x.affected = nil
	case now.Sub(x.Opened) < spreading:
		x.skip(now, history)
	default:
		x.skip(now, history, x.affected...)
	}
	if now.Sub(x.Seen) >= quiet+x.every {
		if x.Unseen = Silent(now, history); x.Unseen {
			x.Seen = min(x.Seen, max(x.Opened, history.Latest(now))) // the window was without requests when it still had evidence
		}
		x.close(now)
		return false
	}
	evidence, grows := x.now, x.grows()
	x.now = charge{}
	if grows && evidence.score >= growing*x.level {
		x.Steady, x.level = now, evidence.score
	}
	if x.Proposed == 0 && x.IsSteady(now) {
		x.Proposed = now
	}
	if !grows || x.Opened != now && history.Latest(now) <= now.Add(-max(t.pace, baselinediff.Slice)) {
		x.renew(now, history)
		return true // without new requests the shares in the window change, but nothing new is known
	}
	x.charge = evidence
	f := evidence.from
	x.Suspects = slices.Clone(f.Suspects)
	t.affect(x, history)
	// The service that raised it is first: what explains it has taken its place. A score that a service reaches in
	// healthy windows, too, is no evidence. Suspects with an incident of their own are no rivals.
	slices.SortStableFunc(x.Suspects, func(a, b baselinediff.Suspect) int {
		return cmp.Or(cmp.Compare(t.rank(x, &a), t.rank(x, &b)), cmp.Compare(t.aboveRecord(&b), t.aboveRecord(&a)))
	})
	for i := range x.Suspects[:min(located, len(x.Suspects))] {
		s := &x.Suspects[i]
		s.Instances = history.Instances(f.window, &f.Comparison, s)
	}
	x.measure(x.sinceOnset(now, history))
	if x.Opened == now {
		x.Alerted = x.Suspects[0].Service
	}
	return true
}

// affect adds the suspects of x, and their callers, to the services that it affects. A score that a service reaches in
// healthy windows does not make it one: its history would end with the beginning of the incident.
func (t *Tracker) affect(x *tracked, history *baselinediff.Sites) {
	affected := append(slices.Clone(x.affected), x.service)
	for i := range x.Suspects {
		if s := &x.Suspects[i]; s.Score >= waiting*x.score && t.aboveRecord(s) > 0 {
			affected = append(affected, s.Service)
		}
	}
	x.affected = history.Callers(affected...)
}

// grows reports whether there is more evidence than before.
func (x *tracked) grows() bool { return x.Closed == 0 && x.now.score > 0 && x.now.score >= x.score }

// sinceOnset compares the time since the onset with the history before it.
func (x *tracked) sinceOnset(now trace.Nanos, history *baselinediff.Sites) *baselinediff.Comparison {
	since := history.Compare(baselinediff.Interval{From: x.Onset, To: now}, baselinediff.Plain)
	return &since
}

// renew measures the suspects again, which stay the same, if the first has cost more since the onset than when it was
// measured before: the mean of the time with the most evidence is higher than that of the whole time. The time after a
// recovery adds nothing and does not count.
func (x *tracked) renew(now trace.Nanos, history *baselinediff.Sites) {
	if x.Seen != now || x.unexplained() {
		return
	}
	since, first := x.sinceOnset(now, history), &x.Suspects[0]
	i := slices.IndexFunc(since.Suspects, func(s baselinediff.Suspect) bool { return s.Service == first.Service })
	if i >= 0 && since.Suspects[i].Score*float64(since.Requests) > first.Score*float64(x.Requests) {
		x.Suspects = slices.Clone(x.Suspects)
		x.measure(since)
	}
}

// measure replaces the scores of the suspects by those of the time since the onset. The scores by which incidents are
// raised and suspects ranked are lower bounds, of a window that may begin before the onset.
func (x *tracked) measure(since *baselinediff.Comparison) {
	x.Requests, x.Duration, x.Mean = int(since.Requests), since.Duration, since.Mean
	measured := make(map[trace.Symbol]*baselinediff.Suspect, len(since.Suspects))
	for i := range since.Suspects {
		measured[since.Suspects[i].Service] = &since.Suspects[i]
	}
	for i := range x.Suspects {
		s := &x.Suspects[i]
		if m := measured[s.Service]; m != nil && (s.Score > 0 || len(s.Operations) > 0 || s.Service == x.service) && m.Score > 0 {
			m.Instances = s.Instances
			*s = *m
		}
		if s.Service == x.service && s.Score == 0 {
			showRise(s)
		}
	}
	// The others by the scores that are shown.
	slices.SortStableFunc(x.Suspects[min(1, len(x.Suspects)):], func(a, b baselinediff.Suspect) int { return cmp.Compare(b.Score, a.Score) })
}

// showRise makes the growth of typical times the evidence against a suspect that has no other yet.
func showRise(s *baselinediff.Suspect) {
	s.Operations = slices.Clone(s.Operations)
	for i := range s.Operations {
		o := &s.Operations[i]
		o.Excess, o.Usual = o.Risen, max(0, o.Usual+o.Excess-o.Risen)
		s.Own += o.Score
	}
	if len(s.Operations) == 0 {
		s.Own += s.Whole.Score
	}
	s.Score = s.Own
}

// rank returns 0 for the service that an incident is about, 2 for services that have an open incident of their own, and
// 1 for all others.
func (t *Tracker) rank(x *tracked, s *baselinediff.Suspect) int {
	if s.Service == x.service {
		return 0
	}
	for _, y := range t.incidents {
		if y != x && y.Closed == 0 && y.service == s.Service {
			return 2
		}
	}
	return 1
}
