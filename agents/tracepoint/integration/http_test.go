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

// propagator propagates context between services.
var propagator = propagation.TraceContext{}

// TestHTTP sends requests from a shop to a cart over HTTP, both instrumented with otelhttp. The client has no
// configured provider, so it uses the provider of the span in its context.
func TestHTTP(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	inShop, inCart := shop.Span("order"), cart.Span("price")

	server := httptest.NewServer(otelhttp.NewHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		run(r.Context(), inCart)
	}), "cart", otelhttp.WithTracerProvider(cart.provider), otelhttp.WithPropagators(propagator)))
	defer server.Close()
	client := &http.Client{
		Transport: otelhttp.NewTransport(http.DefaultTransport, otelhttp.WithPropagators(propagator)),
	}

	front := otelhttp.NewHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, end := inShop.Start(r.Context())
		defer end()
		get(ctx, t, client, server.URL)
	}), "shop", otelhttp.WithTracerProvider(shop.provider), otelhttp.WithPropagators(propagator))
	request := func() {
		front.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		waitForSpans(t, cart, 1)
	}

	request()
	keys := []string{"kind"}
	expect(t, `
		GET kind=server plan=0
		  GET kind=server plan=0
		`, keys, shop, cart)

	all := append(shop.ids(), cart.ids()...)
	shop.apply(t, planOf(1, all...))
	cart.apply(t, planOf(1, all...))
	request()
	expect(t, `
		GET arm=a kind=server plan=1
		  order kind=internal tp=shop/order
		    HTTP GET kind=client tp=shop/go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp/HTTP GET
		      GET arm=a kind=server plan=1
		        price kind=internal tp=cart/price
		`, keys, shop, cart)
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

// waitForSpans waits until s has recorded n spans: servers end their spans after the client has the response.
func waitForSpans(t *testing.T, s *service, n int) {
	t.Helper()
	for range 60_000 {
		if len(s.record.Ended()) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d spans, want %d", len(s.record.Ended()), n)
}
