package incident_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSlowNodeLater slows down a rare service on a node where others are slow already, long after their incident
// opened. It joins that incident.
func TestSlowNodeLater(t *testing.T) {
	s := newShop()
	s.nodes, s.rare = true, 10
	s.play(time.Hour, nil)
	fault := s.now
	s.play(10*time.Minute, map[string]float64{"cart-2": 5, "search-2": 5})
	s.play(10*time.Minute, map[string]float64{"cart-2": 5, "search-2": 5, "rare-2": 8})
	all := s.tracker.Incidents()
	if got := s.summary(fault); len(got) == 0 || len(all[0].Shared.Services) != 3 ||
		slices.ContainsFunc(got, func(x string) bool { return strings.HasPrefix(x, "rare") }) {
		t.Errorf("incidents %v, want one with three services", got)
	}
}

// TestSlowNode slows down the pods that two services, which are not neighbours in the call graph, have on one of four
// nodes. One incident names the node.
func TestSlowNode(t *testing.T) {
	s := newShop()
	s.nodes = true
	s.play(time.Hour, nil)
	fault := s.now
	s.play(10*time.Minute, map[string]float64{"cart-2": 5, "search-2": 5})
	all := s.tracker.Incidents()
	open := 0
	for i := range all {
		if all[i].Closed() == 0 {
			open++
		}
	}
	if open != 1 {
		t.Fatalf("incidents %v, want one open", s.summary(fault))
	}
	shared := all[0].Shared
	if s.table.Text(shared.Value) != "node-2" || len(shared.Services) != 2 || shared.Part < 0.9 {
		t.Errorf("the shared place is %s %+v, want node-2 with two services", s.table.Text(shared.Value), shared)
	}
	if first := all[0].Suspects[0].Instances; len(first) == 0 || s.table.Text(first[0].Value) != "node-2" {
		t.Errorf("the instances of the first suspect are %+v, want node-2 first", first)
	}
}
