package detect_test

import (
	"testing"
	"time"
)

// A request type and its group are learned if their first epoch ended by the given time and if they had enough
// requests.
func TestLearn(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests int
		by       time.Duration // after the end of the first epoch
		watched  int           // the type and its group
	}{
		{"the first epoch ends just in time", 50, 0, 2},
		{"the first epoch ends too late", 50, -1, 0},
		{"too few requests", 49, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newHarness()
			for range test.requests {
				s.g.Observe(s.request(parseTraffic(t, "group=g a=10ms")))
			}
			s.now = s.now.Add(epoch)
			s.g.EndEpoch(s.now)
			s.d.Learn(s.now.Add(test.by), s.options)
			if got := s.d.Watched(); got != test.watched {
				t.Errorf("%d groups and types have an expectation, want %d", got, test.watched)
			}
		})
	}
}
