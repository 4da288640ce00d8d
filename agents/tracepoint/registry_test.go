package tracepoint_test

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// planOf returns a plan that enables the given tracepoints for all requests.
func planOf(version int64, ids ...string) *protocol.Plan {
	slices.Sort(ids)
	list := make([]protocol.Enabled, len(ids))
	for i, id := range ids {
		list[i] = protocol.Enabled{ID: id, Rate: 1}
	}
	arm := protocol.Arm{Name: "a", Share: 1, Tracepoints: list}
	return &protocol.Plan{
		Protocol: protocol.Version, Version: version, LeaseSeconds: 60, Arms: []protocol.Arm{arm},
	}
}

// enabled reports whether the tracepoint is enabled for a request that enters the service.
func enabled(t *testing.T, p *tracepoint.Point) bool {
	t.Helper()
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), sc)
	started, end := p.Start(ctx)
	end()
	return started != ctx
}

func TestApply(t *testing.T) {
	r := tracepoint.NewRegistry("shop")
	order, price := r.Span("order"), r.Span("price")
	expect := func(when string, wantOrder, wantPrice bool) {
		t.Helper()
		if got := enabled(t, order); got != wantOrder {
			t.Errorf("%s: order is enabled: %v, want %v", when, got, wantOrder)
		}
		if got := enabled(t, price); got != wantPrice {
			t.Errorf("%s: price is enabled: %v, want %v", when, got, wantPrice)
		}
	}
	expect("without a plan", false, false)
	for _, c := range []struct {
		when                 string
		plan                 *protocol.Plan
		wantErr              bool
		wantOrder, wantPrice bool
	}{
		{"with a plan", planOf(1, order.ID()), false, true, false},
		{"after an invalid plan", &protocol.Plan{}, true, true, false},
		{"with the next plan", planOf(2, price.ID()), false, false, true},
		{"back at the baseline", nil, false, false, false},
	} {
		if err := r.Apply(c.plan); (err != nil) != c.wantErr {
			t.Errorf("%s: error %v", c.when, err)
		}
		expect(c.when, c.wantOrder, c.wantPrice)
	}
}

// TestCatalogue checks that the catalogue lists every tracepoint once, with its hints and a unique ID.
func TestCatalogue(t *testing.T) {
	r := tracepoint.NewRegistry(tracepoint.UnknownService)
	order := r.Span("order", tracepoint.WithOwner("GET /order", trace.SpanKindServer),
		tracepoint.WithCode("shop.Order"))
	r.Span("price", tracepoint.WithParent(order))
	r.Int("price", tracepoint.WithParent(order))
	if r.Span("order") != order {
		t.Error("a second call of Span with the same name returns a different tracepoint")
	}
	r.SetService("shop")
	var got []string
	for _, tp := range r.Catalogue() {
		fields := []string{tp.ID, string(tp.Kind), tp.Operation, tp.Parent, tp.Owner, string(tp.OwnerKind), tp.Code}
		got = append(got, strings.Join(fields, "|"))
	}
	want := []string{
		"shop/order|span|order||GET /order|server|shop.Order", "shop/price|span|price|shop/order|||",
		"shop/price#2|variable|price|shop/order|||",
	}
	if !slices.Equal(got, want) {
		t.Errorf("catalogue %q, want %q", got, want)
	}
	if order.ID() != "shop/order" {
		t.Errorf("ID is %q, want shop/order", order.ID())
	}
}

func TestInvalidNamesPanic(t *testing.T) {
	for _, name := range []string{"", "a\nb", strings.Repeat("x", 129), "\xff"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Span(%q) does not panic", name)
				}
			}()
			tracepoint.NewRegistry("shop").Span(name)
		}()
	}
}
