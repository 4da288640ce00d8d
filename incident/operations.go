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

// Operations are also judged individually once they have been known for a day. A large installation has thousands of
// operations, and one of them may take three times as long while all requests together become slower by only a
// thousandth. See also [Gates].
const (
	// leastCalls is the minimum number of calls in a window for judging their typical time, and leastMeanCalls for
	// judging their mean. If one call takes ten times as long, the mean of thirty calls rises by a third, and the
	// typical time of ten calls rises by a third of an octave. Windows with fewer calls still count towards records,
	// because the record of an operation that rarely has enough calls would otherwise be too low.
	leastCalls     = 20
	leastMeanCalls = 100
	// leastRise is the rise in octaves that we assume an operation to have reached in a healthy window before we
	// observed it.
	leastRise = 0.15
	// leastFailingRecord is the fraction of failed calls that we assume an operation to have reached in a healthy
	// window before we observed it. For the assumed growth, see lengths.
	leastFailingRecord = 0.02
)

// Instances are slow for seconds or minutes after they start. Soon after a start, the operations of a service must
// therefore grow by a larger factor to raise an incident.
const (
	warmUp       = 5 * time.Minute
	warmUpFactor = 3
)

// The scales, by length of their windows.
const (
	fine   = iota // a window every epoch: sudden changes
	coarse        // longer windows: changes that are small, or come and go
	weekly        // windows of an hour, compared with the same time a week before: changes that take days
	numScales
)

// lengths are the parameters of the scales: the length of a window; the time between two windows, or 0 for every epoch;
// and the growth that we assume an operation to have reached in a healthy window before we observed it. Once the time
// `proving` has passed since its end, a window counts as healthy unless an incident that started before the end of the
// window has been raised. We wait because scores rise while a window fills with the requests of an incident, and
// because growth that takes days must not become usual on its own.
//
// Overlapping windows tend to have high scores at the same time, but not always: independent is the number of windows,
// among those that start within one length, that are as good as independent. For example, a moving mean of 18 normal
// numbers exceeds the level that one of 200 windows reaches 6 times as often as it would without overlap, and a moving
// mean of 6 numbers 4 times as often.
var lengths = [numScales]struct {
	window, every, proving time.Duration
	growth                 float64
	independent            float64
}{
	fine:   {Window, 0, 2 * Window, 0.1, 6},
	coarse: {30 * time.Minute, 5 * time.Minute, time.Hour, 0.1, 4},
	weekly: {time.Hour, time.Hour, 24 * time.Hour, 0.05, 1},
}

// scale describes the operations in the healthy windows of one scale.
type scale struct {
	records map[operation]*operationRecord // only operations that grew in some window
	healthy [ages]float64                  // number of windows judged healthy, by age
	pending []grownWindow                  // windows that may not be healthy
	judged  trace.Nanos                    // end of the last window; 0 before the first
	wholes  trace.Nanos                    // time from which the growth of whole services has been recorded, or 0
}

// grownWindow is the growth of operations in a window.
type grownWindow struct {
	end    trace.Nanos
	growth []operationGrowth
}

// operationGrowth is the growth of one operation.
type operationGrowth struct {
	operation
	growth
}

// operation identifies an operation of a suspect. If op is 0, it stands for all calls of the service.
type operation struct {
	service trace.Symbol
	op      trace.Op
}

func (o operation) compare(p operation) int {
	return cmp.Or(cmp.Compare(o.service, p.service), cmp.Compare(o.op, p.op))
}

// growth holds the figures that make an operation raise an incident. Each figure has a record of its own.
type growth struct {
	time     float64 // own time per call above the variation of the history, relative to the usual own time
	failures float64 // fraction of the calls that fail, above the variation of the history
	// rise is the growth of the typical own time per call in octaves, times the square root of the number of calls,
	// because chance makes it larger if there are fewer calls.
	rise  float64
	added float64 // time of the operation's additional calls, relative to its usual inclusive time
}

// growthOf returns the growth of o. Each figure is 0 if there are too few calls to judge it.
func growthOf(o *compare.SuspectOperation) growth {
	var g growth
	if o.Calls >= leastMeanCalls {
		g.time = o.Excess / max(o.Usual, float64(time.Microsecond))
	}
	g.rise = o.Rise * math.Sqrt(o.RiseCalls)
	if o.Failed >= leastFailures {
		g.failures = o.FailedShare()
	}
	if o.Added.Calls >= leastCalls {
		g.added = o.Added.Nanos / max(o.Added.Usual, float64(time.Microsecond))
	}
	return g
}

// max returns the larger value of each figure of g and h.
func (g growth) max(h growth) growth {
	return growth{max(g.time, h.time), max(g.failures, h.failures), max(g.rise, h.rise), max(g.added, h.added)}
}

// operationRecord is the highest growth of an operation in healthy windows, by age, the current age first.
type operationRecord [ages]growth

// highest returns the highest growth over all ages. r may be nil.
func (r *operationRecord) highest() (h growth) {
	if r != nil {
		for _, g := range r {
			h = h.max(g)
		}
	}
	return h
}

// Growth of means or failures that barely exceeds the minimum must persist for some time, because chance comes and goes
// from one epoch to the next. Growth of typical times needn't, because they must rise in two parts of a window anyway.
const (
	confirming   = 20 * time.Second
	certainShare = 2
)

// An operation that few requests reach hardly shows in the score of its service, which is relative to the time of all
// requests. If the checkout takes twice as long, all requests together may become slower by only a hundredth. We
// therefore judge rare operations individually as soon as six healthy windows are known, after about half an hour.
// Little is known about them by then, so they must grow more than known operations, in both typical times and means,
// and for longer: recordings of healthy applications have request types that take three times as long for a few
// seconds. Frequent operations can wait until they have been known for a day.
const (
	rareShare      = 0.12 // maximum number of calls of a rare operation per request in a window
	rareWindows    = 6    // healthy windows that must be known
	rareHistory    = 3    // minimum ratio of calls before the window to calls in it
	rareGrowth     = 0.5  // in place of [Gates].Growth
	rareFailing    = 0.15 // in place of [Gates].Failing
	rareConfirming = time.Minute
)

// grownOperation is an operation whose growth raises an incident, or keeps it open.
type grownOperation struct {
	*compare.SuspectOperation               // nil if no operation grew
	confirm                   time.Duration // how long growth must persist before it raises an incident
	rare                      bool
}

// grown returns the operation of s with the highest score whose growth, in a window of scale `of`, reaches share times
// the least growth that raises an incident. If there is no such operation, it judges all calls of s together, and then
// its rare operations.
func (b *baseline) grown(now trace.Nanos, of int, s *compare.Suspect,
	f *finding, share float64, comparer *compare.Comparer,
) (g grownOperation) {
	ratio := ratioFor(comparer.Operations(), of, b.scales[of].healthy[:])
	j := judge{gates: b.gates, of: of, ratio: ratio, share: share}
	lost := float64(b.gates.Lost) * lengths[of].window.Seconds()
	j.enough = max(1, min(lost, b.gates.lostPart()*float64(f.Requests)*f.Duration))
	j.started = func() bool { return comparer.Instances.Started(s.Service, now.Add(-warmUp)) }
	judged := s.Operations
	if b.knowsWholes(now) && (s.Whole.Rise > 0 || s.Whole.Excess > 0) && !s.Young {
		judged = append(slices.Clip(judged), s.Whole)
	}
	records := b.scales[of].records
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
	if g.SuspectOperation == nil && of == fine && sum(b.scales[of].healthy[:]) >= rareWindows {
		return grownOperation{j.rare(s, f, records), rareConfirming, true}
	}
	return g
}

// knowsWholes reports whether we have recorded the growth of whole services for a day, as required for operations.
func (b *baseline) knowsWholes(now trace.Nanos) bool {
	since := b.scales[fine].wholes
	return since != 0 && now.Sub(since) >= 24*time.Hour
}

// rare returns the rare operation of s with the highest score whose growth reaches j.share times the least growth that
// raises an incident, or nil if there is no such operation.
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
		// growth of the mean, as a multiple of half of rareGrowth
		mean := o.Excess / max(o.Usual, float64(time.Microsecond)) / (rareGrowth / 2)
		if max(min(m.risen, mean), m.failing) >= j.share && (first == nil || o.Score > first.Score) {
			first = &o.SuspectOperation
		}
	}
	return first
}

// judge holds the parameters for judging the operations in a window.
type judge struct {
	gates  Gates
	of     int     // the scale
	ratio  float64 // ratio of the least growth that raises an incident to the record; see [ratioFor]
	enough float64 // minimum added latency of all calls of an operation in ns, at least 1
	share  float64 // minimum multiple of the least growth that matters
	// started reports whether instances of the service have just started. It takes time linear in the number of all
	// instances.
	started func() bool
}

// multiples holds the growth of an operation, by kind, as multiples of the least growth that raises an incident.
type multiples struct{ slower, risen, failing, adding float64 }

// addedGrowth is the least growth by added calls. It is large because their time is only estimated from the usual time
// of such calls. On the other hand, the number of calls hardly varies, so the operation need not have been known for a
// day.
const addedGrowth = 0.5

// multiples judges the growth of an operation. highest is its highest growth in healthy windows.
func (j *judge) multiples(o *compare.SuspectOperation, highest growth) (m multiples) {
	g := growthOf(o)
	m.failing = g.failures / max(j.gates.Failing, j.ratio*max(leastFailingRecord, highest.failures))
	m.slower = min(g.time/max(j.gates.Growth, j.ratio*max(lengths[j.of].growth, highest.time)),
		j.lost(o.Excess, o.Calls))
	m.adding = min(g.added/max(addedGrowth, j.ratio*highest.added), j.lost(o.Added.Nanos, o.Added.Calls))
	if j.of == fine && g.rise > 0 && o.Calls >= leastCalls { // in longer windows the mean is just as certain
		// Means of logarithms are roughly normal, so the highest of them grow with the root of the logarithm.
		root := math.Sqrt(o.RiseCalls)
		least := max(math.Log2(1+j.gates.Growth)*root, math.Sqrt(j.ratio)*max(leastRise*root, highest.rise))
		m.risen = min(g.rise/least, j.lost(o.Risen, o.Calls))
	}
	if max(m.slower, m.risen, m.adding) >= j.share && j.started() {
		m.slower, m.risen, m.adding = m.slower/warmUpFactor, m.risen/warmUpFactor, m.adding/warmUpFactor
	}
	return m
}

// lost returns the added latency of calls as a multiple of its minimum. There is a minimum per call and one for all
// calls; the smaller multiple counts.
func (j *judge) lost(excess, calls float64) float64 {
	return min(excess/float64(max(1, j.gates.Time)), excess*calls/j.enough)
}

// pend adds the growth of operations, including young ones, in a window that ends now. It skips services for which
// except returns true.
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

// learnBefore learns the pending windows, of the given length, that ended at or before instant. It leaves the last
// pending window, whose weight depends on the next one.
func (x *scale) learnBefore(instant trace.Nanos, length time.Duration) {
	for len(x.pending) > 1 && x.pending[0].end <= instant {
		x.learn(&x.pending[0], windowsBetween(x.pending[0].end, x.pending[1].end, length))
		x.pending = slices.Delete(x.pending, 0, 1)
	}
}

// mostRecords is the maximum number of operations with records. Only ever-changing names exceed it, and operations with
// such names are never known for long enough to be judged.
const mostRecords = 1 << 16

// learn adds the growth in the healthy window w. windows is its weight; see windowsBetween.
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

// forget deletes the pending growth of each service for which services returns true.
func (x *scale) forget(services func(trace.Symbol) bool) {
	for i := range x.pending {
		w := &x.pending[i]
		w.growth = slices.DeleteFunc(w.growth, func(g operationGrowth) bool { return services(g.service) })
	}
}

// age starts a new age of records.
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

// slowWindow is a window of a slower scale that ends now. It is compared with the hours before or, if it is weekly,
// with the same time one week and four weeks before.
type slowWindow struct {
	of       int
	findings []*finding // the last one is learned
}

// slowWindows returns the windows of the slower scales that are due now, compared with the time before.
func (b *baseline) slowWindows(now trace.Nanos, comparer *compare.Comparer) (all []slowWindow) {
	for of := coarse; of < numScales; of++ {
		length := lengths[of]
		if now.Sub(b.scales[of].judged) < length.every {
			continue
		}
		f := finding{window: history.Interval{From: now.Add(-length.window), To: now}, every: length.every}
		w := slowWindow{of: of, findings: []*finding{&f}}
		if of == weekly {
			month := f
			month.Comparison, month.weeks = comparer.Crept(now, history.MonthAgo), 4
			f.Comparison, f.weeks = comparer.Crept(now, history.WeekAgo), 1
			w.findings = []*finding{&month, &f}
		} else {
			f.Comparison = comparer.Compare(f.window, compare.Steady)
		}
		all = append(all, w)
	}
	return all
}

// judgeSlowly judges w, a window of a slower scale.
func (t *Tracker) judgeSlowly(now trace.Nanos, w slowWindow, comparer *compare.Comparer) (j judgement) {
	if w.of == coarse {
		j.raising = t.grownToday(w.findings[0], comparer)
	}
	for _, f := range w.findings {
		j.add(t.judgeOperations(now, w.of, f, comparer))
	}
	return j
}

// learnSlowly learns from windows of the slower scales.
func (t *Tracker) learnSlowly(now trace.Nanos, windows []slowWindow) {
	for _, w := range windows {
		x, f := &t.baseline.scales[w.of], w.findings[len(w.findings)-1]
		x.judged = now
		x.pend(now, &f.Comparison, func(service trace.Symbol) bool {
			return t.incidents.affects(service, f.window.From)
		})
		x.learnBefore(now.Add(-lengths[w.of].proving), lengths[w.of].window)
	}
}

// grownForHours is the growth of own time since the first two of the last 24 hours that raises an incident for a
// service or an operation. It is large because such growth has no record on the first day, when an hour of a busy day
// may be a fifth slower.
const grownForHours = 0.35

// grownToday returns the evidence of growth since the first two of the last 24 hours, or nil once there is a week to
// compare with. Growth shared by most services doesn't count.
//
// On the first day it also compares with the first half hour, and it also judges operations and shorter windows, so
// that growth that doubles every half hour is noticed before it fills a window. Nothing has a record yet, so the added
// latency must be as large as for sudden changes.
func (t *Tracker) grownToday(of *finding, comparer *compare.Comparer) (above []evidence) {
	if sum(t.baseline.scales[weekly].healthy[:]) >= float64(GrowthAfter/lengths[weekly].window) {
		return nil
	}
	window, firstDay, part := of.window, !t.baseline.dayIsKnown(), t.baseline.gates.lostPart()
	if firstDay {
		window.From = window.To.Add(-lengths[coarse].window / 2)
		part = max(part, t.baseline.gates.Score)
	}
	f := &finding{window: window, every: of.every, Comparison: comparer.Grown(window)}
	lost := judge{gates: t.baseline.gates, enough: max(1, part*float64(f.Requests)*f.Duration)}
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if t.leavesOut(s.Service, f) {
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

// leavesOut reports whether to ignore growth of service in f, a window of a slower scale, because the service is being
// relearned or is affected by an incident that faster windows raised.
func (t *Tracker) leavesOut(service trace.Symbol, f *finding) bool {
	return t.baseline.isRelearned(service) ||
		t.incidents.affects(service, f.window.From) && !t.incidents.raisedBy(service, f.every)
}

// judgeOperations judges the operations in f, a window of a slower scale. It judges growth over four weeks by the
// records of growth over one week, because days vary less than hours.
func (t *Tracker) judgeOperations(now trace.Nanos, of int, f *finding, comparer *compare.Comparer) (j judgement) {
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if t.leavesOut(s.Service, f) {
			continue
		}
		if g := t.baseline.grown(now, of, s, f, 1, comparer); g.SuspectOperation != nil {
			e := evidenceOf(s, math.Inf(1), f)
			e.include(g)
			j.raising = append(j.raising, e)
		} else if t.incidents.openOf(s.Service) != nil {
			if kept := t.baseline.grown(now, of, s, f, keeping, comparer); kept.SuspectOperation != nil {
				j.keeping = append(j.keeping, s.Service)
			}
		}
	}
	return j
}
