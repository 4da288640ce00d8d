package baselinediff

import (
	"math"
	"math/bits"
)

// The typical own time of calls is their geometric mean. A call that takes ten times as long makes up a third of the
// mean of thirty, but only 8 % of their geometric mean. So small changes of most calls show in few of them. The
// operations of a service with little traffic may still have too few calls to be judged by themselves: all calls of a
// service are judged together, too.

const (
	// logsPerOctave is the number of steps in which logarithms are counted. Rounding errors are as often up as down.
	logsPerOctave = 8
	// logFrom is added to times, in ns, before their logarithms are taken: the shortest times differ by what the clock
	// does, not by what the call does.
	logFrom     = 1 << logFromBits
	logFromBits = 14
)

// mantissaLogs holds the logarithms of numbers from 1 to 2, by the first six bits behind the point.
var mantissaLogs = func() (logs [1 << mantissaBits]uint8) {
	for i := range logs {
		logs[i] = uint8(math.Round(logsPerOctave * math.Log2(1+(float64(i)+0.5)/float64(len(logs)))))
	}
	return logs
}()

const mantissaBits = 6

// logOf returns the logarithm of a time in ns, as multiple of an octave by [logsPerOctave]; 0 for about 0 ns. It needs
// no floating-point numbers, so that it is the same on all machines.
func logOf(nanos int64) int64 {
	x := uint64(max(0, nanos)) + logFrom
	octave := bits.Len64(x) - 1
	mantissa := x >> (octave - mantissaBits) & (1<<mantissaBits - 1)
	return int64(octave-logFromBits)*logsPerOctave + int64(mantissaLogs[mantissa])
}

// typicalTimes sums up how much longer the calls in a window typically take than those before it, each compared with
// those at its site. Calls at sites with few of them count, too: how much the mean varies shows in healthy windows.
type typicalTimes struct {
	parts [steadyParts]struct {
		calls   float64
		nanos   float64
		octaves float64 // growth, summed up over the calls
	}
}

const (
	// leastTypical is the number of calls in a window that have a typical time.
	leastTypical = 10
	// leastRise is the least growth of a typical time in octaves: 7 %.
	leastRise = 0.1
)

// merge adds other calls.
func (t *typicalTimes) merge(o *typicalTimes) {
	for i := range t.parts {
		t.parts[i].calls += o.parts[i].calls
		t.parts[i].nanos += o.parts[i].nanos
		t.parts[i].octaves += o.parts[i].octaves
	}
}

// rise is a growth of typical times.
type rise struct {
	calls   float64 // that show it
	octaves float64 // 0: less than leastRise
	nanos   float64 // of a call that it makes up
}

// certainty grows with the number of calls as the precision of a mean does.
func (r rise) certainty() float64 { return r.octaves * math.Sqrt(r.calls) }

// rise returns the more certain growth, of the whole window or without its first part: a change shows a minute earlier
// without it, and a small one is certain with it only.
func (t *typicalTimes) rise() rise {
	late, whole := t.riseFrom(1), t.riseFrom(0)
	if whole.certainty() > late.certainty() {
		return whole
	}
	return late
}

// riseFrom returns the growth from a part of the window on. It must last: each part shows at least half of it.
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

// set sets the growth of the typical time of o.
func (r rise) set(o *SuspectOperation) { o.Rise, o.Risen, o.RiseCalls = r.octaves, r.nanos, r.calls }

// wholeTimes sums up all calls of a service.
type wholeTimes struct {
	calls, young float64 // young: at sites that have not been known for a day
	typical      typicalTimes
}

// operation returns the calls as those of an operation: its Op is 0. It also tells whether most of them are young.
func (w *wholeTimes) operation(l *ledger) (o SuspectOperation, young bool) {
	if w.calls < leastTypical {
		return o, false
	}
	o.Calls = w.calls
	w.typical.rise().set(&o)
	o.Score = l.risen(&o)
	return o, w.young > w.calls/2
}

// risen returns the score of the growth of a typical time.
func (l *ledger) risen(o *SuspectOperation) float64 {
	return o.Risen * o.Calls / l.requests / l.duration
}

// addTypical adds the calls at a site in the window to those of its operation and of the service whose own time they
// are, beyond what is usual at this hour.
func (c *liveComparison) addTypical(number int32) {
	p, s := &c.sites[number], &c.h.series[number]
	usual, known := c.typicalBefore(number)
	if p.border || !known {
		return
	}
	usual += s.week.habit(c.window.to - 1)
	var times typicalTimes
	calls := 0.0
	last, length := s.window.before, c.window.to-c.window.from
	for offset := int(s.window.offset); offset < len(s.bytes); {
		var x cell
		if x, offset = decodeCell(s.bytes, offset, last); x.slice >= c.window.to {
			break
		}
		last = x.slice
		n := float64(x.calls)
		calls += n
		part := &times.parts[(x.slice-c.window.from)*steadyParts/length]
		part.calls += n
		part.nanos += float64(x.nanos)
		part.octaves += n * (x.typical() - usual)
	}
	if calls == 0 {
		return
	}
	young := s.week.knownFor((c.window.to - 1).hour()) < hoursPerDay
	c.callsOf(callee{p.service, p.op}).times(young).typical.merge(&times)
	service, known := c.ownerOf(number)
	if !known {
		return
	}
	if p.client {
		c.callsOf(c.callee[number]).times(young).typical.merge(&times)
	}
	w := &c.wholes[service]
	w.calls += calls
	w.typical.merge(&times)
	if young {
		w.young += calls
	}
}

// ownerOf returns the service whose own time the calls at a site take, if it is known: that of calls to a service with
// spans is time on the wire.
func (c *liveComparison) ownerOf(number int32) (service int32, known bool) {
	p := &c.sites[number]
	if p.border {
		return 0, false
	}
	if !p.client {
		return p.service, true
	}
	called := c.callee[number].service
	return called, called != 0 && c.opaque[called]
}

// pastSum is the sum of the calls at a site before a window that are not skipped. Decoding all of them in each epoch
// would take most of the time of a comparison while an incident is open.
type pastSum struct {
	changes uint64 // number of changes of the history with which it was made, see [Sites], 1 more; 0: there is none
	end     mark   // of the summed cells
	calls   uint64
	logs    int64
}

// typicalBefore returns the typical own time of the calls at a site before the window, in octaves, if there are enough
// of them. It moves the mark of the window.
func (c *liveComparison) typicalBefore(number int32) (octaves float64, known bool) {
	s := &c.h.series[number]
	s.seek(c.window.from)
	before, logs := s.earlier, s.earlierLogs
	if k := len(c.skipped); k > 0 && before > 0 && s.first() < c.skipped[k-1].to {
		before, logs = c.sumPast(number)
	}
	return float64(logs) / float64(max(1, before)) / logsPerOctave, before >= minHistory
}

// sumPast returns the number of calls at a site before the window that are not skipped, and their logarithms. The mark
// of the window is set.
func (c *liveComparison) sumPast(number int32) (calls uint64, logs int64) {
	s, sum := &c.h.series[number], &c.pasts[number]
	if sum.changes != c.h.summed.changes+1 || sum.end.offset > s.window.offset {
		*sum = pastSum{changes: c.h.summed.changes + 1}
	}
	for sum.end.offset < s.window.offset {
		x, next := decodeCell(s.bytes, int(sum.end.offset), sum.end.before)
		sum.end = mark{int32(next), x.slice}
		if !c.skipped.contains(x.slice) {
			sum.calls += uint64(x.calls)
			sum.logs += x.logs
		}
	}
	c.h.summed.to = max(c.h.summed.to, c.window.from)
	return sum.calls, sum.logs
}

// typical returns the typical own time of calls on a logarithmic scale in octaves.
func (x *cell) typical() float64 { return float64(x.logs) / float64(x.calls) / logsPerOctave }
