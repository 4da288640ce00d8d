package describe

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Period describes the window of a comparison in a sentence: "since 02:41" or "between 02:41 and 03:05", with the date
// if dated is set. If openEnd is set, the window has no end.
func Period(window history.Interval, openEnd, dated bool) string {
	return periodIn(Clock, window, openEnd, dated)
}

func periodIn(clock func(t trace.Nanos, dated bool) string, window history.Interval, openEnd, dated bool) string {
	if openEnd {
		return "since " + clock(window.From, dated)
	}
	return "between " + clock(window.From, dated) + " and " + clock(window.To, dated && !OneDay(window))
}

// IncidentPeriod describes the time of an incident in a sentence, see [Period]. It is to the minute, because the onset
// is an estimate. ended is 0 while the incident is open. The period includes dates unless it lies within the day of
// its end or, if the incident is open, of now.
func IncidentPeriod(onset, ended, now trace.Nanos) string {
	return IncidentPeriodIn(Clock, onset, ended, now)
}

// IncidentPeriodIn is like IncidentPeriod, but formats times with clock instead of [Clock].
func IncidentPeriodIn(clock func(t trace.Nanos, dated bool) string, onset, ended, now trace.Nanos) string {
	end := ended
	if end == 0 {
		end = now
	}
	const minute = trace.Nanos(time.Minute)
	period := history.Interval{From: onset - onset%minute, To: max(onset+1, end-end%minute)}
	return periodIn(clock, period, ended == 0, !OneDay(period))
}

// OneDay reports whether all intervals lie within the same day, UTC.
func OneDay(intervals ...history.Interval) bool {
	const day = trace.Nanos(24 * time.Hour)
	for _, i := range intervals {
		if i.From/day != intervals[0].From/day || (i.To-1)/day != intervals[0].From/day {
			return false
		}
	}
	return true
}

// Clock returns the time of day of t in UTC, like "02:41" or "02:41:30", with its date if dated is set. It omits the
// seconds of whole minutes.
func Clock(t trace.Nanos, dated bool) string {
	at := time.Unix(0, int64(t)).UTC()
	layout := "15:04"
	if at.Second() != 0 || at.Nanosecond() != 0 {
		layout = time.TimeOnly
	}
	if dated {
		layout = time.DateOnly + " " + layout
	}
	return at.Format(layout)
}
