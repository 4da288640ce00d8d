package describe

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Period describes the window of a comparison in a sentence: "since 02:41" or "between 02:41 and 03:05", with the date
// if dated is set. If openEnd is set, the window has no end.
func Period(window history.Interval, openEnd, dated bool) Sentence {
	if openEnd {
		return Say("since %s", clock(window.From, dated))
	}
	return Say("between %s and %s", clock(window.From, dated), clock(window.To, dated && !OneDay(window)))
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
