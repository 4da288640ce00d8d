package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Operations are judged by themselves, too: a large installation runs thousands, and one may be three times as slow
// while all requests lose a thousandth of their time. They are judged once they have been known for a day. See also
// [Gates].
const (
	// leastCalls is the number of calls in a window from which their typical time is judged, and leastMeanCalls that
	// from which their mean is. A call that takes ten times as long makes up a third of the mean of thirty, and a third
	// of an octave of the typical time of ten. Records are also taken of fewer calls: an operation that rarely has
	// enough of them would have a low one.
	leastCalls     = 20
	leastMeanCalls = 100
	// leastRise is the highest healthy rise, in octaves, that an operation is assumed to have reached before it was
	// observed.
	leastRise = 0.15
	// leastFailingRecord is the highest healthy share that an operation is assumed to have reached before it was
	// observed. For its growth see lengths.
	leastFailingRecord = 0.02
)

// Instances are slow when they start, for seconds or for minutes. For a time after a start, operations of the service
// must be slower by a factor to raise an incident.
const (
	warmUp       = 5 * time.Minute
	warmUpFactor = 3
)

// The scales by which operations are judged.
const (
	fine   = iota // every epoch by a window: sudden changes
	coarse        // by longer windows: small changes, and those that come and go
	weekly        // by hours, against those of the week before: changes that take days
	numScales
)

// lengths are the lengths of the windows, the times between two of them, 0: an epoch, and the highest healthy growth
// that an operation is assumed to have reached in one before it was observed. Proving is the time after which a window
// counts as healthy, unless an incident was raised meanwhile that began before its end: scores rise while a window
// fills with the requests of an incident, and what takes days to grow must not teach its own growth.
//
// Windows that overlap have high scores together, but not all of them: independent is the number of those that begin
// within the length of one and are as good as independent. A moving mean of 18 normal numbers exceeds the level which
// one of 200 windows reaches 6 times as often as if windows did not overlap; one of 6 numbers, 4 times as often.
var lengths = [numScales]struct {
	window, every, proving time.Duration
	growth                 float64
	independent            float64
}{
	fine:   {Window, 0, 2 * Window, 0.1, 6},
	coarse: {30 * time.Minute, 5 * time.Minute, time.Hour, 0.1, 4},
	weekly: {time.Hour, time.Hour, 24 * time.Hour, 0.05, 1},
}

// scale is the knowledge of operations in healthy windows of one length.
type scale struct {
	records map[operation]*operationRecord // those without growth in any window have none
	healthy [ages]float64                  // number of windows judged healthy, by age
	pending []grownWindow                  // not yet known to be healthy
	judged  trace.Nanos                    // end of the last window; 0: none
	wholes  trace.Nanos                    // since when the growth of whole services has been taken; 0: it has not
}

// grownWindow is the growth of operations in a window.
type grownWindow struct {
	end    trace.Nanos
	growth []operationGrowth
}

// operationGrowth is the growth of an operation.
type operationGrowth struct {
	operation
	growth
}

// operation identifies an operation of a suspect, or with Op 0 all of its calls.
type operation struct {
	service trace.Symbol
	op      trace.Op
}

func (o operation) compare(p operation) int {
	return cmp.Or(cmp.Compare(o.service, p.service), cmp.Compare(o.op, p.op))
}

// growth are the numbers by which an operation raises incidents, each above its own record.
type growth struct {
	time     float64 // own time of a call above the variation of the history, relative to the usual one
	failures float64 // share of the calls that fail, above the variation of the history
	// rise is the growth of the typical own time of a call in octaves, times the square root of the number of calls: by
	// chance it is larger with fewer of them.
	rise  float64
	added float64 // time of the calls that it makes more often than before, relative to its usual inclusive time
}

// growthOf returns the growth of an operation; zero if it cannot be judged by itself.
func growthOf(o *compare.SuspectOperation) growth {
	var g growth
	if o.Calls >= leastMeanCalls {
		g.time = o.Excess / max(o.Usual, float64(time.Microsecond))
	}
	g.rise = o.Rise * math.Sqrt(o.RiseCalls)
	if o.Calls > 0 && o.Failed >= leastFailures {
		g.failures = o.Failed / o.Calls
	}
	if o.Added.Calls >= leastCalls {
		g.added = o.Added.Nanos / max(o.Added.Usual, float64(time.Microsecond))
	}
	return g
}

// max returns the larger ones of the numbers.
func (g growth) max(h growth) growth {
	return growth{max(g.time, h.time), max(g.failures, h.failures), max(g.rise, h.rise), max(g.added, h.added)}
}

// operationRecord is the highest growth of an operation in healthy windows, by age: the current one first.
type operationRecord [ages]growth

// highest returns the highest growth of all ages. r may be nil.
func (r *operationRecord) highest() (h growth) {
	if r != nil {
		for _, g := range r {
			h = h.max(g)
		}
	}
	return h
}

// Growth of means, and of failures, that is not much larger than needed must be seen for a time: chance comes and goes
// from one epoch to the next. Typical times must rise in two parts of a window anyway.
const (
	confirming   = 20 * time.Second
	certainShare = 2
)

// An operation in few of the requests hardly shows in the score of its service, which is a share of the time of all
// requests: the checkout may take twice as long, and all requests lose a hundredth. So rare operations are judged by
// themselves from the first hour on. As little is known of them, they must grow more than known ones, by typical times
// and by means, and for longer: recorded applications that are healthy have types of requests that take three times as
// long for some seconds. Frequent operations can wait until they have been known for a day.
const (
	rareShare      = 0.12 // calls of a rare operation in the requests of a window, at most
	rareWindows    = 6    // healthy windows that must be known
	rareHistory    = 3    // calls before the window, as a multiple of those in it, at least
	rareGrowth     = 0.5  // in place of [Gates].Growth
	rareFailing    = 0.15 // in place of [Gates].Failing
	rareConfirming = time.Minute
)

// grownOperation is an operation whose growth raises an incident, or keeps it open.
type grownOperation struct {
	*compare.SuspectOperation               // nil: no operation grew
	confirm                   time.Duration // for which growth must be seen before it raises an incident
	rare                      bool
}

// grown returns the operation of a suspect with the highest score whose growth reaches a share of the least one that
// raises an incident.
func (t *Tracker) grown(now trace.Nanos, of int, s *compare.Suspect,
	f *finding, share float64, sites *compare.Comparer,
) (g grownOperation) {
	j := judge{gates: t.gates, of: of, ratio: ratioFor(sites.Operations(), of, t.scales[of].healthy[:]), share: share}
	j.enough = max(1, min(float64(t.gates.Lost)*lengths[of].window.Seconds(), t.gates.lostPart()*float64(f.Requests)*f.Duration))
	j.started = func() bool { return sites.Started(s.Service, now.Add(-warmUp)) }
	judged := s.Operations
	if t.knowsWholes(now) && (s.Whole.Rise > 0 || s.Whole.Excess > 0) && !s.Young {
		judged = append(slices.Clip(judged), s.Whole)
	}
	records := t.scales[of].records
	for i := range judged {
		o := &judged[i]
		m := j.multiples(o, records[operation{s.Service, o.Op}].highest())
		if max(m.slower, m.risen, m.failing, m.adding) < share {
			continue
		}
		if g.SuspectOperation == nil {
			g = grownOperation{o, confirming, false}
		}
		if m.risen >= 1 || max(m.slower, m.failing, m.adding) >= certainShare {
			g.confirm = 0
		}
	}
	if g.SuspectOperation == nil && of == fine && sum(t.scales[of].healthy[:]) >= rareWindows {
		return grownOperation{j.rare(s, f, records), rareConfirming, true}
	}
	return g
}

// rare returns the rare operation of a suspect with the highest score whose growth reaches a share of the least one
// that raises an incident; nil if no growth does.
func (j judge) rare(s *compare.Suspect, f *finding,
	records map[operation]*operationRecord,
) (first *compare.SuspectOperation) {
	j.gates.Growth, j.gates.Failing = max(j.gates.Growth, rareGrowth), max(j.gates.Failing, rareFailing)
	young := f.youngOf(s.Service)
	for i := range young {
		o := &young[i]
		if o.Calls > rareShare*float64(f.Requests) || o.Before < rareHistory*o.Calls {
			continue
		}
		m := j.multiples(&o.SuspectOperation, records[operation{s.Service, o.Op}].highest())
		// beyond what the history explains
		mean := o.Excess / max(o.Usual, float64(time.Microsecond)) / (rareGrowth / 2)
		if max(min(m.risen, mean), m.failing) >= j.share && (first == nil || o.Score > first.Score) {
			first = &o.SuspectOperation
		}
	}
	return first
}

// knowsWholes reports whether the growth of whole services has been known for a day, like that of operations.
func (t *Tracker) knowsWholes(now trace.Nanos) bool {
	since := t.scales[fine].wholes
	return since != 0 && now.Sub(since) >= 24*time.Hour
}

// judge judges the operations in a window.
type judge struct {
	gates  Gates
	of     int     // the scale
	ratio  float64 // of the least growth that raises an incident to the record: see [ratioFor]
	enough float64 // time in ns that all calls of an operation must lose, at least 1
	share  float64 // of the least growth, from which multiples matter
	// started reports whether instances of the service have just started. It takes time linear in the number of all
	// instances.
	started func() bool
}

// multiples are the kinds of growth of an operation as multiples of the least ones that raise an incident.
type multiples struct{ slower, risen, failing, adding float64 }

// addedGrowth is the least growth by added calls. It is large, because their time is only what such calls usually take;
// but calls hardly vary, so that it needs no operation that has been known for a day.
const addedGrowth = 0.5

// multiples judges the growth of an operation, whose highest one in healthy windows is known.
func (j *judge) multiples(o *compare.SuspectOperation, highest growth) (m multiples) {
	g := growthOf(o)
	m.failing = g.failures / max(j.gates.Failing, j.ratio*max(leastFailingRecord, highest.failures))
	m.slower = min(g.time/max(j.gates.Growth, j.ratio*max(lengths[j.of].growth, highest.time)),
		j.lost(o.Excess, o.Calls))
	m.adding = min(g.added/max(addedGrowth, j.ratio*highest.added), j.lost(o.Added.Nanos, o.Added.Calls))
	if j.of == fine && g.rise > 0 && o.Calls >= leastCalls { // the mean of a longer window is as certain
		// Means of logarithms vary about as normal numbers do: the highest ones grow with the root of the logarithm.
		root := math.Sqrt(o.RiseCalls)
		least := max(math.Log2(1+j.gates.Growth)*root, math.Sqrt(j.ratio)*max(leastRise*root, highest.rise))
		m.risen = min(g.rise/least, j.lost(o.Risen, o.Calls))
	}
	if max(m.slower, m.risen, m.adding) >= j.share && j.started() {
		m.slower, m.risen, m.adding = m.slower/warmUpFactor, m.risen/warmUpFactor, m.adding/warmUpFactor
	}
	return m
}

// lost returns the time that calls lose as a multiple of the least time, a call and together.
func (j *judge) lost(excess, calls float64) float64 {
	return min(excess/float64(max(1, j.gates.Time)), excess*calls/j.enough)
}

// pend takes the growth of operations in a window that ends now, except those of some services. That of young ones will
// be known when they are judged.
func (x *scale) pend(now trace.Nanos, c *compare.Comparison, except func(service trace.Symbol) bool) {
	x.wholes = cmp.Or(x.wholes, now)
	w := grownWindow{end: now}
	add := func(service trace.Symbol, o *compare.SuspectOperation) {
		if g := growthOf(o); g != (growth{}) {
			w.growth = append(w.growth, operationGrowth{operation{service, o.Op}, g})
		}
	}
	for i := range c.Suspects {
		s := &c.Suspects[i]
		if except(s.Service) {
			continue
		}
		add(s.Service, &s.Whole)
		for k := range s.Operations {
			add(s.Service, &s.Operations[k])
		}
	}
	for i := range c.Young {
		if o := &c.Young[i]; !except(o.Service) {
			add(o.Service, &o.SuspectOperation)
		}
	}
	x.pending = append(x.pending, w)
}

// learnBefore learns the pending windows, of a length, that ended before an instant.
func (x *scale) learnBefore(instant trace.Nanos, length time.Duration) {
	for len(x.pending) > 1 && x.pending[0].end <= instant {
		x.learn(&x.pending[0], windowsBetween(x.pending[0].end, x.pending[1].end, length))
		x.pending = slices.Delete(x.pending, 0, 1)
	}
}

// mostRecords limits the operations with records. Only names that change all the time exceed it: their operations are
// never known for long enough to be judged.
const mostRecords = 1 << 16

// learn takes the growth in a healthy window, which counts as a number of windows without overlap.
func (x *scale) learn(w *grownWindow, windows float64) {
	x.healthy[0] += windows
	for _, g := range w.growth {
		r := x.records[g.operation]
		if r == nil {
			if len(x.records) >= mostRecords {
				continue
			}
			r = &operationRecord{}
			x.records[g.operation] = r
		}
		r[0] = r[0].max(g.growth)
	}
}

// forget deletes the pending growth of some services.
func (x *scale) forget(services func(trace.Symbol) bool) {
	for i := range x.pending {
		w := &x.pending[i]
		w.growth = slices.DeleteFunc(w.growth, func(g operationGrowth) bool { return services(g.service) })
	}
}

// age begins a new age of records.
func (x *scale) age() {
	copy(x.healthy[1:], x.healthy[:])
	x.healthy[0] = 0
	for o, r := range x.records {
		copy(r[1:], r[:])
		if r[0] = (growth{}); *r == (operationRecord{}) {
			delete(x.records, o)
		}
	}
}

// slowWindow is a window of a slower scale that ends now, compared with the hours before or, by week, with the times
// one week and four weeks before.
type slowWindow struct {
	of       int
	findings []*finding // the last one is learned
}

// slowWindows compares the windows of the slower scales that end now.
func (t *Tracker) slowWindows(now trace.Nanos, sites *compare.Comparer) (all []slowWindow) {
	for of := coarse; of < numScales; of++ {
		length := lengths[of]
		if now.Sub(t.scales[of].judged) < length.every {
			continue
		}
		f := finding{window: history.Interval{From: now.Add(-length.window), To: now}, every: length.every}
		w := slowWindow{of: of, findings: []*finding{&f}}
		if of == weekly {
			month := f
			month.Comparison, month.weeks = sites.Crept(now, history.MonthAgo), 4
			f.Comparison, f.weeks = sites.Crept(now, history.WeekAgo), 1
			w.findings = []*finding{&month, &f}
		} else {
			f.Comparison = sites.Compare(f.window, compare.Steady)
		}
		all = append(all, w)
	}
	return all
}

// judgeSlowly judges a window of a slower scale.
func (t *Tracker) judgeSlowly(now trace.Nanos, w slowWindow, sites *compare.Comparer) (j judgement) {
	if w.of == coarse {
		j.raising = t.grownToday(w.findings[0], sites)
	}
	for _, f := range w.findings {
		j.add(t.judgeOperations(now, w.of, f, sites))
	}
	return j
}

// learnSlowly learns from windows of the slower scales.
func (t *Tracker) learnSlowly(now trace.Nanos, windows []slowWindow) {
	for _, w := range windows {
		x, f := &t.scales[w.of], w.findings[len(w.findings)-1]
		x.judged = now
		x.pend(now, &f.Comparison, func(service trace.Symbol) bool { return t.affects(service, f.window.From) })
		x.learnBefore(now.Add(-lengths[w.of].proving), lengths[w.of].window)
	}
}

// grownForHours is the growth of the own time of a service or an operation since the first hours of the day that raises
// an incident. There is no record of such growth on the first day, so it is large: an hour of a busy day may be a fifth
// slower.
const grownForHours = 0.35

// grownToday returns the evidence of growth since the first hours of the day, or of the first day since its first half
// hour, beyond what most services share, as long as there is no week to compare with. On the first day it judges
// operations, too, and shorter windows: what doubles in half an hour must not have grown much further when a window is
// full of it. Nothing has a record yet, so that requests must lose as much as by sudden changes.
func (t *Tracker) grownToday(of *finding, sites *compare.Comparer) (above []evidence) {
	if sum(t.scales[weekly].healthy[:]) >= float64(GrowthAfter/lengths[weekly].window) {
		return nil
	}
	window, firstDay, part := of.window, !t.dayIsKnown(), t.gates.lostPart()
	if firstDay {
		window.From = window.To.Add(-lengths[coarse].window / 2)
		part = max(part, t.gates.Score)
	}
	f := &finding{window: window, every: of.every, Comparison: sites.Grown(window)}
	lost := judge{gates: t.gates, enough: max(1, part*float64(f.Requests)*f.Duration)}
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if t.isRelearned(s.Service) || t.affects(s.Service, f.window.From) && !t.raisedBy(s.Service, f.every) {
			continue
		}
		judged := []compare.SuspectOperation{s.Whole}
		if firstDay {
			judged = append(judged, s.Operations...)
		}
		grown := slices.IndexFunc(judged, func(o compare.SuspectOperation) bool {
			return o.Calls >= leastMeanCalls && o.Excess >= grownForHours*o.Usual && lost.lost(o.Excess, o.Calls) >= 1
		})
		if grown >= 0 {
			e := evidenceOf(s, math.Inf(1), f)
			e.include(grownOperation{SuspectOperation: &judged[grown]})
			above = append(above, e)
		}
	}
	return above
}

// judgeOperations judges the operations in a window of a slower scale. Growth in four weeks is judged by the records of
// growth in one: days vary less than hours do.
func (t *Tracker) judgeOperations(now trace.Nanos, of int, f *finding, sites *compare.Comparer) (j judgement) {
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if t.isRelearned(s.Service) || t.affects(s.Service, f.window.From) && !t.raisedBy(s.Service, f.every) {
			continue
		}
		if g := t.grown(now, of, s, f, 1, sites); g.SuspectOperation != nil {
			e := evidenceOf(s, math.Inf(1), f)
			e.include(g)
			j.raising = append(j.raising, e)
		} else if t.openOf(s.Service) != nil {
			if kept := t.grown(now, of, s, f, keeping, sites); kept.SuspectOperation != nil {
				j.keeping = append(j.keeping, s.Service)
			}
		}
	}
	return j
}

// affects reports whether a service was affected by an incident since an instant.
func (t *Tracker) affects(service trace.Symbol, since trace.Nanos) bool {
	return slices.ContainsFunc(t.incidents, func(x *tracked) bool {
		if !x.IsOpen() && x.Seen <= since {
			return false
		}
		_, found := slices.BinarySearch(x.affected, service)
		return found
	})
}

// raisedBy reports whether there is an open incident of a service that windows at least some time apart have raised.
func (t *Tracker) raisedBy(service trace.Symbol, every time.Duration) bool {
	x := t.openOf(service)
	return x != nil && x.every >= every
}
