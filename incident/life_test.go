package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/incident"
)

// lastOf returns the latest transition of the only incident.
func (s *shop) lastOf(t *testing.T) incident.Transition {
	t.Helper()
	all := s.tracker.Incidents()
	if len(all) != 1 {
		t.Fatalf("incidents %v, want one", s.summary(0))
	}
	return all[0].Last()
}

// TestRenamedService renames a failing service. Its incident closes on its own and names the new service. A fault of
// the new service opens another incident.
func TestRenamedService(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.failing = "cart"
	s.play(6*time.Minute, nil)
	s.failing, s.names = "", map[string]string{"cart": "cart-v2"}
	s.play(15*time.Minute, nil)
	if last := s.lastOf(t); last.Why != incident.Moved || s.table.Text(last.Service) != "cart-v2" {
		t.Errorf("%+v, want an incident that closed because its requests go to cart-v2", last)
	}
	s.play(15*time.Minute, nil)
	fault := s.now
	s.play(10*time.Minute, map[string]float64{"cart": 4})
	if got := s.summary(fault); len(got) != 2 || !strings.HasPrefix(got[1], "cart-v2 ") {
		t.Errorf("incidents %v, want a new one of cart-v2", got)
	}
}

// TestRenamedEntry renames the service that receives the requests. Its requests have not stopped.
func TestRenamedEntry(t *testing.T) {
	s := newShop()
	s.play(2*time.Hour, nil)
	s.names = map[string]string{"gateway": "gateway-v2"}
	s.play(time.Hour, nil)
	if got := s.summary(0); got != nil {
		t.Errorf("incidents %v", got)
	}
	fault := s.now
	s.play(10*time.Minute, map[string]float64{"cart": 4})
	if got := s.summary(fault); len(got) != 1 || !strings.HasPrefix(got[0], "cart ") {
		t.Errorf("incidents %v, want one of cart", got)
	}
}

// TestOpenIncidentHidesNothing makes a service fail, or become far slower, while it has an open incident because it is
// slow. Another incident opens for the new fault and replaces the first one. Evidence that unfolds in the first minutes
// is one fault.
func TestOpenIncidentHidesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  time.Duration
		failing string
		silent  string
		slower  float64
		want    int // incidents
	}{
		{"fails", 12 * time.Minute, "cart", "", 1.5, 2},
		{"does not answer", 12 * time.Minute, "", "cart", 1.5, 2},
		{"far slower", 12 * time.Minute, "", "", 8, 2},
		{"a little slower", 12 * time.Minute, "", "", 1.8, 1},
		{"fails at once", 2 * time.Minute, "cart", "", 1.5, 1},
	} {
		for _, saves := range []bool{false, true} {
			s := newShop()
			s.saves = saves
			s.play(time.Hour, nil)
			s.play(c.before, map[string]float64{"cart": 1.5})
			fault := s.now
			s.failing, s.silent = c.failing, c.silent
			s.play(6*time.Minute, map[string]float64{"cart": c.slower})
			all := s.tracker.Incidents()
			if len(all) != c.want || !all[len(all)-1].IsOpen() {
				t.Fatalf("%s: incidents %v, want %d", c.name, s.summary(fault), c.want)
			}
			if c.want == 1 {
				continue
			}
			first, x := all[0].Last(), &all[1].Suspects[0]
			if first.Why != incident.Replaced || first.Into != all[1].ID || first.At != all[1].Opened() {
				t.Errorf("%s: the first incident: %+v", c.name, first)
			}
			if s.table.Text(x.Service) != "cart" || c.failing != "" && x.Errors <= x.AddedTime() {
				t.Errorf("%s: the first suspect of the second incident: %+v", c.name, x)
			}
			s.failing, s.silent = "", ""
			s.play(10*time.Minute, nil)
			if last := s.tracker.Incidents()[1].Last(); last.Why != incident.Recovered || last.Calls == 0 {
				t.Errorf("%s: after the recovery: %+v", c.name, last)
			}
		}
	}
}

// TestFewCalls makes a service fail that gets two calls a minute. Four good calls in two minutes don't show that it has
// recovered, so the incident stays open until there are ten.
func TestFewCalls(t *testing.T) {
	s := newShop()
	s.rare = 30
	s.play(2*time.Hour, nil)
	s.failing = "rare"
	s.play(15*time.Minute, nil)
	s.failing = ""
	s.play(20*time.Minute, nil)
	all := s.tracker.Incidents()
	if len(all) != 1 {
		t.Fatalf("%d incidents, want one", len(all))
	}
	if x := all[0].Last(); x.Why != incident.Recovered || x.Calls < 10 || x.Calls > 15 {
		t.Errorf("it ended with %+v, want ten calls or a few more", x)
	}
}
