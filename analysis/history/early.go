package history

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

const (
	// EarlyParts is the number of parts of the first half hour of the calls at a site. A service that is slow because
	// it has just started is slow only in the first part, so comparisons use the part with the lowest mean.
	EarlyParts = 3
	earlyPart  = Slice(10 * time.Minute / SliceLength)
)

// Mean is the mean own time of calls in ns.
type Mean struct {
	Nanos    float64
	Variance float64 // of the mean, in ns²
	Octaves  float64 // typical own time, see [Cell.Typical]; 0 if unknown
}

// Mean returns the mean own time of calls, or the zero value if there are no calls. We estimate its variance from cells
// instead of individual calls, because the calls of a busy minute are slow together.
func (c Cells) Mean() (m Mean) {
	calls := float64(c.Calls())
	if calls == 0 {
		return m
	}
	m.Nanos = float64(c.Own()) / calls
	for i := range c {
		m.Octaves += float64(c[i].logs) / calls / LogsPerOctave
	}
	if len(c) == 1 {
		m.Variance = m.Nanos * m.Nanos
		return m
	}
	for _, x := range c {
		d := float64(x.Own())/float64(x.Calls) - m.Nanos
		m.Variance += float64(x.Calls) * d * d
	}
	m.Variance /= float64(len(c)-1) * calls
	return m
}

// Early holds the mean times of early calls, by part of the early time. Later calls are compared with them. A mean of 0
// ns means unknown.
type Early [EarlyParts]Mean

// Lowest returns the mean of the part with the lowest mean.
func (e *Early) Lowest() Mean {
	lowest := e[0]
	for _, m := range e[1:] {
		if m.Nanos < lowest.Nanos {
			lowest = m
		}
	}
	return lowest
}

// known replaces the unknown parts with the mean of the known ones. It reports whether any part is known.
func (e *Early) known() bool {
	var sum Mean
	n := 0.0
	for _, m := range e {
		if m.Nanos > 0 {
			sum.Nanos += m.Nanos
			sum.Variance += m.Variance
			sum.Octaves += m.Octaves
			n++
		}
	}
	for i := range e {
		if e[i].Nanos == 0 && n > 0 {
			e[i] = Mean{sum.Nanos / n, sum.Variance / n, sum.Octaves / n}
		}
	}
	return n > 0
}

// earlyOf returns the times of calls in the half hour that starts at slice `from`. It leaves out the parts that end
// after slice `before`, and the parts with fewer than [MinHistory] calls.
func earlyOf(all Cells, from, before Slice, skipped Ranges) (e Early) {
	var kept Cells
	for i := range e {
		part := Range{from + Slice(i)*earlyPart, from + Slice(i+1)*earlyPart}
		if calls := all.Within(part).Without(skipped, &kept); part.To <= before && calls.Calls() >= MinHistory {
			e[i] = calls.Mean()
		}
	}
	return e
}

// Early returns the early times of the site, to be compared with its local times from slice `at` on, and reports
// whether any are known. `all` holds the cells of the site, and covered is the first slice that the history covers.
//
// On the first day these are the times of the parts of the first half hour that are over: a comparison with later times
// would miss growth that started in the first minutes. After that, or if the first half hour is unknown, they are the
// mean of the first two known hours of the last day. If those are unknown, for example during a long incident, Early
// falls back to the first half hour.
func (s *Series) Early(all Cells, at, covered Slice, skipped Ranges) (e Early, known bool) {
	w := s.Week
	switch {
	case w != nil && w.first.from != 0:
		e = w.first.before(at)
	case len(all) > 0:
		e = earlyOf(all, max(all[0].Slice, covered), at, skipped)
	}
	if w.KnownFor(at.Hour()) > HoursPerDay || !e.known() {
		if mean := w.early(at); mean != 0 {
			for i := range e {
				e[i] = Mean{Nanos: mean}
			}
		}
	}
	return e, e.known()
}

// firstTimes holds the times of the first half hour of the calls at a site.
type firstTimes struct {
	from  Slice // 0 if not yet known
	parts [EarlyParts]struct{ mean, deviation, typical Level }
}

// learn records the times of the first half hour if they aren't known yet and the half hour ends by slice `before`. The
// half hour starts no earlier than covered, the first slice that the history covers, because traces with wrong clocks
// may seem to be earlier.
func (f *firstTimes) learn(all Cells, covered, before Slice, skipped Ranges) {
	if f.from != 0 || len(all) == 0 {
		return
	}
	from := max(all[0].Slice, covered)
	if from+EarlyParts*earlyPart > before {
		return
	}
	f.from = from
	for i, m := range earlyOf(all, from, before, skipped) {
		if m.Nanos > 0 {
			p := &f.parts[i]
			p.mean, p.deviation = levelOf(m.Nanos), levelOf(math.Sqrt(m.Variance))
			p.typical = levelOf(nanosOf(m.Octaves))
		}
	}
}

// before returns the times in the parts that end by slice end.
func (f *firstTimes) before(end Slice) (e Early) {
	for i, p := range f.parts {
		if f.from+Slice(i+1)*earlyPart <= end {
			e[i] = Mean{p.mean.Nanos(), p.deviation.Nanos() * p.deviation.Nanos(), octavesOf(p.typical.Nanos())}
		}
	}
	return e
}

func (f *firstTimes) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(f.from))
	for _, p := range f.parts {
		b = codec.AppendUvarints(b, uint64(p.mean), uint64(p.deviation), uint64(p.typical))
	}
	return b
}

func (f *firstTimes) read(r *codec.Reader) {
	f.from = readSlice(r)
	for i := range f.parts {
		f.parts[i].mean, f.parts[i].deviation, f.parts[i].typical = readLevel(r), readLevel(r), readLevel(r)
	}
}
