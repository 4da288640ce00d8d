package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
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
	rise float64
}

// growthOf returns the growth of an operation; zero if it cannot be judged by itself.
func growthOf(o *baselinediff.SuspectOperation) growth {
	var g growth
	if o.Calls >= leastMeanCalls {
		g.time = o.Excess / max(o.Usual, float64(time.Microsecond))
	}
	g.rise = o.Rise * math.Sqrt(o.RiseCalls)
	if o.Calls > 0 && o.Failed >= leastFailures {
		g.failures = o.Failed / o.Calls
	}
	return g
}

// max returns the larger ones of the numbers.
func (g growth) max(h growth) growth {
	return growth{max(g.time, h.time), max(g.failures, h.failures), max(g.rise, h.rise)}
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

// grown returns the operation of a suspect with the highest score whose growth reaches a share of the least one
// that raises an incident; nil if none does. It also tells whether any growth is certain at once.
func (t *Tracker) grown(now trace.Nanos, of int, s *baselinediff.Suspect, f *finding, share float64, history *baselinediff.Sites) (first *baselinediff.SuspectOperation, certain bool) {
	j := judge{gates: t.gates, of: of, ratio: ratioFor(history.Operations(), of, t.scales[of].healthy[:])}
	j.enough = max(1, min(float64(t.gates.Lost)*lengths[of].window.Seconds(), t.gates.LostPart*float64(f.Requests)*f.Duration))
	judged := s.Operations
	if t.knowsWholes(now) && (s.Whole.Rise > 0 || s.Whole.Excess > 0) && !s.Young {
		judged = append(slices.Clip(judged), s.Whole)
	}
	for i := range judged {
		o := &judged[i]
		slower, risen, failing := j.multiples(o, t.scales[of].records[operation{s.Service, o.Op}].highest())
		if max(slower, risen) >= share && history.Started(s.Service, now.Add(-warmUp)) {
			slower, risen = slower/warmUpFactor, risen/warmUpFactor
		}
		if max(slower, risen, failing) < share {
			continue
		}
		if first == nil {
			first = o
		}
		certain = certain || risen >= 1 || max(slower, failing) >= certainShare
	}
	return first, certain
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
}

// multiples returns the three kinds of growth of an operation as multiples of the least ones that raise an incident.
func (j *judge) multiples(o *baselinediff.SuspectOperation, highest growth) (slower, risen, failing float64) {
	g := growthOf(o)
	failing = g.failures / max(j.gates.Failing, j.ratio*max(leastFailingRecord, highest.failures))
	slower = min(g.time/max(j.gates.Growth, j.ratio*max(lengths[j.of].growth, highest.time)), j.lost(o.Excess, o.Calls))
	if j.of != fine || g.rise == 0 || o.Calls < leastCalls {
		return slower, 0, failing // the mean of a longer window is as certain as its typical time
	}
	// Means of logarithms vary about as normal numbers do: their highest values grow with the root of the logarithm.
	root := math.Sqrt(o.RiseCalls)
	least := max(math.Log2(1+j.gates.Growth)*root, math.Sqrt(j.ratio)*max(leastRise*root, highest.rise))
	risen = min(g.rise/least, j.lost(o.Risen, o.Calls))
	return slower, risen, failing
}

// lost returns the time that calls lose as a multiple of the least time, a call and together.
func (j *judge) lost(excess, calls float64) float64 {
	return min(excess/float64(max(1, j.gates.Time)), excess*calls/j.enough)
}

// pend takes the growth of operations in a window that ends now, except those of some services. That of young ones will
// be known when they are judged.
func (x *scale) pend(now trace.Nanos, c *baselinediff.Comparison, except func(service trace.Symbol) bool) {
	x.wholes = cmp.Or(x.wholes, now)
	w := grownWindow{end: now}
	add := func(service trace.Symbol, o *baselinediff.SuspectOperation) {
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

// judgeSlowly returns the evidence of the windows of the slower scales that end now.
func (t *Tracker) judgeSlowly(now trace.Nanos, history *baselinediff.Sites) (above []charge) {
	for of := coarse; of < numScales; of++ {
		x, length := &t.scales[of], lengths[of]
		if now.Sub(x.judged) < length.every {
			continue
		}
		x.judged = now
		f := &finding{window: baselinediff.Interval{From: now.Add(-length.window), To: now}, every: length.every}
		if of == weekly {
			month := *f
			month.Comparison, month.weeks = history.Crept(now, baselinediff.MonthAgo), 4
			f.Comparison, f.weeks = history.Crept(now, baselinediff.WeekAgo), 1
			above = append(above, t.chargesOf(now, of, &month, history)...)
		} else {
			f.Comparison = history.Compare(f.window, baselinediff.Steady)
		}
		above = append(above, t.chargesOf(now, of, f, history)...)
		x.pend(now, &f.Comparison, func(service trace.Symbol) bool { return t.affects(service, f.window.From) })
		x.learnBefore(now.Add(-length.proving), length.window)
	}
	return above
}

// chargesOf returns the evidence of a window of a slower scale, and notes that which keeps incidents open. Growth in
// four weeks is judged by the records of growth in one: days vary less than hours do.
func (t *Tracker) chargesOf(now trace.Nanos, of int, f *finding, history *baselinediff.Sites) (above []charge) {
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if t.isRelearned(s.Service) || t.affects(s.Service, f.window.From) && !t.raisedBy(s.Service, f.every) {
			continue
		}
		if o, _ := t.grown(now, of, s, f, 1, history); o != nil {
			c := chargeOf(s, math.Inf(1), f)
			c.include(o)
			above = append(above, c)
		} else if y := t.openOf(s.Service); y != nil {
			if kept, _ := t.grown(now, of, s, f, keeping, history); kept != nil {
				y.Seen = now
			}
		}
	}
	return above
}

// affects reports whether a service was affected by an incident since an instant.
func (t *Tracker) affects(service trace.Symbol, since trace.Nanos) bool {
	return slices.ContainsFunc(t.incidents, func(x *tracked) bool {
		if x.Closed != 0 && x.Seen <= since {
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
