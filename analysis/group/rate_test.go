package group_test

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// A rate depends on the epochs when requests arrived, not on the start times that they claim: a trace is closed seconds
// later, a request may have waited in a queue, and a clock may be wrong.
func TestRateOfLateRequests(t *testing.T) {
	const epoch = 10 * time.Second
	start := trace.Nanos(0).Add(1000 * time.Hour)
	for _, late := range []time.Duration{0, 15 * time.Second, 24 * time.Hour, -time.Hour} {
		g, at := newGrouper(group.Options{}), start
		g.EndEpoch(at)
		for range 3 {
			for k := range 20 {
				o := requests.Random(1, 1)[0]
				o.Start = at.Add(time.Duration(k)*epoch/20 - late)
				g.Observe(o)
			}
			at = at.Add(epoch)
			g.EndEpoch(at)
		}
		for _, grp := range g.Groups() {
			if rate := grp.Current.Rate(); rate < 1.99 || rate > 2.01 {
				t.Errorf("%v late: %g requests/s, want 2", late, rate)
			}
		}
	}
}

// A pause without requests, such as a restart, doesn't count for rates.
func TestRateAfterAPause(t *testing.T) {
	g, at := newGrouper(group.Options{}), trace.Nanos(0).Add(1000*time.Hour)
	g.EndEpoch(at)
	at = at.Add(5 * time.Hour)
	o := requests.Random(1, 1)[0]
	o.Start = at
	g.Observe(o)
	g.EndEpoch(at.Add(10 * time.Second))
	for _, grp := range g.Groups() {
		if rate := grp.Current.Rate(); rate != 0.1 {
			t.Errorf("%g requests/s, want 0.1", rate)
		}
	}
}

// The requests of a backlog count for the time that they come from, not for the epoch when they arrive together.
func TestRateOfABacklog(t *testing.T) {
	const outage = 20 * time.Minute
	g, at := newGrouper(group.Options{}), trace.Nanos(0).Add(1000*time.Hour)
	g.EndEpoch(at)
	at = at.Add(10 * time.Second)
	for k := range 2 * int(outage/time.Second) {
		o := requests.Random(1, 1)[0]
		o.Start = at.Add(time.Duration(k)*time.Second/2 - outage)
		if k%100 == 0 {
			o.Start = o.Start.Add(-time.Duration(k) * time.Hour) // a wrong clock
		}
		g.Observe(o)
	}
	g.EndEpoch(at)
	for _, grp := range g.Groups() {
		if rate := grp.Current.Rate(); rate < 1.8 || rate > 2.2 {
			t.Errorf("%g requests/s, want about 2", rate)
		}
	}
}
