package incident_test

import (
	"reflect"
	"testing"
	"time"
)

// down stops Sibyl for a time: no request arrives, and no epoch ends.
func (s *shop) down(d time.Duration) { s.now = s.now.Add(d) }

// TestDowntimeTeachesNothing stops Sibyl for a day. Windows that nobody saw are not healthy: they would lower the
// thresholds and, since a day seems known, the traffic that counts as usual.
func TestDowntimeTeachesNothing(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.down(24 * time.Hour)
	s.play(30*time.Minute, nil)
	const most = 90 / 3 // windows with requests
	state := s.tracker.Save()
	healthy := [][]float64{state.Healthy}
	for i := range state.Scales {
		healthy = append(healthy, state.Scales[i].Healthy)
	}
	for i, ages := range healthy {
		sum := 0.0
		for _, windows := range ages {
			sum += windows
		}
		if sum > most {
			t.Errorf("%d: %.0f windows taken for healthy, at most %d could be judged", i, sum, most)
		}
	}
}

// TestIncidentOutlivesDowntime stops Sibyl for some minutes while a service fails. The fault goes on, and the incident
// stays open.
func TestIncidentOutlivesDowntime(t *testing.T) {
	for _, saves := range []bool{false, true} {
		s := newShop()
		s.saves = saves
		s.play(time.Hour, nil)
		s.failing = "cart"
		s.play(5*time.Minute, nil)
		s.down(10 * time.Minute)
		s.play(5*time.Minute, nil)
		all := s.tracker.Incidents()
		if len(all) != 1 || all[0].Closed() != 0 || all[0].Reopened() != 0 {
			t.Fatalf("incidents %v, reopened %v", s.summary(0), all[0].Reopened())
		}
		s.failing = ""
		s.play(10*time.Minute, nil)
		if all := s.tracker.Incidents(); all[0].Closed() == 0 {
			t.Error("the incident has not closed")
		}
	}
}

// TestDowntimeIsNoOutage stops Sibyl for some minutes. Afterwards the exporter of one service is two minutes late,
// which doesn't mean that its requests stopped. After three minutes it does.
func TestDowntimeIsNoOutage(t *testing.T) {
	s := newShop()
	s.play(2*time.Hour, nil)
	s.down(20 * time.Minute)
	s.stopped = "cart"
	s.play(2*time.Minute, nil)
	if got := s.summary(0); got != nil {
		t.Errorf("two minutes after the start: incidents %v", got)
	}
	again := s.now
	s.play(10*time.Minute, nil)
	if got := s.summary(again); len(got) != 1 {
		t.Errorf("twelve minutes after the start: incidents %v, want the outage", got)
	}
}

// TestLongEpochsAreNoDowntime ends epochs of two minutes. The time between two epochs is not a downtime, even if no
// request comes, so an incident closes after the quiet time.
func TestLongEpochsAreNoDowntime(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.failing, s.epoch = "cart", 2*time.Minute
	s.play(10*time.Minute, nil)
	if all := s.tracker.Incidents(); len(all) != 1 || all[0].Closed() != 0 {
		t.Fatalf("incidents %v", s.summary(0))
	}
	s.failing, s.quiet = "", true
	s.play(10*time.Minute, nil)
	if all := s.tracker.Incidents(); all[0].Closed() == 0 || !all[0].NobodyKnows() {
		t.Errorf("closed at %d, unseen %t: want both, since no traces arrive", all[0].Closed(), all[0].NobodyKnows())
	}
}

// TestEvidenceOutlivesTraffic stops all requests during a fault. The evidence stays the same while the last requests
// leave the window, and the incident ends with the last request.
func TestEvidenceOutlivesTraffic(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.failing = "cart"
	s.play(10*time.Minute, nil)
	before, last := s.tracker.Incidents()[0], s.now
	s.quiet = true
	s.play(10*time.Minute, nil)
	after := s.tracker.Incidents()[0]
	if !reflect.DeepEqual(after.Suspects[0], before.Suspects[0]) {
		t.Errorf("the first suspect is %+v after the last request, %+v before", after.Suspects[0], before.Suspects[0])
	}
	if after.Closed() == 0 || after.End() > last.Add(time.Minute) {
		t.Errorf("it ended %v after the last request", after.End().Sub(last))
	}
}

// TestAffectedRequestsStop stops the requests of the slow service, while other requests go on. Nobody knows whether the
// incident is over, so it ends with the last of these requests.
func TestAffectedRequestsStop(t *testing.T) {
	s := newShop()
	s.play(20*time.Minute, nil)
	s.play(6*time.Minute, map[string]float64{"cart": 3})
	last := s.now
	s.stopped = "cart"
	s.play(10*time.Minute, nil)
	all := s.tracker.Incidents()
	if len(all) != 1 || all[0].Closed() == 0 || !all[0].NobodyKnows() {
		t.Fatalf("incidents %+v, want one that closed because its requests stopped", all)
	}
	if end := all[0].End().Sub(last); end.Abs() > time.Minute {
		t.Errorf("it ended %v after the last request to cart", end)
	}
}

// TestSeenEnd ends a fault while requests go on, so its incident is known to be over.
func TestSeenEnd(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.failing = "cart"
	s.play(10*time.Minute, nil)
	s.failing = ""
	s.play(10*time.Minute, nil)
	if all := s.tracker.Incidents(); len(all) != 1 || all[0].Closed() == 0 || all[0].NobodyKnows() {
		t.Errorf("incidents %+v, want one that is over", all)
	}
}

// TestNothingLearnedWithoutRequests stops the requests, but not Sibyl. Windows without requests are not evidence of
// health.
func TestNothingLearnedWithoutRequests(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	before := s.tracker.Save().Healthy[0]
	s.quiet = true
	s.play(12*time.Hour, nil)
	const late = 4 // windows that had not yet proved healthy
	if after := s.tracker.Save().Healthy[0]; after > before+late {
		t.Errorf("%.0f windows taken for healthy, %.0f before the requests stopped", after, before)
	}
}
