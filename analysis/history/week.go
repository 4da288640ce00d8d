package history

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Hour numbers hours, counted from the Unix epoch.
type Hour int32

// Ratios of units of time.
const (
	SlicesPerHour = 60 * SlicesPerMinute
	HoursPerDay   = 24
	daysPerWeek   = 7
	daysPerMonth  = 4 * daysPerWeek
	hoursPerWeek  = daysPerWeek * HoursPerDay
)

// Hour returns the hour of a slice.
func (s Slice) Hour() Hour { return Hour(s / SlicesPerHour) }

// Slices returns the slices of h.
func (h Hour) Slices() Range {
	return Range{Slice(h) * SlicesPerHour, Slice(h+1) * SlicesPerHour}
}

// Week holds the local times of the calls at a site in each hour of the last week, and in each day of the last four
// weeks. It uses local times because a deploy that adds or removes spans inside a service changes only own times.
type Week struct {
	since Hour // first hour with known times
	means [hoursPerWeek]Level
	highs [hoursPerWeek]coarseLevel
	days  [daysPerMonth]Level
	today struct { // the hours of the present day so far, including skipped hours
		nanos float64 // sum of the means of its hours
		hours int     // number of hours with a mean
	}
	lastHours Recent // compared with the hours a week before
	lastDays  Recent // compared with the days four weeks before
	first     firstTimes

	habits struct { // cached results of Usual and Habit
		// at is 1 + slice/nearHour for the slice of the results, or 0 if there are no results. The results don't change
		// within nearHour, which divides an hour evenly.
		at      Slice
		usual   float64
		octaves float64
	}
}

// hourTimes summarizes the times of the calls of an hour.
type hourTimes struct {
	all  Level // mean of all calls
	mean Level // mean of the calls that were not skipped
	// high is the third highest mean of the windows of three minutes in the hour, so a job of nine minutes raises it.
	// As for compare.Steady, the mean of a window is the lowest mean of its parts.
	high coarseLevel
}

// Level is a time on a logarithmic scale, with steps of 0.07 %. 0 means unknown.
type Level uint16

const levelsPerOctave = 1024

func levelOf(nanos float64) Level {
	return Level(1 + math.Round(levelsPerOctave*math.Log2(1+max(0, nanos))))
}

// Nanos returns the time in ns, or 0 if it is unknown.
func (l Level) Nanos() float64 {
	if l == 0 {
		return 0
	}
	return math.Exp2(float64(l-1)/levelsPerOctave) - 1
}

// coarseLevel is a time on a logarithmic scale from a microsecond to an hour, rounded up to steps of 9 %. 0 means
// unknown.
type coarseLevel uint8

const (
	coarsePerOctave = 8
	coarseFrom      = 1000 // ns
)

func coarseLevelOf(nanos float64) coarseLevel {
	steps := math.Ceil(coarsePerOctave * math.Log2(max(1, nanos/coarseFrom)))
	return coarseLevel(1 + min(steps, math.MaxUint8-1))
}

// nanos returns the time in ns, or 0 if it is unknown.
func (l coarseLevel) nanos() float64 {
	if l == 0 {
		return 0
	}
	return coarseFrom * math.Exp2(float64(l-1)/coarsePerOctave)
}

// index returns the index of an hour within its week.
func (h Hour) index() int { return int((h%hoursPerWeek + hoursPerWeek) % hoursPerWeek) }

// KnownFor returns the number of hours from the first hour with known times to h, or 0 if w is nil.
func (w *Week) KnownFor(h Hour) Hour {
	if w == nil {
		return 0
	}
	return h - w.since
}

const (
	// nearHour is the distance from an hour within which its times still count as usual, because a job may take a
	// little longer every night.
	nearHour = 20 * SlicesPerMinute
	// lateTraces is the time after the end of an hour until we consider its calls complete.
	lateTraces = 2 * SlicesPerMinute
)

// Usual returns the mean, in ns, that calls reached at about this time of day on at least two days of the last week, or
// 0 if there is no such mean. A level reached on two days at the same hour is a habit, such as a nightly job or a busy
// morning. A level reached on a single day may be an incident. w may be nil.
func (w *Week) Usual(at Slice) float64 {
	if w == nil {
		return 0
	}
	w.know(at)
	return w.habits.usual
}

// know sets w.habits to the results for slice `at`.
func (w *Week) know(at Slice) {
	if h := &w.habits; h.at != 1+at/nearHour {
		h.at, h.usual = 1+at/nearHour, w.usualAt(at)
		h.octaves = w.habitAt(at)
	}
}

func (w *Week) usualAt(at Slice) float64 {
	first, second := coarseLevel(0), coarseLevel(0)
	for day := 1; day <= daysPerWeek; day++ {
		then := at - Slice(day)*HoursPerDay*SlicesPerHour
		high := w.highs[then.Hour().index()]
		for _, near := range []Slice{then - nearHour, then + nearHour} {
			if day < daysPerWeek || near > then { // today's hours have replaced the earlier hours of that day
				high = max(high, w.highs[near.Hour().index()])
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

// Habit returns how much longer calls usually take at about this time of day than in the [Span] before it, in octaves.
// It compares high means with high means, so that chance cancels out. w may be nil.
func (w *Week) Habit(at Slice) float64 {
	if w == nil {
		return 0
	}
	w.know(at)
	return w.habits.octaves
}

// habitAt computes the result of Habit for slice `at` from the result of Usual in w.habits.
func (w *Week) habitAt(at Slice) float64 {
	usual := w.habits.usual
	if usual == 0 {
		return 0
	}
	const parts = 4 // of the time before
	octaves := math.Log2(usual)
	for i := range Slice(parts) {
		before := w.usualAt(at - (i+1)*Slice(Span/SliceLength)/parts)
		if before == 0 {
			before = w.middle()
		}
		octaves -= math.Log2(before) / parts
	}
	return max(0, octaves)
}

// middle returns the median of the high means of the known hours, in ns. At least one hour must be known.
func (w *Week) middle() float64 {
	known := make([]coarseLevel, 0, len(w.highs))
	for _, high := range w.highs {
		if high != 0 {
			known = append(known, high)
		}
	}
	slices.Sort(known)
	return known[len(known)/2].nanos()
}

// LastHour returns the last hour whose calls we consider complete at time now.
func LastHour(now trace.Nanos) Hour { return (SliceOf(now) - lateTraces).Hour() - 1 }

// learnHours adds the hours that have ended by now to the weeks of all sites.
func (h *Sites) learnHours(now trace.Nanos) {
	next := LastHour(now) + 1
	if next <= h.hour {
		return
	}
	first := max(h.hour, next-1)
	if h.hour == 0 {
		first = next - 1
	}
	covered := h.Requests.CoveredSince(now)
	skipped := make([]Ranges, h.Services.Len()+1)
	for i := range skipped {
		skipped[i] = h.Skipped.Of(h.Services.names[i])
	}
	for i := 1; i < len(h.series); i++ {
		s := &h.series[i]
		s.within = Logs{s.within.Calls / 2, s.within.sum / 2}
		h.unpacked = s.LocalTimes().Unpack(h.unpacked)
		for of := max(h.hour, next-hoursPerWeek); of < next; of++ {
			var times hourTimes
			if of >= first {
				times = timesOf(h.unpacked.Within(of.Slices()), skipped[h.sites[i].Service])
			}
			switch {
			case s.Week != nil:
				s.Week.put(of, times)
			case times != hourTimes{}:
				s.Week = &Week{since: of}
				s.Week.put(of, times)
			}
		}
		if s.Week != nil {
			s.Week.first.learn(h.unpacked, covered, next.Slices().From, skipped[h.sites[i].Service])
		}
	}
	h.hour = next
}

// timesOf summarizes the times of `all`, which must be calls of a single hour. It returns the zero value if there are
// no calls.
func timesOf(all Cells, skipped Ranges) (t hourTimes) {
	if len(all) == 0 {
		return t
	}
	t.all, t.mean = meanLevel(all, nil), meanLevel(all, skipped)
	of := all[0].Slice.Hour().Slices()
	var means []float64
	for from := of.From; from < of.To; from += weekWindow {
		if part := all.Within(Range{from, from + weekWindow}); part.Calls() >= leastInWindow {
			means = append(means, part.LowestMean(SteadyParts))
		}
	}
	if n := len(means); n >= highest {
		slices.Sort(means)
		t.high = coarseLevelOf(means[n-highest])
	}
	return t
}

// meanLevel returns the mean own time of the calls that were not skipped, or 0 if there are fewer than [MinHistory].
func meanLevel(all Cells, skipped Ranges) Level {
	calls, nanos := uint64(0), int64(0)
	for _, c := range all {
		if !skipped.Contains(c.Slice) {
			calls += uint64(c.Calls)
			nanos += c.Own()
		}
	}
	if calls < MinHistory {
		return 0
	}
	return levelOf(float64(nanos) / float64(calls))
}

// put sets the times of hour `of`, which replace the times of the same hour a week before. Hours must be put in
// ascending order.
func (w *Week) put(of Hour, t hourTimes) {
	w.habits.at = 0
	i := of.index()
	w.lastHours.add(Shift{t.all, w.means[i]})
	w.means[i], w.highs[i] = t.mean, t.high
	if t.all != 0 {
		w.today.nanos += t.all.Nanos()
		w.today.hours++
	}
	if (of+1)%HoursPerDay == 0 {
		w.endDay(of / HoursPerDay)
	}
}

// leastInDay is the minimum number of hours with a mean that the mean of a day requires.
const leastInDay = 3

// endDay sets the times of day, which replace the times of the day four weeks before. Each hour has the same weight, so
// that the mean does not change if traffic shifts to the night.
func (w *Week) endDay(day Hour) {
	all, calm := Level(0), Level(0)
	if w.today.hours >= leastInDay {
		all = levelOf(w.today.nanos / float64(w.today.hours))
	}
	nanos, hours := 0.0, 0
	for of := day * HoursPerDay; of < (day+1)*HoursPerDay; of++ {
		if mean := w.means[of.index()]; mean != 0 {
			nanos += mean.Nanos()
			hours++
		}
	}
	if hours >= leastInDay {
		calm = levelOf(nanos / float64(hours))
	}
	i := day % daysPerMonth
	w.lastDays.add(Shift{all, w.days[i]})
	w.days[i], w.today.nanos, w.today.hours = calm, 0, 0
}

// Shift compares the mean local time in an hour or a day with the mean a week or four weeks before. Now counts all
// calls, even during an open incident, because the incident is over once they are as fast as before. Before counts only
// healthy calls.
type Shift struct{ Now, Before Level }

// growth returns Now relative to Before, or 0 if one of them is unknown.
func (c Shift) growth() float64 {
	if c.Now == 0 || c.Before == 0 {
		return 0
	}
	return c.Now.Nanos() / max(1, c.Before.Nanos())
}

// Recent holds the shifts of the last three hours or days, the latest first. Growth counts only if all three of them
// grew.
type Recent [3]Shift

func (r *Recent) add(c Shift) {
	copy(r[1:], r[:])
	r[0] = c
}

// Growth returns the lowest growth, or 0 if any of them is unknown.
func (r *Recent) Growth() float64 {
	lowest := math.Inf(1)
	for _, c := range r {
		lowest = min(lowest, c.growth())
	}
	return lowest
}

// GrowthDuration is the minimum time that calls must have been slower than a week before to count as grown.
const GrowthDuration = time.Duration(len(Recent{})) * time.Hour

// Last returns the shifts of the last hours or days, compared with the time that `than` selects, or nil if w is nil.
func (w *Week) Last(than Earlier) *Recent {
	switch {
	case w == nil:
		return nil
	case than == MonthAgo:
		return &w.lastDays
	default:
		return &w.lastHours
	}
}

const (
	// weekWindow is the length of the windows in an hour. leastInWindow is the minimum number of calls in a window with
	// a mean.
	weekWindow    = 3 * SlicesPerMinute
	leastInWindow = 10
	// highest is the rank of the window mean that counts as the high mean of an hour. The highest two of twenty may be
	// due to chance.
	highest = 3
)

// appendTo appends w, which may be nil.
func (w *Week) appendTo(b []byte) []byte {
	b = codec.AppendBools(b, w != nil)
	if w == nil {
		return b
	}
	b = codec.AppendUvarints(b, uint64(w.since))
	for _, last := range []*Recent{&w.lastHours, &w.lastDays} {
		for _, c := range last {
			b = codec.AppendUvarints(b, uint64(c.Now), uint64(c.Before))
		}
	}
	for i := range w.means {
		b = codec.AppendUvarints(b, uint64(w.means[i]), uint64(w.highs[i]))
	}
	for _, day := range w.days {
		b = codec.AppendUvarints(b, uint64(day))
	}
	b = w.first.appendTo(b)
	return codec.AppendUvarints(b, math.Float64bits(w.today.nanos), uint64(w.today.hours))
}

// readWeek reads a week that appendTo appended.
func readWeek(r *codec.Reader) *Week {
	if !r.Bool() {
		return nil
	}
	w := &Week{since: Hour(r.Below(1 << 31))}
	for _, last := range []*Recent{&w.lastHours, &w.lastDays} {
		for i := range last {
			last[i] = Shift{readLevel(r), readLevel(r)}
		}
	}
	for i := range w.means {
		w.means[i], w.highs[i] = readLevel(r), coarseLevel(r.Below(1<<8))
	}
	for i := range w.days {
		w.days[i] = readLevel(r)
	}
	w.first.read(r)
	w.today.nanos, w.today.hours = math.Float64frombits(r.Uvarint()), int(r.Below(HoursPerDay+1))
	return w
}

func readLevel(r *codec.Reader) Level { return Level(r.Below(1 << 16)) }

// early returns the mean local time, in ns, of calls in the first two known hours of the day that ended an hour before
// slice `at`, or 0 if there are no two such hours. w may be nil.
func (w *Week) early(at Slice) float64 {
	if w == nil {
		return 0
	}
	last := (at - SlicesPerHour).Hour()
	nanos, hours := 0.0, 0
	for of := max(w.since, last-HoursPerDay); of < last && hours < 2; of++ {
		if mean := w.means[of.index()]; mean != 0 {
			nanos += mean.Nanos()
			hours++
		}
	}
	if hours < 2 {
		return 0
	}
	return nanos / float64(hours)
}

// SilentAt reports whether there were too few calls for a high mean in the same hour of the previous day, although the
// site was known by then. It returns false if w is nil.
func (w *Week) SilentAt(at Slice) bool {
	yesterday := at.Hour() - HoursPerDay
	return w.KnownFor(at.Hour()) > HoursPerDay && w.highs[yesterday.index()] == 0
}

// Earlier selects the time that compare.Comparer.Crept compares with.
type Earlier int

const (
	// WeekAgo compares each of the last three hours with the same hour a week before.
	WeekAgo Earlier = iota
	// MonthAgo compares each of the last three days, which start at midnight UTC, with the day four weeks before.
	MonthAgo
)
