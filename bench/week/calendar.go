package week

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Lengths of time.
const (
	day  = 24 * time.Hour
	week = 7 * day
)

// monday is the start of the first week, 5 January 2026 at midnight UTC.
const monday trace.Nanos = 1_767_571_200_000_000_000

// hour is a point of the daily profile: the traffic at an hour relative to the peak.
type hour struct{ at, load float64 }

// workday is the profile of a working day. The traffic between two points is interpolated.
var workday = []hour{
	{0, 0.3}, {5, 0.3}, {7, 0.4}, {9.5, 1}, {12, 1}, {13, 0.85}, {14, 1}, {16.5, 1}, {20, 0.5}, {23, 0.3}, {24, 0.3},
}

// weekend is the traffic at a weekend relative to a working day.
const weekend = 0.5

// load returns the traffic at time at relative to the peak, in (0, 1].
func load(at trace.Nanos) float64 {
	since := at.Sub(monday) % week
	h := (since % day).Hours()
	i := 1
	for workday[i].at < h {
		i++
	}
	a, b := workday[i-1], workday[i]
	l := a.load + (b.load-a.load)*(h-a.at)/(b.at-a.at)
	if since >= 5*day {
		l *= weekend
	}
	return l
}

// The nightly batch.
const (
	batchAt     = 2 * time.Hour // after midnight
	batchLength = 40 * time.Minute
	batchSlow   = 1.3 // times the usual duration of the statements of the database that it reads
	batchRate   = 1.0 // requests per second
)

// inBatch reports whether the nightly batch runs.
func inBatch(at trace.Nanos) bool {
	since := at.Sub(monday) % day
	return batchAt <= since && since < batchAt+batchLength
}

// Warm-up of an instance.
const (
	warmUp  = 0.6
	warming = time.Minute
)

// warm returns the factor on own times, at time at, of an instance that started at time started.
func warm(started, at trace.Nanos) float64 {
	return 1 + warmUp*math.Exp(-at.Sub(started).Seconds()/warming.Seconds())
}
