package shop

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSites: each location of each fault is a function of its service or a call made by the service. The shop has at
// least 150 functions in at least four levels.
func TestSites(t *testing.T) {
	names, total, deepest := make(map[string][]string), 0, 0
	for _, name := range slices.Compact(Services()) {
		s := &service{
			name:     name,
			dir:      t.TempDir(),
			calls:    make(map[string]*atomic.Bool),
			archives: make(map[string]*archive),
		}
		if err := s.define(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for _, f := range s.functions {
			names[name] = append(names[name], f.name)
		}
		total += len(s.functions)
		for _, e := range s.endpoints {
			deepest = max(deepest, 1+depth(e.inside))
		}
		for call := range s.calls {
			names[name] = append(names[name], call)
		}
	}
	if total < 150 || deepest < 4 {
		t.Errorf("%d functions in %d levels, want at least 150 in 4", total, deepest)
	}
	for _, kind := range AllFaults() {
		for seed := range uint64(len(sites[kind])) {
			f, err := newFault(kind, seed)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(names[f.site.Service], f.site.Operation) {
				t.Errorf("%s %d: %s has no %s", kind, seed, f.site.Service, f.site.Operation)
			}
		}
	}
	if _, err := newFault(None, 1); err == nil {
		t.Error("newFault(None) succeeds")
	}
}

func depth(functions []*function) int {
	deepest := 0
	for _, f := range functions {
		deepest = max(deepest, 1+depth(f.inside))
	}
	return deepest
}

// TestRequests: equal seeds give equal requests, and random choices of a request are independent of each other.
func TestRequests(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	first := NewRequest(a)
	if d := cmp.Diff(first, NewRequest(b)); d != "" {
		t.Error(d)
	}
	if cmp.Equal(first, NewRequest(a)) {
		t.Error("two requests are equal")
	}
	if x := first.chance("coupon"); x < 0 || x >= 1 || x != first.chance("coupon") || x == first.chance("related") {
		t.Errorf("chance %v, want a number in [0, 1) that depends on the name", x)
	}
}

// TestLocated: a fault is located by its operation. A call may have a target; a statement without one doesn't show its
// table.
func TestLocated(t *testing.T) {
	call := &Truth{Edge: Edge{Service: "payment", Operation: httpCall}}
	whole := &Truth{Edge: Edge{Service: "search", Operation: "rank.score"}, Whole: true}
	query := &Truth{Edge: Edge{Service: "pricing", Operation: "rates.select"}, Table: "rates"}
	audit := &Truth{Edge: Edge{Service: "orders", Operation: "audit.append"}, Waits: []string{"sync"}}
	for _, c := range []struct {
		truth *Truth
		edge  Edge
		want  bool
	}{
		{audit, Edge{Service: "orders", Operation: "waiting for the disk (fsync)"}, true},
		{audit, Edge{Service: "orders", Operation: "waiting for a lock"}, false},
		{audit, Edge{Service: "cart", Operation: "waiting for the disk (fsync)"}, false},
		{call, Edge{Service: "payment", Operation: "HTTP POST"}, true},
		{call, Edge{Service: "payment", Operation: "POST", Target: "{ip}:8080"}, true},
		{call, Edge{Service: "payment", Operation: "POST"}, false},
		{call, Edge{Service: "orders", Operation: "HTTP POST"}, false},
		{whole, Edge{Service: "search", Operation: "POST /query"}, true},
		{whole, Edge{Service: "gateway", Target: "search POST /query"}, true},
		{whole, Edge{Service: "gateway", Operation: "find.query"}, false},
		{query, Edge{Service: "pricing", Operation: "rates.select"}, true},
		{query, Edge{Service: "pricing", Operation: "SELECT", Target: "sqlite pricing.rates"}, true},
		{query, Edge{Service: "pricing", Operation: "SELECT", Target: "sqlite pricing.prices"}, false},
		{query, Edge{Service: "pricing", Operation: "SELECT"}, false},
	} {
		if got := c.truth.Located(&c.edge); got != c.want {
			t.Errorf("%s for %s: located %t, want %t", &c.edge, &c.truth.Edge, got, c.want)
		}
	}
}
