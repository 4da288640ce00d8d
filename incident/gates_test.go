package incident_test

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/incident"
)

// Gates hide changes that are too small to report. Saved state of an earlier version, without gates, gets the defaults.
func TestGates(t *testing.T) {
	score := incident.DefaultGates()
	score.Score = 2
	for _, c := range []struct {
		name  string
		gates incident.Gates
		want  int
	}{
		{"default", incident.DefaultGates(), 1},
		{"of an earlier version", incident.Gates{}, 1},
		{"three times the usual time", score, 0},
	} {
		s := newShop()
		s.tracker.SetGates(c.gates)
		s.play(30*time.Minute, nil)
		s.play(10*time.Minute, map[string]float64{"cart": 3})
		if got := s.summary(0); len(got) != c.want {
			t.Errorf("%s: incidents %v, want %d", c.name, got, c.want)
		}
	}
}
