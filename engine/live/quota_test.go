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
