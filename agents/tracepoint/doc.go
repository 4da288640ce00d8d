// Package tracepoint provides instrumentation that Sibyl enables where it searches for the cause of slow requests.
// Disabled instrumentation costs next to nothing.
//
//	var price = tracepoint.Span("cart.price") // registered once, disabled
//
//	func Price(ctx context.Context, items []Item) {
//		ctx, end := price.Start(ctx)
//		defer end()
//		…
//
// While the tracepoint is disabled, Start is an atomic load: it does not allocate and returns ctx itself, so spans
// below become children of the nearest enabled span. While the tracepoint is enabled, Start starts an OpenTelemetry
// span. [Int] and its variants capture values on demand, and [Provider] makes the spans of existing OpenTelemetry
// instrumentation switchable. [Connect] fetches plans from Sibyl; [Registry.Apply] applies a plan directly.
//
// The first process that a request reaches decides which tracepoints are enabled for it. The decision travels in the
// tracestate, under the key "sibyl", so that all services instrument the request consistently. A plan that arrives
// while a request runs does not affect that request.
//
// All functions and methods are safe for concurrent use.
package tracepoint
