package integration_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
)

// propagator carries requests from one service to the next.
var propagator = propagation.TraceContext{}

// TestHTTP has a shop call a cart over HTTP, both instrumented with otelhttp. The client asks the span of its context for a
// provider, because it is told none.
func TestHTTP(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	inShop, inCart := shop.Span("order"), cart.Span("price")

	server := httptest.NewServer(otelhttp.NewHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		work(r.Context(), inCart)
	}), "cart", otelhttp.WithTracerProvider(cart.provider), otelhttp.WithPropagators(propagator)))
	defer server.Close()
	client := &http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport, otelhttp.WithPropagators(propagator))}

	front := otelhttp.NewHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, end := inShop.Start(r.Context())
		defer end()
		get(ctx, t, client, server.URL)
	}), "shop", otelhttp.WithTracerProvider(shop.provider), otelhttp.WithPropagators(propagator))
	request := func() {
		front.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		waitForSpans(t, cart, 1)
	}

	request()
	expect(t, "without a plan", `
		GET server plan 0
		  GET server plan 0
		`, shop, cart)

	all := append(shop.ids(), cart.ids()...)
	apply(t, shop, planOf(1, all...))
	apply(t, cart, planOf(1, all...))
	request()
	waitForSpans(t, cart, 2)
	expect(t, "with everything on", `
		GET server plan 1
		  order internal [shop/order]
		    HTTP GET client [shop/go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp/HTTP GET]
		      GET server plan 1
		        price internal [cart/price]
		`, shop, cart)
}

func get(ctx context.Context, t *testing.T, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// waitForSpans waits for spans that servers end after the client has its answer.
func waitForSpans(t *testing.T, s *service, n int) {
	t.Helper()
	for range 1000 {
		if len(s.record.Ended()) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d spans, want %d", len(s.record.Ended()), n)
}
