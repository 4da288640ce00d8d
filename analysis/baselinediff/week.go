package baselinediff

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// hour numbers the hours, from the Unix epoch.
type hour int32

const (
	slicesPerHour = 60 * slicesPerMinute
	hoursPerDay   = 24
	daysPerWeek   = 7
	daysPerMonth  = 4 * daysPerWeek
	hoursPerWeek  = daysPerWeek * hoursPerDay
)

func (s slice) hour() hour { return hour(s / slicesPerHour) }

// slices returns the slices of an hour.
func (h hour) slices() sliceRange {
	return sliceRange{slice(h) * slicesPerHour, slice(h+1) * slicesPerHour}
}

// week holds the own times of the calls at a site in each hour of the last week, and in each day of the last four.
type week struct {
	since hour // the first that is known
	means [hoursPerWeek]level
	highs [hoursPerWeek]coarseLevel
	days  [daysPerMonth]level
	today struct { // the hours of the present day so far, with those that were skipped
		nanos float64 // sum of their means
		hours int     // those with a mean
	}
	lastHours recent // compared with those a week before
	lastDays  recent // compared with those four weeks before

	habits struct { // the last result of habit
		at      slice // divided by nearHour, which divides hours: it is the same until the next one; 0: none
		octaves float64
	}
}

// hourTimes holds the own times of the calls of an hour.
type hourTimes struct {
	all  level       // mean of all calls
	mean level       // of the calls that were not skipped
	high coarseLevel // the third highest mean of a window, as [Steady] judges it: a job of nine minutes shows
}

// level is a time on a logarithmic scale, with steps of 0.07 %; 0: unknown.
type level uint16

const levelsPerOctave = 1024

func levelOf(nanos float64) level {
	return level(1 + math.Round(levelsPerOctave*math.Log2(1+max(0, nanos))))
}

// nanos returns the time in ns; 0 if it is unknown.
func (l level) nanos() float64 {
	if l == 0 {
		return 0
	}
	return math.Exp2(float64(l-1)/levelsPerOctave) - 1
}

// coarseLevel is a time on a logarithmic scale from a microsecond to an hour, rounded up to steps of 9 %; 0: unknown.
type coarseLevel uint8

const (
	coarsePerOctave = 8
	coarseFrom      = 1000 // ns
)

func coarseLevelOf(nanos float64) coarseLevel {
	steps := math.Ceil(coarsePerOctave * math.Log2(max(1, nanos/coarseFrom)))
	return coarseLevel(1 + min(steps, math.MaxUint8-1))
}

// nanos returns the time in ns; 0 if it is unknown.
func (l coarseLevel) nanos() float64 {
	if l == 0 {
		return 0
	}
	return coarseFrom * math.Exp2(float64(l-1)/coarsePerOctave)
}

// index returns the place of an hour in a week.
func (h hour) index() int { return int((h%hoursPerWeek + hoursPerWeek) % hoursPerWeek) }

// knownFor returns the number of hours before h since the calls of a site have been known. w may be nil.
func (w *week) knownFor(h hour) hour {
	if w == nil {
		return 0
	}
	return h - w.since
}

const (
	// nearHour is the time before and after an hour in which its times are usual, too: a job takes a little longer
	// every night.
	nearHour = 20 * slicesPerMinute
	// lateTraces is the time after the end of an hour after which its calls are taken for complete.
	lateTraces = 2 * slicesPerMinute
)

// usual returns the mean that calls at about this time of the day reached on at least two days of the last week, in ns;
// 0 if there is none. What happens on two days at the same hour is a habit: a nightly job, or a busy morning. A single
// day may have had an incident. w may be nil.
func (w *week) usual(at slice) float64 {
	if w == nil {
		return 0
	}
	first, second := coarseLevel(0), coarseLevel(0)
	for day := 1; day <= daysPerWeek; day++ {
		then := at - slice(day)*hoursPerDay*slicesPerHour
		high := w.highs[then.hour().index()]
		for _, near := range []slice{then - nearHour, then + nearHour} {
			if day < daysPerWeek || near > then { // earlier hours of that day have been replaced by those of today
				high = max(high, w.highs[near.hour().index()])
			}
		}
		if high > first {
			first, second = high, first
		} else {
			second = max(second, high)
		}
	}
	return second.nanos()
}

// habit returns how much longer calls usually take at about this time of the day than in the [Span] before, in octaves.
// It compares high means with high means, so that chance cancels. w may be nil.
func (w *week) habit(at slice) float64 {
	if w == nil {
		return 0
	}
	if h := &w.habits; h.at != at/nearHour {
		h.at, h.octaves = at/nearHour, w.habitAt(at)
	}
	return w.habits.octaves
}

func (w *week) habitAt(at slice) float64 {
	usual := w.usual(at)
	if usual == 0 {
		return 0
	}
	const parts = 4 // of the time before
	octaves := math.Log2(usual)
	for i := range slice(parts) {
		before := w.usual(at - (i+1)*slice(Span/Slice)/parts)
		if before == 0 {
			before = w.middle()
		}
		octaves -= math.Log2(before) / parts
	}
	return max(0, octaves)
}

// middle returns the middle one of the high means of the hours, in ns. There is at least one.
func (w *week) middle() float64 {
	known := make([]coarseLevel, 0, len(w.highs))
	for _, high := range w.highs {
		if high != 0 {
			known = append(known, high)
		}
	}
	slices.Sort(known)
	return known[len(known)/2].nanos()
}

// learnHours adds the hours that have ended by now to the weeks of all sites.
func (h *Sites) learnHours(now slice) {
	next := (now - lateTraces).hour()
	if next <= h.hour {
		return
	}
	first := max(h.hour, next-1)
	if h.hour == 0 {
		first = next - 1
	}
	skipped := make([]ranges, len(h.names))
	for i := range skipped {
		skipped[i] = h.skipped.of(h.names[i])
	}
	for i := 1; i < len(h.series); i++ {
		s := &h.series[i]
		h.unpacked = s.unpack(h.unpacked)
		for of := max(h.hour, next-hoursPerWeek); of < next; of++ {
			var times hourTimes
			if of >= first {
				times = timesOf(h.unpacked.within(of.slices()), skipped[h.sites[i].service])
			}
			switch {
			case s.week != nil:
				s.week.put(of, times)
			case times != hourTimes{}:
				s.week = &week{since: of}
				s.week.put(of, times)
			}
		}
	}
	h.hour = next
}

// timesOf returns the times of the calls of an hour.
func timesOf(all cells, skipped ranges) (t hourTimes) {
	if len(all) == 0 {
		return t
	}
	t.all, t.mean = meanLevel(all, nil), meanLevel(all, skipped)
	of := all[0].slice.hour().slices()
	var means []float64
	for from := of.from; from < of.to; from += weekWindow {
		if part := all.within(sliceRange{from, from + weekWindow}); part.calls() >= leastInWindow {
			means = append(means, steadyMean(part))
		}
	}
	if n := len(means); n >= highest {
		slices.Sort(means)
		t.high = coarseLevelOf(means[n-highest])
	}
	return t
}

// meanLevel returns the mean own time of the calls that were not skipped; 0 if there are too few.
func meanLevel(all cells, skipped ranges) level {
	calls, nanos := uint64(0), int64(0)
	for _, c := range all {
		if !skipped.contains(c.slice) {
			calls += uint64(c.calls)
			nanos += c.nanos
		}
	}
	if calls < minHistory {
		return 0
	}
	return levelOf(float64(nanos) / float64(calls))
}

// put replaces the times of an hour of the week before.
func (w *week) put(of hour, t hourTimes) {
	w.habits.at = 0
	i := of.index()
	w.lastHours.add(shift{t.all, w.means[i]})
	w.means[i], w.highs[i] = t.mean, t.high
	if t.all != 0 {
		w.today.nanos += t.all.nanos()
		w.today.hours++
	}
	if (of+1)%hoursPerDay == 0 {
		w.endDay(of / hoursPerDay)
	}
}

// leastInDay is the number of hours with a mean that make up the mean of a day.
const leastInDay = 3

// endDay replaces the times of the day four weeks before. Each hour counts alike: a day with more traffic by night has
// no other mean.
func (w *week) endDay(day hour) {
	all, calm := level(0), level(0)
	if w.today.hours >= leastInDay {
		all = levelOf(w.today.nanos / float64(w.today.hours))
	}
	nanos, hours := 0.0, 0
	for of := day * hoursPerDay; of < (day+1)*hoursPerDay; of++ {
		if mean := w.means[of.index()]; mean != 0 {
			nanos += mean.nanos()
			hours++
		}
	}
	if hours >= leastInDay {
		calm = levelOf(nanos / float64(hours))
	}
	i := day % daysPerMonth
	w.lastDays.add(shift{all, w.days[i]})
	w.days[i], w.today.nanos, w.today.hours = calm, 0, 0
}

// shift is the mean own time in an hour or a day, and in one that was a week or four weeks before. That of now counts
// all calls, also those of an open incident: it is over when they are as fast as before. Before, only healthy ones do.
type shift struct{ now, before level }

// growth returns the time of now relative to that before; 0 if one is unknown.
func (c shift) growth() float64 {
	if c.now == 0 || c.before == 0 {
		return 0
	}
	return c.now.nanos() / max(1, c.before.nanos())
}

// recent holds the changes of the last hours or days, the last one first. All of them must be slower.
type recent [3]shift

func (r *recent) add(c shift) {
	copy(r[1:], r[:])
	r[0] = c
}

// growth returns the lowest growth; 0 if it is not known.
func (r *recent) growth() float64 {
	lowest := math.Inf(1)
	for _, c := range r {
		lowest = min(lowest, c.growth())
	}
	return lowest
}

// GrowthDuration is the time for which calls must be slower than a week before.
const GrowthDuration = time.Duration(len(recent{})) * time.Hour

// Earlier is a time that [Sites.Crept] compares with.
type Earlier int

const (
	// WeekAgo compares each of the last three hours with the one a week before.
	WeekAgo Earlier = iota
	// MonthAgo compares each of the last three days, which begin at midnight UTC, with the one four weeks before.
	MonthAgo
)

// last returns the last hours or days beside those of an earlier time; nil if nothing is known. w may be nil.
func (w *week) last(than Earlier) *recent {
	switch {
	case w == nil:
		return nil
	case than == MonthAgo:
		return &w.lastDays
	default:
		return &w.lastHours
	}
}

// Crept compares calls with those of an earlier time. It charges the own times that have been longer in all of the last
// three hours, or days: the lowest of their three ratios, for each call in the last hour. It also compares all calls of
// each service together, in which chance largely cancels.
func (h *Sites) Crept(now trace.Nanos, than Earlier) Comparison {
	w := (sliceOf(now) - lateTraces).hour() - 1
	c := liveComparison{liveMemory: &liveMemory{}, h: h, window: w.slices(), skipped: h.skipped.all().before(w.slices().from)}
	requests := h.total.within(c.window).calls()
	result := Comparison{Requests: requests, Duration: c.usual()}
	if requests == 0 || h.hour != w+1 {
		return result
	}
	result.Mean = float64(h.total.within(c.window).time()) / float64(requests)
	c.ledger = newLedger(c.graph(), float64(requests), result.Duration, fence)
	wholes := make([]creptTimes, len(h.names))
	for i := 1; i < len(h.sites); i++ {
		last := h.series[i].week.last(than)
		if last == nil || last.growth() == 0 {
			continue
		}
		c.site.cells = h.series[i].unpack(c.site.cells)
		hour := c.site.within(c.window)
		if len(hour) == 0 {
			continue
		}
		calls := float64(hour.calls())
		if service, known := c.ownerOf(int32(i)); known {
			wholes[service].add(last, calls)
		}
		if rise := last.growth(); rise > 1 {
			mean := last[0].now.nanos()
			c.chargeTime(&siteTime{number: int32(i), calls: calls, mean: mean, means: []float64{mean / rise}, before: mean / rise})
		}
	}
	result.Suspects = c.rank()
	for i := range result.Suspects {
		s := &result.Suspects[i]
		s.Whole = wholes[h.serviceNumbers[s.Service]].operation(c.ledger)
	}
	return result
}

// creptTimes sums up the own times of all calls of a service, in ns: in the last hours or days, the last one first, and
// in those before. Each site counts with its calls in the last hour.
type creptTimes struct {
	calls       float64
	now, before [len(recent{})]float64
}

// add adds calls at a site, whose growth is known.
func (t *creptTimes) add(last *recent, calls float64) {
	t.calls += calls
	for i, c := range last {
		t.now[i] += c.now.nanos() * calls
		t.before[i] += c.before.nanos() * calls
	}
}

// operation returns the calls as those of an operation: its Op is 0.
func (t *creptTimes) operation(l *ledger) (o SuspectOperation) {
	rise := math.Inf(1)
	for i := range t.now {
		rise = min(rise, t.now[i]/max(1, t.before[i]))
	}
	if t.calls == 0 || rise <= 1 {
		return o
	}
	mean := t.now[0] / t.calls
	o.Calls, o.Usual, o.Excess = t.calls, mean/rise, mean-mean/rise
	o.Score = o.Excess * o.Calls / l.requests / l.duration
	return o
}

const (
	// weekWindow is the length of the windows in an hour, and leastInWindow the number of calls that has a mean.
	weekWindow    = 3 * slicesPerMinute
	leastInWindow = 10
	// highest is the rank of the mean that is the high one of an hour. The highest two of twenty may be chance.
	highest = 3
)

// appendTo appends w.
func (w *week) appendTo(b []byte) []byte {
	b = codec.AppendBools(b, w != nil)
	if w == nil {
		return b
	}
	b = codec.AppendUvarints(b, uint64(w.since))
	for _, last := range []*recent{&w.lastHours, &w.lastDays} {
		for _, c := range last {
			b = codec.AppendUvarints(b, uint64(c.now), uint64(c.before))
		}
	}
	for i := range w.means {
		b = codec.AppendUvarints(b, uint64(w.means[i]), uint64(w.highs[i]))
	}
	for _, day := range w.days {
		b = codec.AppendUvarints(b, uint64(day))
	}
	return codec.AppendUvarints(b, math.Float64bits(w.today.nanos), uint64(w.today.hours))
}

// readWeek reads what appendTo appended. Earlier versions know no days, and the growth of hours without their times:
// that is known again after three hours.
func readWeek(r *codec.Reader, version byte) *week {
	if !r.Bool() {
		return nil
	}
	w := &week{since: hour(r.Below(1 << 31))}
	if version <= sitesVersion4 {
		for range len(recent{}) {
			r.Below(1 << 32)
		}
	} else {
		for _, last := range []*recent{&w.lastHours, &w.lastDays} {
			for i := range last {
				last[i] = shift{readLevel(r), readLevel(r)}
			}
		}
	}
	for i := range w.means {
		w.means[i], w.highs[i] = readLevel(r), coarseLevel(r.Below(1<<8))
	}
	if version > sitesVersion4 {
		for i := range w.days {
			w.days[i] = readLevel(r)
		}
		w.today.nanos, w.today.hours = math.Float64frombits(r.Uvarint()), int(r.Below(hoursPerDay+1))
	}
	return w
}

func readLevel(r *codec.Reader) level { return level(r.Below(1 << 16)) }
