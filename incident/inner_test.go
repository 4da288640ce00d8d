package incident_test

import (
	"testing"
	"time"
)

// deploys change the INTERNAL spans of cart.
var deploys = []struct {
	name          string
	before, after []string
}{
	{"the first span", nil, []string{"price"}},
	{"one more span", []string{"price"}, []string{"price", "discount"}},
	{"a span renamed", []string{"price"}, []string{"cost"}},
	{"a span removed", []string{"price", "discount"}, []string{"price"}},
	{"all spans removed", []string{"price", "discount"}, nil},
}

// deployed returns a shop after a deploy that changes the spans inside cart. If announced, the deploy has a new
// version.
func deployed(before, after []string, announced bool) *shop {
	s := newShop()
	s.inner = before
	if announced {
		s.version = "1.0"
	}
	s.play(time.Hour, nil)
	s.inner = after
	if announced {
		s.version = "2.0"
	}
	return s
}

// TestInnerSpansChange deploys a version of cart with other inner spans but the same times. That isn't an incident.
func TestInnerSpansChange(t *testing.T) {
	for _, d := range deploys {
		for _, announced := range []bool{false, true} {
			s := deployed(d.before, d.after, announced)
			s.play(30*time.Minute, nil)
			if got := s.summary(0); got != nil {
				t.Errorf("%s, announced %t: incidents %v", d.name, announced, got)
			}
		}
	}
}

// TestInnerSpansChangeSlower deploys a version of cart with other inner spans, and makes it slower from the deploy on
// or some time later. Within three minutes, an incident of cart opens because of cart's own time.
func TestInnerSpansChangeSlower(t *testing.T) {
	for _, d := range deploys {
		for _, later := range []time.Duration{0, time.Minute, 15 * time.Minute, time.Hour} {
			for _, announced := range []bool{false, true} {
				s := deployed(d.before, d.after, announced)
				s.play(later, nil)
				fault := s.now
				s.play(3*time.Minute, map[string]float64{"cart": 1.8})
				all := s.tracker.Incidents()
				if len(all) != 1 {
					t.Errorf("%s, slower after %v, announced %t: incidents %v",
						d.name, later, announced, s.summary(fault))
					continue
				}
				first := &all[0].Suspects[0]
				if name := s.table.Text(first.Service); name != "cart" || first.Own < 0.15 {
					t.Errorf("%s, slower after %v: %s first, with own time %.2f of %.2f",
						d.name, later, name, first.Own, first.Score)
				}
				if off := all[0].Onset.Sub(fault); later == 0 && off.Abs() > 30*time.Second {
					t.Errorf("%s, slower after %v: the onset is off by %v", d.name, later, off)
				}
				s.play(20*time.Minute, map[string]float64{"cart": 1.8})
				if all := s.tracker.Incidents(); len(all) != 1 || all[0].Closed() != 0 {
					t.Errorf("%s, slower after %v: while it lasts %v", d.name, later, s.summary(fault))
				}
			}
		}
	}
}

// TestFailureAroundInnerSpans lets cart fail before its innermost span. The spans inside succeed with another call
// flow, and the incident reports the failures.
func TestFailureAroundInnerSpans(t *testing.T) {
	for _, inner := range [][]string{nil, {"price", "discount"}, {"load", "price", "discount"}} {
		s := newShop()
		s.inner = inner
		s.play(time.Hour, nil)
		s.failing = "cart"
		s.play(5*time.Minute, nil)
		all := s.tracker.Incidents()
		if len(all) != 1 {
			t.Errorf("with the spans %v: %d incidents, want 1", inner, len(all))
			continue
		}
		first := &all[0].Suspects[0]
		if name := s.table.Text(first.Service); name != "cart" || first.Errors < 0.03 || first.Shape > 0.01 {
			t.Errorf("with the spans %v: %s first, errors %.3f, call flow %.3f", inner, name, first.Errors, first.Shape)
		}
	}
}
