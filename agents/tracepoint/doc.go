// Package tracepoint makes instrumentation that Sibyl switches on where it looks for the cause of slow requests, and that costs
// next to nothing while it is off.
//
//	var price = tracepoint.Span("cart.price") // once; off
//
//	func Price(ctx context.Context, items []Item) {
//		ctx, end := price.Start(ctx)
//		defer end()
//		…
//
// While the tracepoint is off, Start is an atomic load, allocates nothing and returns ctx itself: spans below become children of
// the nearest span that is on. While it is on, it is a span of OpenTelemetry. [Int] and its like capture values on demand, and
// [Provider] makes the spans of existing OpenTelemetry instrumentation switchable. [Connect] gets plans from Sibyl;
// [Registry.Apply] applies one by hand.
//
// What is on for a request is decided once, by the first process that it gets to, and travels in the tracestate under the
// key "sibyl", so that a request is instrumented everywhere alike. A request keeps the set that it began with when the plan
// changes while it runs.
//
// Everything is safe for concurrent use.
package tracepoint
