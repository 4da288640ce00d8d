package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// stackText formats stacks as a tree with the time in each frame itself.
func stackText(list []protocol.Stacks) string {
	var b strings.Builder
	for _, s := range list {
		depth := make([]int, len(s.Frames))
		for i, f := range s.Frames {
			name := s.Operation
			if i > 0 {
				name, depth[i] = f.ID, depth[f.Caller]+1
			}
			fmt.Fprintf(&b, "%s%s %s\n", strings.Repeat("  ", depth[i]), name, time.Duration(f.Nanos))
		}
	}
	return b.String()
}

// The stacks come from the slowest quarter of requests. They separate time in calls from the caller's own, whether it
// runs or waits, and whether a tracepoint is enabled or not.
func TestStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("shop")
		outer, inner, other := s.Span("outer"), s.Span("inner"), s.Span("other")
		request := func(wait time.Duration) {
			ctx, span := s.enter(t.Context(), "GET /")
			defer span.End()
			time.Sleep(time.Millisecond)
			ctx, endOuter := outer.Start(ctx)
			defer endOuter()
			for range 2 {
				_, endInner := inner.Start(ctx)
				time.Sleep(wait)
				endInner()
			}
			_, call := s.provider.Tracer("test").Start(ctx, "call", trace.WithSpanKind(trace.SpanKindClient))
			time.Sleep(2 * time.Millisecond)
			call.End()
			call.End() // as some instrumentation does
		}
		request(time.Hour) // nobody asked
		s.apply(t, planOf(1, outer.ID()))
		s.SampleStacks(time.Minute)
		for range 3 {
			request(time.Millisecond)
			request(time.Millisecond)
			request(time.Millisecond)
			request(5 * time.Millisecond)
		}
		if got := s.Stacks(); got != nil {
			t.Errorf("after a moment: %s", stackText(got))
		}
		time.Sleep(10 * time.Second)
		got := s.Stacks()
		want := "GET / 3ms\n  shop/outer 0s\n    shop/inner 30ms\n    shop/test/call 6ms\n"
		if text := stackText(got); text != want || got[0].Requests != 3 {
			t.Errorf("got %v:\n%swant\n%s", got, text, want)
		}
		status := protocol.Status{Protocol: 1, Session: "s", Stacks: got}
		if err := status.Validate(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		request(time.Millisecond)
		ctx, span := s.enter(t.Context(), "GET /")
		if below, _ := other.Start(ctx); below != ctx {
			t.Error("a disabled tracepoint changes the context after the time is over")
		}
		span.End()
		if got := s.Stacks(); got != nil {
			t.Errorf("after the time: %s", stackText(got))
		}
	})
}

// Middleware may name spans by whatever a client asks for. A report is valid even then, and has the operations with the
// most requests.
func TestStacksOfManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("shop")
		request := func(name string) {
			_, span := s.enter(t.Context(), "GET /")
			span.SetName(name)
			time.Sleep(time.Millisecond)
			span.End()
			time.Sleep(time.Millisecond)
			span.End() // as some instrumentation does; the request isn't longer
		}
		s.SampleStacks(time.Minute)
		for range 8 {
			request("GET /usual")
		}
		for i := range 1000 {
			request(fmt.Sprintf("GET /%d\n%s", i, strings.Repeat("x", 300)))
		}
		time.Sleep(10 * time.Second)
		got := s.Stacks()
		status := protocol.Status{Protocol: 1, Session: "s", Stacks: got}
		if err := status.Validate(); err != nil {
			t.Fatal(err)
		}
		if n := len(got); n != protocol.MaxStacks {
			t.Fatalf("%d operations, want %d", n, protocol.MaxStacks)
		}
		first, second := stackText(got[:1]), got[1].Operation
		if first != "GET /usual 2ms\n" || len(second) != protocol.MaxText || !strings.HasPrefix(second, "GET /0?x") {
			t.Errorf("first %q, second %q", first, second)
		}
	})
}

// A request that began before Sibyl asked again lacks calls, and doesn't count.
func TestStacksAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("shop")
		s.SampleStacks(time.Second)
		_, span := s.enter(t.Context(), "GET /")
		time.Sleep(time.Minute)
		s.SampleStacks(time.Minute)
		span.End()
		time.Sleep(10 * time.Second)
		if got := s.Stacks(); got != nil {
			t.Errorf("stacks of half a request: %s", stackText(got))
		}
	})
}

// A program with very many calls is followed for a part of the time only.
func TestStacksAreBounded(t *testing.T) {
	s := newService("shop")
	p := s.Span("p")
	s.SampleStacks(time.Minute)
	calls := 0
	for ; calls < 1_000_000; calls++ {
		ctx, span := s.enter(t.Context(), "GET /")
		below, end := p.Start(ctx)
		end()
		span.End()
		if below == ctx {
			break
		}
	}
	if calls == 1_000_000 {
		t.Error("every call is followed")
	}
}

// BenchmarkStacks measures a disabled tracepoint of a followed request. Run it with -benchtime 10000x, because no more
// than some ten thousand calls are followed at once.
func BenchmarkStacks(b *testing.B) {
	s := newService("shop")
	p := s.Span("p")
	s.SampleStacks(time.Hour)
	ctx, span := s.enter(b.Context(), "GET /")
	defer span.End()
	b.ReportAllocs()
	for b.Loop() {
		traced(ctx, p)
	}
}
