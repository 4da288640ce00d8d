package trace

import "testing"

// A hop without a name stays a hop even if spans of an unknown service were rejected. A service with spans is not a
// hop.
func TestHopsAndRejectedSpans(t *testing.T) {
	table := &Table{}
	shop, stock, cart := table.Symbol("shop"), table.Symbol("stock"), table.Symbol("cart")
	for _, peer := range []Op{
		0, table.Op(table.Symbol("proxy"), 0, External),
		table.Op(table.Symbol("cart.default.svc:80"), 0, External),
	} {
		var c Coverage
		c.Judge(&Span{Service: cart, End: 1}, false)
		c.LeaveSpans(1, Malformed)
		c.Traces, c.Incomplete = 10, 10
		for range 10 {
			c.CountHop(Hop{shop, stock}, peer)
		}
		hops := 0
		for range c.Hops(table, &c) {
			hops++
		}
		want, lost := 1, int64(0)
		if table.HostOf(table.Operation(peer).Service) == cart {
			want, lost = 0, 10
		}
		if hops != want || c.Lost(table) != lost {
			t.Errorf("%s: %d hops and %d traces with lost spans, want %d and %d",
				table.ServiceName(peer), hops, c.Lost(table), want, lost)
		}
	}
}

// A single span that got lost does not hide a hop between the same services, whatever the order of names.
func TestLostSpanBesideHop(t *testing.T) {
	table := &Table{}
	shop, stock, cart := table.Symbol("shop"), table.Symbol("stock"), table.Symbol("cart")
	proxy := table.Op(table.Symbol("proxy"), 0, External)
	var c Coverage
	c.Judge(&Span{Service: cart, End: 1}, false)
	for range 100 {
		c.CountHop(Hop{shop, stock}, proxy)
	}
	for _, name := range []string{"cart", "cart.a", "cart.b", "cart.c"} { // of various hashes
		c.CountHop(Hop{shop, stock}, table.Op(table.Symbol(name), 0, External))
	}
	found := 0
	for _, x := range c.Hops(table, &c) {
		if found++; x.Requests != 100 || x.Peer != proxy {
			t.Errorf("%d requests passed %s, want 100 and proxy", x.Requests, table.ServiceName(x.Peer))
		}
	}
	if found != 1 {
		t.Errorf("%d hops, want 1", found)
	}
}
