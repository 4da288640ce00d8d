package live

import (
	"testing"
	"time"
)

// Decisions are late once the next epoch is overdue by more than two epochs, and the cause is known.
func TestLag(t *testing.T) {
	const length = 10 * time.Second
	start := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name          string
		ended         time.Duration // after the start; 0: no epoch has ended
		decided       time.Duration
		deciding      time.Duration // for how long
		at            time.Duration
		full          bool
		overdue, work time.Duration
		want          LagCause
	}{
		{name: "started", at: 9 * time.Second},
		{name: "on time", ended: 60 * time.Second, at: 68 * time.Second},
		{name: "slow", ended: 60 * time.Second, at: 90 * time.Second, overdue: 20 * time.Second},
		{name: "analysis", ended: 60 * time.Second, at: 91 * time.Second, overdue: 21 * time.Second, want: LagAnalysis},
		{
			name: "no epoch since the start", decided: time.Hour, at: 91 * time.Second,
			overdue: 81 * time.Second, work: time.Hour, want: LagDecisions,
		},
		{
			name: "decisions", ended: 60 * time.Second, decided: 13 * time.Second, at: 180 * time.Second,
			overdue: 110 * time.Second, work: 13 * time.Second, want: LagDecisions,
		},
		{
			name: "present decisions", ended: 60 * time.Second, decided: time.Second, deciding: time.Minute,
			at: 130 * time.Second, overdue: time.Minute, work: time.Minute, want: LagDecisions,
		},
		{
			name: "full disk", ended: 60 * time.Second, at: 130 * time.Second, full: true,
			overdue: time.Minute, want: LagSpace,
		},
		{name: "the clock was set back", ended: 60 * time.Second, at: -time.Hour},
	} {
		now := start.Add(c.at)
		s := &Service{options: &Options{}}
		s.options.Core.Epoch = length
		s.options.Clock = func() time.Time { return now }
		s.options.Fits = func(time.Time, uint64) bool { return !c.full }
		s.options.Full = func(time.Time) bool { return c.full }
		s.began.Store(start.UnixNano())
		if got := s.Lag(); got != (Lag{}) {
			t.Errorf("%s: got %+v before the start", c.name, got)
		}
		s.ready.Store(true)
		if c.ended > 0 {
			s.counts.ended.Store(start.Add(c.ended).UnixNano())
		}
		s.counts.Decided.Store(int64(c.decided))
		if c.deciding > 0 {
			s.counts.deciding.Store(now.Add(-c.deciding).UnixNano())
		}
		if got := s.Lag(); got != (Lag{c.overdue, c.want, c.work}) {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}
