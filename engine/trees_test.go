package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// chain returns a request with n nested contexts that belong to number i.
func chain(seen trace.Nanos, i, n int) cct.Observation {
	o := cct.Observation{Seen: seen}
	var above trace.Context
	for k := range n {
		op := trace.Op(i*1000 + k + 1)
		x := cct.ContextCount{Context: above.Child(op), Parent: above, Op: op, Count: 1}
		o.Contexts, above = append(o.Contexts, x), x.Context
	}
	return o
}

// All trees together have a limited number of contexts and of built nodes, also after a restart with a lower limit.
// Contexts without requests for hours make room for others.
func TestTreesAreBounded(t *testing.T) {
	const limit, types = 100, 40
	table := &trace.Table{}
	trees := newTrees(table, newOffers(table, 0), limit)
	observe := func(now trace.Nanos) {
		for i := range types {
			trees.observe(analysis.Hash{Lo: uint64(i)}, chain(now, i, 10))
		}
	}
	now := trace.Nanos(1)
	observe(now)
	const room = limit - 10 // for contexts; ten sets of tracepoints, which are empty, fit as well
	if trees.Contexts() != room || trees.Refused() != types*10-room {
		t.Errorf("%d contexts, %d refused; want %d and %d", trees.Contexts(), trees.Refused(), room, types*10-room)
	}
	built := make(map[analysis.Hash]*cct.Tree)
	trees.addOthers(built)
	if len(built) != types || trees.nodes != room {
		t.Errorf("%d trees with %d nodes are built, want %d with %d", len(built), trees.nodes, types, room)
	}
	trees.observe(analysis.Hash{}, chain(now, 0, 10))
	trees.room.Limit = 50
	if len(trees.Of(analysis.Hash{Lo: 8}).Nodes) != 10 || trees.nodes != 50 {
		t.Errorf("%d nodes remain beyond a limit of 50", trees.nodes)
	}

	var saved savedCore
	trees.save(&saved)
	restored := newTrees(table, newOffers(table, 0), 50)
	if err := restored.restore(&saved); err != nil {
		t.Fatal(err)
	}
	if restored.Contexts() != 45 {
		t.Errorf("%d contexts were restored, want 45", restored.Contexts())
	}

	later := now.Add(3 * time.Hour)
	all := func(analysis.Hash) bool { return true }
	restored.age(later, all)
	if restored.Contexts() != 0 {
		t.Errorf("%d old contexts make no room", restored.Contexts())
	}
	restored.observe(analysis.Hash{Lo: 30}, chain(later, 30, 10))
	restored.Of(analysis.Hash{Lo: 30})
	restored.age(later, func(analysis.Hash) bool { return false })
	if restored.Contexts() != 0 || restored.nodes != 0 {
		t.Errorf("%d contexts and %d nodes of unknown types", restored.Contexts(), restored.nodes)
	}
}

// The core takes no more tracepoints than the limit, also from a state that was saved with a higher one. A catalogue
// that is replaced in the same report makes room.
func TestOffersAreBounded(t *testing.T) {
	announced := func(prefix string, n int) (list []search.Announced) {
		for i := range n {
			list = append(list, search.Announced{ID: prefix + string(rune('a'+i)), Name: "step"})
		}
		return list
	}
	table := &trace.Table{}
	offers := newOffers(table, 10)
	apply := func(at trace.Nanos, all ...search.Catalogue) {
		offers.apply(&search.Feedback{At: at, Catalogues: all})
	}
	apply(1, search.Catalogue{Service: "cart", Tracepoints: announced("c", 4)},
		search.Catalogue{Service: "shop", Tracepoints: announced("s", 6)})
	apply(2, search.Catalogue{Service: "cart", Tracepoints: announced("c", 8)},
		search.Catalogue{Service: "shop", Tracepoints: announced("t", 2)})
	if n := len(slices.Collect(offers.Catalogue())); n != 10 || len(offers.services[table.Symbol("cart")]) != 8 {
		t.Errorf("%d tracepoints, want 8 of cart and 2 of shop", n)
	}
	for at := range trace.Nanos(20) {
		apply(3+at, search.Catalogue{Service: "cart", Tracepoints: announced(string(rune('A'+at)), 20)})
		if n := len(slices.Collect(offers.Catalogue())); n != 10 || len(offers.removed) > 10 {
			t.Fatalf("%d tracepoints, %d removed ones; want at most 10 each", n, len(offers.removed))
		}
	}
	var saved savedCore
	offers.save(&saved)
	smaller := newOffers(table, 5)
	if err := smaller.restore(&saved); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(smaller.Catalogue())); n != 5 {
		t.Errorf("%d tracepoints were restored, want 5", n)
	}
}
