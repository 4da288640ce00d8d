package incident

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Burned is a time in the past in which an objective burned.
type Burned struct {
	From   trace.Nanos   // end of the minute in which it began to burn
	Until  trace.Nanos   // end of the minute in which it stopped; 0: it still burned at the end
	Window time.Duration // the long window of its first alert
	Rate   float64       // highest burn rate in that window
}

// Replay returns the times when o would have burned, oldest first, given the requests of the minutes from `from` on,
// which must be the start of a minute. Times that are less than quiet apart are one, as they would be one incident.
func Replay(o Objective, from trace.Nanos, minutes []Count) []Burned {
	var all []Burned
	w := newWatched(o)
	for _, c := range minutes {
		now := from.Add(time.Minute)
		w.minutes.advance(now)
		w.minutes.add(now, c)
		alert, n := w.judge(now), len(all)
		switch {
		case alert < 0 && n > 0 && all[n-1].Until == 0:
			all[n-1].Until = now
		case alert >= 0 && n > 0 && (all[n-1].Until == 0 || now.Sub(all[n-1].Until) <= quiet):
			all[n-1].Until = 0
		case alert >= 0:
			all = append(all, Burned{From: now, Window: alerts[alert].long})
		}
		if alert >= 0 {
			x := &all[len(all)-1]
			x.Rate = max(x.Rate, w.rate(w.minutes.sum(x.Window)))
		}
		from = now
	}
	return all
}

// ReplayLength is the time that Replay needs to judge all windows of an objective.
const ReplayLength = alertPeriod
