package assemble

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Traces have wrong clocks if they are more than a year from the others, or if they are few and farther from a
// recording than the recording lasts. Traces after pauses and separate recordings are kept.
func TestCalendar(t *testing.T) {
	const first = 20_000 // day
	type stretch struct {
		day, days int // from first
		traces    int // a day
	}
	for name, test := range map[string]struct {
		traffic  []stretch
		from, to int // days
	}{
		"one day":                  {[]stretch{{0, 1, 1000}}, 0, 0},
		"200 days later":           {[]stretch{{0, 1, 1000}, {200, 1, 1}}, 0, 0},
		"three days earlier":       {[]stretch{{0, 1, 1000}, {-3, 1, 2}}, 0, 0},
		"on both sides":            {[]stretch{{0, 1, 1000}, {-90, 1, 2}, {90, 1, 2}, {100, 1, 2}}, 0, 0},
		"the next day":             {[]stretch{{0, 1, 1000}, {1, 1, 1}}, 0, 1},
		"after a weekend":          {[]stretch{{0, 5, 1000}, {7, 1, 1}}, 0, 7},
		"after a month, of a week": {[]stretch{{0, 7, 1000}, {30, 1, 1}}, 0, 6},
		"after a month, of two":    {[]stretch{{0, 60, 1000}, {90, 1, 1}}, 0, 90},
		"another recording":        {[]stretch{{0, 1, 1000}, {100, 1, 50}}, 0, 100},
		"few traces in all":        {[]stretch{{0, 1, 2}, {20, 1, 1}, {40, 1, 1}}, 0, 40},
		"more than a year":         {[]stretch{{0, 1, 3}, {400, 1, 1}, {-400, 1, 1}}, 0, 0},
		"a year, and between":      {[]stretch{{0, 1, 1000}, {300, 1, 1}, {600, 1, 900}}, 0, 0},
	} {
		c := make(Calendar)
		for _, s := range test.traffic {
			for day := s.day; day < s.day+s.days; day++ {
				for range s.traces {
					at := trace.Nanos(time.Duration(first+day) * 24 * time.Hour)
					c.Add(at+1, at+2)
				}
			}
		}
		from, to := c.Recorded()
		day := func(at trace.Nanos) int { return int(time.Duration(at)/(24*time.Hour)) - first }
		if day(from) != test.from || day(to) != test.to {
			t.Errorf("%s: from day %d to day %d, want %d to %d", name, day(from), day(to), test.from, test.to)
		}
	}
	if from, to := make(Calendar).Recorded(); from != 0 || to != 0 {
		t.Errorf("no traces: %d to %d", from, to)
	}
}
