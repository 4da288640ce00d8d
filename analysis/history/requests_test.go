package history

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestLongRequests adds streams and polls to short requests behind the same gateway, up to half of all. They change
// neither the number nor the mean duration of the others, and their sites are measured by their own durations.
func TestLongRequests(t *testing.T) {
	short, long := entryKey{1, 2}, entryKey{1, 3}
	for _, c := range []struct {
		every    int // short requests per long one
		duration time.Duration
	}{{100, 400 * time.Second}, {10, 60 * time.Second}, {2, 30 * time.Second}} {
		table := &trace.Table{}
		h, control := NewSites(table), NewSites(table)
		for at := range Slice(30) * SlicesPerMinute {
			with, without := NewTally(), NewTally()
			for i := range 10 {
				d := int64(20e6 + 1e6*i)
				for _, tally := range []*Tally{with, without} {
					tally.slice(at).entry(short).add(spent{nanos: d})
				}
				if n := int(at)*10 + i; n%c.every == 0 {
					s := with.slice(at)
					s.entry(long).add(spent{nanos: int64(c.duration)})
					number := with.add(tallySite{
						tallyKey: tallyKey{SiteKey: SiteKey{Op: long.first}},
						base:     long.first, service: 7,
					})
					s.cell(number).add(spent{nanos: int64(c.duration)})
					s.cell(number).within += logOf(int64(c.duration))
				}
			}
			h.Merge(with)
			control.Merge(without)
			now := trace.Nanos(at+1) * trace.Nanos(SliceLength)
			h.Age(now)
			control.Age(now)
		}
		got, want := h.Requests.Total(), control.Requests.Total()
		if got.Calls() != want.Calls() || got.Time() != want.Time() {
			t.Errorf("%v: %d requests of %d ns, want %d of %d", c.duration,
				got.Calls(), got.Time(), want.Calls(), want.Time())
		}
		nanos, isLong := h.Long(1)
		if !isLong || nanos < 0.9*float64(c.duration) || nanos > 1.1*float64(c.duration) {
			t.Errorf("%v: the requests at the site of the stream take %g ns, long: %t", c.duration, nanos, isLong)
		}
	}
}
