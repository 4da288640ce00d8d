package history

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestServices has web call cart and shop by its address, and an unrelated pair of services. Only web and shop emit
// spans.
func TestServices(t *testing.T) {
	table := &trace.Table{}
	v := newServices()
	call := func(caller, called string) {
		v.calls[servicePair{v.add(table.Symbol(caller)), v.add(table.Symbol(called))}] = true
	}
	call("web", "cart")
	call("web", "shop.default.svc:7070")
	call("shop.default.svc:7070", "db")
	call("batch", "files")
	for _, emitter := range []string{"web", "shop"} {
		v.sites[v.add(table.Symbol(emitter))]++
	}
	web, cart, db, batch := table.Symbol("web"), table.Symbol("cart"), table.Symbol("db"), table.Symbol("batch")
	if !v.Adjacent(cart, web) || v.Adjacent(web, db) || !v.Related(cart, db) || v.Related(web, batch) {
		t.Error("services are related that do not call each other, or the reverse")
	}
	shop := table.Symbol("shop.default.svc:7070")
	want := slices.Sorted(slices.Values([]trace.Symbol{db, shop, web, batch}))
	if got := v.Callers(db, batch); !slices.Equal(got, want) {
		t.Errorf("callers: %v", got)
	}
	service, opaque := v.resolve(table)
	for name, want := range map[string]struct {
		name   string
		opaque bool
	}{
		"web": {"web", false}, "shop": {"shop", false}, "shop.default.svc:7070": {"shop", true}, "cart": {"cart", true},
	} {
		number := v.Number(table.Symbol(name))
		if got := v.Names()[service[number]]; got != table.Symbol(want.name) || opaque[number] != want.opaque {
			t.Errorf("%s is %s, opaque: %t; want %v", name, table.Text(got), opaque[number], want)
		}
	}
}
