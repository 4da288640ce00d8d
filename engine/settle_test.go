package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
)

// changed returns the open problems that aren't chronic.
func (c *checkout) changed() (all []detect.Problem) {
	for _, p := range c.core.View().Problems.Open() {
		if p.Onset == detect.Changed {
			all = append(all, p)
		}
	}
	return all
}

// TestLastingChangeBecomesNormal slows requests down for good. The incident ends when its history includes the change.
// The problem ends after a day, and the new behaviour is watched like any other.
func TestLastingChangeBecomesNormal(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many hours")
	}
	c := newCheckout()
	c.play(time.Hour)
	c.slow, c.rate = 0.15, 1
	c.play(2 * time.Hour)
	if len(c.changed()) == 0 {
		t.Fatal("no problem")
	}
	c.play(c.changed()[0].Opened.Add(incident.Day - time.Minute).Sub(c.now))
	if len(c.changed()) == 0 ||
		slices.ContainsFunc(c.core.View().Incidents.All(), func(x engine.Incident) bool { return x.IsOpen() }) {
		t.Fatalf("within a day: problems %v, incidents %v, want an open problem only", c.changed(), c.incidents(start))
	}
	c.play(20 * time.Minute)
	if got := c.changed(); len(got) > 0 {
		t.Fatalf("after a day: %v", got)
	}
	c.slow = 0.5
	c.play(time.Hour)
	if len(c.changed()) == 0 {
		t.Error("no problem after a further change")
	}
}

// TestAcceptedProblems accepts an incident, which also ends its problems.
func TestAcceptedProblems(t *testing.T) {
	c := newCheckout()
	c.play(time.Hour)
	c.slow = 0.6
	c.play(10 * time.Minute)
	all := c.core.View().Incidents.All()
	if len(all) != 1 || len(all[0].Problems) == 0 || len(c.changed()) == 0 {
		t.Fatalf("incidents %+v, problems %v, want one of each", c.incidents(start), c.changed())
	}
	c.core.Apply(&engine.Change{Accept: all[0].ID, By: "Ada"})
	c.play(time.Hour)
	if got := c.changed(); len(got) > 0 || c.core.View().Incidents.All()[0].Closed() == 0 {
		t.Errorf("problems %v, incidents %v", got, c.incidents(start))
	}
}
