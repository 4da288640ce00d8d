package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

func TestSpans(t *testing.T) {
	s := newService("shop")
	outer, inner := s.Span("outer"), s.Span("inner")
	size := s.Int("size")
	request := func() {
		ctx, end := s.enter(t.Context(), "GET /")
		defer end.End()
		ctx, endOuter := outer.Start(ctx)
		defer endOuter()
		ctx, endInner := inner.Start(ctx)
		defer endInner()
		size.Set(ctx, 3)
	}
	request()
	s.expect(t, `
		GET / plan=0
		`, "size")

	s.apply(t, planOf(1, inner.ID()))
	request()
	s.expect(t, `
		GET / arm=a plan=1
		  inner tp=shop/inner
		`, "size")

	s.apply(t, planOf(2, outer.ID(), "shop/unknown", size.Point().ID()))
	request()
	s.expect(t, `
		GET / arm=a plan=2
		  outer size=3 tp=shop/outer
		`, "size")

	s.apply(t, planOf(3, outer.ID(), inner.ID()))
	request()
	s.expect(t, `
		GET / arm=a plan=3
		  outer tp=shop/outer
		    inner tp=shop/inner
		`, "size")

	s.apply(t, nil)
	request()
	s.expect(t, `
		GET / plan=0
		`, "size")
}

// TestDisabledIsFree checks that disabled tracepoints return the context itself and don't allocate.
func TestDisabledIsFree(t *testing.T) {
	s := newService("shop")
	p, size := s.Span("p"), s.String("size")
	ctx, entry := s.enter(t.Context(), "GET /")
	defer entry.End()
	if got, _ := p.Start(ctx); got != ctx {
		t.Error("a disabled tracepoint changes the context")
	}
	type key struct{}
	wrapped := context.WithValue(ctx, key{}, "x")
	number, share, large := s.Int("number"), s.Float("share"), s.Bool("large")
	n := 1000.0
	if n := testing.AllocsPerRun(100, func() {
		n++
		inner, end := p.Start(wrapped)
		size.Set(inner, "large")
		number.Set(inner, int(n))
		share.Set(inner, n)
		large.Set(inner, n > 0)
		end()
	}); n != 0 {
		t.Errorf("disabled tracepoints and variables allocate %v times", n)
	}
}

// TestProvider checks that plans enable the spans of existing instrumentation.
func TestProvider(t *testing.T) {
	s := newService("shop")
	native := s.Span("native")
	request := func() {
		tracer := s.provider.Tracer("lib")
		ctx, entry := s.enter(t.Context(), "GET /")
		defer entry.End()
		ctx, client := tracer.Start(ctx, "call", trace.WithSpanKind(trace.SpanKindClient))
		client.SetAttributes(attribute.Bool("seen", true))
		if got := trace.SpanFromContext(ctx); got != client {
			t.Errorf("the context holds %v instead of the started span", got)
		}
		if client.TracerProvider() != s.provider {
			t.Error("the span does not return the wrapping provider")
		}
		ctx, end := native.Start(ctx)
		_, query := tracer.Start(ctx, "query")
		query.End()
		end()
		client.End()
		trace.SpanFromContext(ctx).End() // like otelgrpc, which ends the span that it finds in the context
	}
	request()
	s.expect(t, `
		GET / plan=0
		`)
	s.apply(t, planOf(1, "shop/lib/query", "shop/native"))
	request()
	s.expect(t, `
		GET / arm=a plan=1
		  native tp=shop/native
		    query tp=shop/lib/query
		`)
	s.apply(t, planOf(2, "shop/lib/call"))
	request()
	s.expect(t, `
		GET / arm=a plan=2
		  call seen=true tp=shop/lib/call
		`, "seen")
	var ids []string
	for _, tp := range s.Catalogue() {
		ids = append(ids, fmt.Sprint(tp.ID, " ", tp.SpanKind, " ", tp.Baseline))
	}
	want := []string{
		"shop/baseline/entry/GET / server true", "shop/lib/call client false",
		"shop/lib/query internal false", "shop/native internal false",
	}
	if !slices.Equal(ids, want) {
		t.Errorf("catalogue %q, want %q", ids, want)
	}
}

// TestConsistentAcrossServices sends requests through two services that receive their plans at different times.
func TestConsistentAcrossServices(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	for _, s := range []*service{shop, cart} {
		s.Span("work")
	}
	request := func() {
		ctx, entry := shop.enter(t.Context(), "GET /")
		defer entry.End()
		ctx, end := shop.Span("work").Start(ctx)
		defer end()
		ctx, entry = cart.enter(propagate(ctx), "GET /cart")
		defer entry.End()
		_, end = cart.Span("work").Start(ctx)
		end()
	}
	expect := func(inShop, inCart string) {
		t.Helper()
		shop.expect(t, inShop)
		cart.expect(t, inCart)
	}
	plan := func(version int64) *protocol.Plan { return planOf(version, "cart/work", "shop/work") }

	cart.apply(t, plan(1)) // the first service has no plan yet, so nothing is enabled
	request()
	expect("GET / plan=0\n", "GET /cart plan=0\n")

	shop.apply(t, plan(1))
	request()
	expect("GET / arm=a plan=1\n  work tp=shop/work\n", "GET /cart arm=a plan=1\n  work tp=cart/work\n")

	shop.apply(t, plan(2)) // the second service doesn't have this plan yet
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart plan=0\n")

	cart.apply(t, plan(2))
	cart.apply(t, plan(3)) // the second service still has the previous plan
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart arm=a plan=2\n  work tp=cart/work\n")
	cart.apply(t, plan(4))
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart plan=0\n")
}
