package shop

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every place of every fault is a function of the service, or a call that it makes, and the shop is as large as is promised.
func TestSites(t *testing.T) {
	names, total, deepest := make(map[string][]string), 0, 0
	for _, name := range slices.Compact(Services()) {
		s := &service{name: name, dir: t.TempDir(), calls: make(map[string]*atomic.Bool)}
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
		t.Errorf("%d functions in %d levels", total, deepest)
	}
	for _, kind := range Faults() {
		for seed := range uint64(len(sites[kind])) {
			f, err := newFault(kind, seed)
			if err != nil {
				t.Fatal(err)
			}
			place := f.site.Operation
			if kind == ThirdParty {
				place = Outside + f.site.where
			}
			if !slices.Contains(names[f.site.Service], place) {
				t.Errorf("%s %d: %s has no %s", kind, seed, f.site.Service, place)
			}
		}
	}
	if _, err := newFault(None, 1); err == nil {
		t.Error("there is a fault that is none")
	}
}

func depth(functions []*function) int {
	deepest := 0
	for _, f := range functions {
		deepest = max(deepest, 1+depth(f.inside))
	}
	return deepest
}

// Equal seeds make equal customers.
func TestRequests(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	first := NewRequest(a)
	if d := cmp.Diff(first, NewRequest(b)); d != "" {
		t.Error(d)
	}
	if cmp.Equal(first, NewRequest(a)) {
		t.Error("all requests are equal")
	}
	if x := first.chance("coupon"); x < 0 || x >= 1 || x != first.chance("coupon") || x == first.chance("related") {
		t.Errorf("a chance of %v", x)
	}
}
