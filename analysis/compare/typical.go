package compare

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

// The typical own time of calls is their geometric mean. If one of thirty calls takes ten times as long as the others,
// it makes up a quarter of the mean, but raises the geometric mean by only 8 %. Small changes of most calls therefore
// show after a few calls. The operations of a service with little traffic may still have too few calls to be judged
// separately, so we also judge all calls of the service together.

// typicalTimes sums up how much longer the calls in a window typically take than earlier calls at the same site. Sites
// with few earlier calls count, too: the variation among healthy windows includes their noise.
type typicalTimes struct {
	before float64 // calls of the history at these sites
	parts  [history.SteadyParts]struct {
		calls   float64
		nanos   float64
		octaves float64 // sum of the growth over the calls
	}
}

const (
	// leastTypical is the minimum number of calls in a window for judging their typical time.
	leastTypical = 10
	// leastRise is the minimum growth of a typical time in octaves: 7 %.
	leastRise = 0.1
)

// merge adds the calls of o.
func (t *typicalTimes) merge(o *typicalTimes) {
	t.before += o.before
	for i := range t.parts {
		t.parts[i].calls += o.parts[i].calls
		t.parts[i].nanos += o.parts[i].nanos
		t.parts[i].octaves += o.parts[i].octaves
	}
}

// rise is a growth of typical times.
type rise struct {
	calls   float64 // number of calls that it was measured from
	octaves float64 // 0 if less than leastRise
	nanos   float64 // growth per call
}

// certainty returns a measure of certainty that grows with the number of calls like the precision of a mean.
func (r rise) certainty() float64 { return r.octaves * math.Sqrt(r.calls) }

// rise returns the more certain of two growths: over the whole window, and without its first part. A change shows a
// minute earlier without the first part, but a small change is certain only with it.
func (t *typicalTimes) rise() rise {
	late, whole := t.riseFrom(1), t.riseFrom(0)
	if whole.certainty() > late.certainty() {
		return whole
	}
	return late
}

// riseFrom returns the growth in the parts of the window from `first` on. It returns the zero value if the growth is
// below leastRise or doesn't last: each part must show at least half of it.
func (t *typicalTimes) riseFrom(first int) (r rise) {
	nanos, lowest := 0.0, math.Inf(1)
	for _, x := range t.parts[first:] {
		r.calls += x.calls
		nanos += x.nanos
		r.octaves += x.octaves
		lowest = min(lowest, x.octaves/max(1, x.calls))
	}
	r.octaves /= max(1, r.calls)
	if r.octaves < leastRise || lowest < r.octaves/2 {
		return rise{}
	}
	r.nanos = nanos / r.calls * (1 - math.Exp2(-r.octaves))
	return r
}

// set sets the growth of the typical time in o.
func (r rise) set(o *SuspectOperation) { o.Rise, o.Risen, o.RiseCalls = r.octaves, r.nanos, r.calls }

// wholeTimes sums up all calls of a service.
type wholeTimes struct {
	calls, young float64 // young: at sites that have been known for less than a day
	typical      typicalTimes
}

// operation returns the calls as an operation with Op 0, and reports whether most of them are young. It returns the
// zero value and false if there are fewer than leastTypical calls.
func (w *wholeTimes) operation(l *ledger) (o SuspectOperation, young bool) {
	if w.calls < leastTypical {
		return o, false
	}
	o.Calls = w.calls
	w.typical.rise().set(&o)
	o.Score = l.risen(&o, l.duration)
	return o, w.young > w.calls/2
}

// risen returns the score of the growth of the typical time of o. unit is the unit of times in ns, or the mean duration
// of a request if that is longer.
func (l *ledger) risen(o *SuspectOperation, unit float64) float64 {
	return o.Risen * o.Calls / l.requests / max(unit, l.duration)
}

// typical returns the growth of the typical time of the calls at site `number` in the window, beyond the usual growth
// at this hour, and the number of calls. The number is 0 if the growth can't be judged.
func (c *liveWindow) typical(number int32) (times typicalTimes, calls float64) {
	p, s := &c.sites[number], c.h.Series(number)
	if p.Border || p.Queue || c.inside(number) { // queues are judged by leastLag
		return times, 0
	}
	if _, known := c.ownerOf(number); !known {
		return times, 0 // the site's time is on the wire
	}
	usual, before := c.typicalBefore(number)
	if before < history.MinHistory {
		return times, 0
	}
	usual += s.Week.Habit(c.window.To - 1)
	times.before = float64(before)
	length := c.window.Length()
	for _, now, _ := c.times(number).Split(c.window.From); now.More(); {
		x := now.Next()
		if x.Slice >= c.window.To {
			break
		}
		n := float64(x.Calls)
		calls += n
		part := &times.parts[(x.Slice-c.window.From)*history.SteadyParts/length]
		part.calls += n
		part.nanos += float64(x.Nanos)
		part.octaves += n * (x.Typical() - usual)
	}
	return times, calls
}

// addTypical adds the typical times in the assessment a of site `number` to the operation and the service that own the
// time of the site.
func (c *liveWindow) addTypical(number int32, a *assessment) {
	if a.typicalCalls == 0 {
		return
	}
	p := &c.sites[number]
	owner := c.called.at(number, p)
	if p.Client {
		owner = c.called.of(c.callee[number])
	}
	owner.times(a.young).typical.merge(&a.typical)
	if _, long := c.h.Long(number); long {
		return
	}
	service, _ := c.ownerOf(number)
	w := &c.wholes[service]
	w.calls += a.typicalCalls
	w.typical.merge(&a.typical)
	if a.young {
		w.young += a.typicalCalls
	}
}

// ownerOf returns the service that the own time of the calls at site `number` belongs to. known is false if there is no
// such service: for example, the own time of calls to a service with spans is time on the wire.
func (c *liveWindow) ownerOf(number int32) (service int32, known bool) {
	p := &c.sites[number]
	if p.Border {
		return 0, false
	}
	if !p.Client {
		return p.Service, true
	}
	called := c.callee[number].Service
	return called, called != 0 && c.opaque[called]
}

// typicalBefore returns the typical own time of the calls at site `number` before the window, in octaves, and their
// number.
func (c *liveWindow) typicalBefore(number int32) (octaves float64, before uint64) {
	before, logs := c.times(number).Before(c.window.From, c.skipped, &c.h.Changes)
	return float64(logs) / float64(max(1, before)) / history.LogsPerOctave, before
}
