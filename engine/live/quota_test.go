package live

import (
	"testing"
	"time"
)

// A quota admits requests as long as the average is below it, and names the time at which it will be again.
func TestQuota(t *testing.T) {
	q, now, spans, sent := quota{rate: 100}, time.Unix(1_800_000_000, 0), int64(0), 0
	start := now
	for now.Sub(start) < time.Minute {
		if refused := q.exceeded(now, spans); refused == nil {
			spans, sent = spans+10, sent+1
		} else if refused.After < time.Second || refused.After > quotaMaxDelay {
			t.Errorf("retry after %v", refused.After)
		}
		now = now.Add(10 * time.Millisecond)
	}
	if sent < 620 || sent > 622 {
		t.Errorf("%d requests of 10 spans in a minute, want a minute's and two seconds'", sent)
	}
	spans += 100_000
	if refused := q.exceeded(now, spans); refused == nil || refused.After != quotaMaxDelay {
		t.Errorf("far beyond the quota: %v", refused)
	}
	if refused := q.exceeded(now.Add(time.Hour), spans); refused != nil {
		t.Errorf("later: %v", refused)
	}
	if refused := (&quota{}).exceeded(now, spans); refused != nil {
		t.Errorf("without a quota: %v", refused)
	}
}

// A service that shares the heap refuses requests at the limit only if it fills the heap itself, and in any case a
// tenth above it.
func TestBlame(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for _, c := range []struct {
		blamed    func() bool
		live, all uint64
		want      bool
	}{
		{nil, 100, 160, false},
		{nil, 101, 101, true},
		{nil, 10, 161, true},
		{yes, 100, 160, false},
		{yes, 101, 101, true},
		{yes, 10, 161, true},
		{no, 110, 110, false},
		{no, 10, 1000, false},
		{no, 111, 111, true},
	} {
		w := &heapWatch{limit: 100, blamed: c.blamed}
		if got := w.exceeded(int64(time.Hour), c.live, c.all); got != c.want {
			t.Errorf("%d live bytes of %d, others: %v: exceeded is %v", c.live, c.all, c.blamed != nil, got)
		}
	}
	blamed := true
	w := &heapWatch{limit: 100, blamed: func() bool { return blamed }}
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{time.Hour, true}, {time.Hour + blameTime/2, true}, {time.Hour + blameTime, false}} {
		if got := w.exceeded(int64(c.at), 105, 105); got != c.want {
			t.Errorf("at %s, after a flood: exceeded is %v", c.at, got)
		}
		blamed = false // its open traces are closed
	}
}
