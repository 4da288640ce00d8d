package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// TestFiltersAndRates checks that the first service applies filters and rates, and that the second follows.
func TestFiltersAndRates(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	for _, s := range []*service{shop, cart} {
		p := planOf(1)
		p.Filters = []protocol.Filter{
			{Operation: "GET /big", Service: "shop"}, {Attributes: map[string]string{"tenant": "7"}},
		}
		for _, name := range []string{"cart", "shop"} {
			p.Arms[0].Tracepoints = append(
				p.Arms[0].Tracepoints,
				protocol.Enabled{ID: name + "/big", Rate: 1, Filter: 1},
				protocol.Enabled{ID: name + "/half", Rate: 0.5},
				protocol.Enabled{ID: name + "/tenant", Rate: 1, Filter: 2},
			)
		}
		s.Span("big")
		s.Span("half")
		s.Span("tenant")
		s.apply(t, p)
	}
	runAll := func(ctx context.Context, s *service) {
		for _, name := range []string{"big", "half", "tenant"} {
			_, end := s.Span(name).Start(ctx)
			end()
		}
	}
	const n = 2000
	half := 0
	for i := range n {
		name, tenant := "GET /small", i%3
		if i%2 == 0 {
			name = "GET /big"
		}
		ctx, entry := shop.enter(t.Context(), name, attribute.Int("tenant", tenant+6))
		runAll(ctx, shop)
		ctx, second := cart.enter(propagate(ctx), "GET /cart")
		runAll(ctx, cart)
		second.End()
		entry.End()

		got := names(shop, "GET")
		if inCart := names(cart, "GET"); !slices.Equal(got, inCart) {
			t.Fatalf("%q is enabled in the first service, %q in the second", got, inCart)
		}
		if slices.Contains(got, "big") != (name == "GET /big") || slices.Contains(got, "tenant") != (tenant == 1) {
			t.Fatalf("%q is enabled for %s of tenant %d", got, name, tenant+6)
		}
		if slices.Contains(got, "half") {
			half++
		}
	}
	if share := float64(half) / n; math.Abs(share-0.5) > 0.05 {
		t.Errorf("a share of %v of the requests has it enabled at a rate of 0.5", share)
	}
}

// names returns the sorted names of the recorded spans without the given prefix, and resets the recorder.
func names(s *service, prefix string) []string {
	var list []string
	for _, span := range s.record.Ended() {
		if !strings.HasPrefix(span.Name(), prefix) {
			list = append(list, span.Name())
		}
	}
	s.record.Reset()
	slices.Sort(list)
	return list
}

// TestFirstSpanIsDisabled enters a service with a disabled span: it passes the decision on, and the first enabled span
// has the attributes for plan and arm.
func TestFirstSpanIsDisabled(t *testing.T) {
	s := newService("shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID()))
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	ctx, span := s.provider.Tracer("lib").Start(trace.ContextWithRemoteSpanContext(t.Context(), remote), "disabled")
	if got := trace.SpanContextFromContext(ctx).TraceState().Get(protocol.TraceStateKey); got != "1-a" {
		t.Errorf("tracestate %q, want 1-a", got)
	}
	if span.SpanContext().SpanID() != remote.SpanID() {
		t.Error("the disabled span has a span ID of its own")
	}
	ctx, end := native.Start(ctx)
	_, endSecond := native.Start(ctx)
	endSecond()
	end()
	span.End()
	s.expect(t, `
		native arm=a plan=1 tp=shop/native
		  native tp=shop/native
		`)
}

// TestForeignSpans runs tracepoints below spans of other providers, and without a parent.
func TestForeignSpans(t *testing.T) {
	record := tracetest.NewSpanRecorder()
	inner := sdk.NewTracerProvider(sdk.WithSpanProcessor(record))
	s := &service{Registry: tracepoint.NewRegistry("shop"), record: record}
	s.Provider(inner) // sets the tracer of tracepoints
	native, size := s.Span("native"), s.Float("size")
	s.apply(t, planOf(1, native.ID(), size.Point().ID()))
	if ctx, _ := native.Start(t.Context()); ctx != t.Context() {
		t.Error("a tracepoint is enabled without a parent")
	}
	size.Set(t.Context(), 1)
	ctx, entry := inner.Tracer("plain").Start(t.Context(), "GET /")
	size.Set(ctx, 0.5)
	ctx, end := native.Start(ctx)
	if got := trace.SpanContextFromContext(ctx).TraceState().Get(protocol.TraceStateKey); got != "1-a" {
		t.Errorf("tracestate %q, want 1-a", got)
	}
	end()
	entry.End()
	s.expect(t, `
		GET / size=0.5
		  native arm=a plan=1 tp=shop/native
		`, "size")
}

// TestNewRoot checks that a new root within a trace is a separate request and always enabled.
func TestNewRoot(t *testing.T) {
	s := newService("shop")
	ctx, entry := s.enter(t.Context(), "GET /")
	_, job := s.provider.Tracer("lib").Start(ctx, "job", trace.WithNewRoot())
	job.End()
	entry.End()
	s.expect(t, `
		GET / plan=0
		job plan=0
		`)
}

// TestBaseline checks that WithBaseline replaces the kinds of spans that are always enabled.
func TestBaseline(t *testing.T) {
	s := newService("shop")
	tracer := s.Provider(sdk.NewTracerProvider(sdk.WithSpanProcessor(s.record)),
		tracepoint.WithBaseline(trace.SpanKindClient)).Tracer("lib")
	ctx, entry := tracer.Start(t.Context(), "entry")
	ctx, client := tracer.Start(ctx, "call", trace.WithSpanKind(trace.SpanKindClient))
	_, server := tracer.Start(ctx, "serve", trace.WithSpanKind(trace.SpanKindServer))
	server.End()
	client.End()
	entry.End()
	s.expect(t, `
		entry plan=0
		  call
		`)
}

// TestOwners checks the owner of a discovered span: it is the baseline span that it runs in, unless there are several
// or it is renamed. Afterwards the catalogue stays the same.
func TestOwners(t *testing.T) {
	s := newService("shop")
	tracer := s.provider.Tracer("lib")
	runSpans := func(ctx context.Context, names ...string) {
		for _, name := range names {
			_, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
			span.End()
		}
	}
	serve := func(name string, names ...string) trace.Span {
		ctx, entry := s.enter(t.Context(), name)
		ctx, inside := tracer.Start(ctx, "inside "+name) // disabled
		runSpans(ctx, names...)
		inside.End()
		entry.End()
		return entry
	}
	owners := func() map[string]string {
		got := make(map[string]string)
		for _, tp := range s.Catalogue() {
			if tp.SpanKind == protocol.Client {
				got[tp.Operation] = tp.Owner + "|" + string(tp.OwnerKind)
			}
		}
		return got
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		if got := owners(); !maps.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}

	serve("GET /a", "shared", "own")
	expect("one request type", map[string]string{"shared": "GET /a|server", "own": "GET /a|server"})
	serve("GET /b", "shared", "other")
	known := map[string]string{"shared": "|", "own": "GET /a|server", "other": "GET /b|server"}
	expect("two request types", known)
	hash := protocol.HashCatalogue(s.Catalogue())
	for range 3 {
		serve("GET /a", "shared", "own")
		serve("GET /b", "shared", "other")
	}
	if protocol.HashCatalogue(s.Catalogue()) != hash {
		t.Error("the catalogue changes although the requests contain nothing new")
	}

	// A nested baseline span owns the spans that run in it.
	ctx, entry := s.enter(t.Context(), "GET /a")
	inner, nested := tracer.Start(ctx, "take", trace.WithSpanKind(trace.SpanKindConsumer))
	runSpans(inner, "deep")
	nested.End()
	runSpans(ctx, "own")
	entry.End()
	known["deep"] = "take|consumer"
	expect("a nested baseline span", known)

	// The owner is unknown below a remote span.
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	runSpans(trace.ContextWithRemoteSpanContext(t.Context(), remote), "deep")
	known["deep"] = "|"
	expect("below a remote span", known)

	// Instrumentation renames the span when it knows the route.
	ctx, entry = s.enter(t.Context(), "GET /b")
	entry.SetName("GET /b")
	expect("the same name", known)
	entry.SetName("GET /b/{id}")
	runSpans(ctx, "other")
	entry.End()
	known["other"] = "|"
	expect("another name", known)
}

// TestUnsampled checks that requests that aren't sampled record nothing, and that hits count as drops.
func TestUnsampled(t *testing.T) {
	s := newService("shop", sdk.WithSampler(sdk.NeverSample()))
	native, size := s.Span("native"), s.Int("size")
	s.apply(t, planOf(1, native.ID(), size.Point().ID()))
	ctx, entry := s.enter(t.Context(), "GET /")
	_, end := native.Start(ctx)
	size.Set(ctx, 1)
	end()
	entry.End()
	s.expect(t, "")
	for _, o := range s.Outcomes() {
		if o.Hits != 1 || o.Drops != 1 {
			t.Errorf("%+v, want one hit and one drop", o)
		}
	}
	if got := trace.SpanContextFromContext(ctx).TraceState().Get(protocol.TraceStateKey); got != "1-a" {
		t.Errorf("tracestate %q, want 1-a: other services may sample", got)
	}
}

// TestOutcomes checks that outcomes report hits with their measured cost, and unknown IDs.
func TestOutcomes(t *testing.T) {
	s := newService("shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID(), "shop/unknown"))
	ctx, entry := s.enter(t.Context(), "GET /")
	run(ctx, native)
	entry.End()
	list := s.Outcomes()
	if len(list) != 2 {
		t.Fatalf("outcomes %+v, want 2", list)
	}
	if o := list[0]; o.State != protocol.Applied || o.Hits != 1 || o.Drops != 0 || o.Bytes < 80 {
		t.Errorf("outcome %+v, want one hit of at least 80 bytes", o)
	}
	if o := list[1]; o.State != protocol.Unsupported || o.Reason == "" {
		t.Errorf("outcome %+v, want an unsupported tracepoint", o)
	}
}

// TestPanic checks that spans of panicking functions end and record the panic.
func TestPanic(t *testing.T) {
	s := newService("shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID()))
	cause := errors.New("broken")
	func() {
		defer func() {
			if got := recover(); got != cause { //nolint:errorlint // identity is intended
				t.Errorf("recovered %v, want the original panic value", got)
			}
		}()
		ctx, entry := s.enter(t.Context(), "GET /")
		defer entry.End()
		_, end := native.Start(ctx)
		defer end()
		panic(cause)
	}()
	spans := s.record.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans ended", len(spans))
	}
	for _, span := range spans {
		events := span.Events()
		message := attribute.String("exception.message", "broken")
		if len(events) != 1 || events[0].Name != "exception" || !slices.Contains(events[0].Attributes, message) {
			t.Errorf("%s has events %v", span.Name(), events)
		}
	}
}

func TestGoroutineLabels(t *testing.T) {
	s := newService("shop")
	native := s.Span("native")
	a, err := s.Connect(t.Context(), tracepoint.WithEndpoint("http://127.0.0.1:1"), tracepoint.WithGoroutineLabels())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s.apply(t, planOf(1, native.ID()))
	labels := func(ctx context.Context) {
		t.Helper()
		sc := trace.SpanContextFromContext(ctx)
		want := fmt.Sprintf(`{"span_id":"%s", "trace_id":"%s"}`, sc.SpanID(), sc.TraceID())
		if got := goroutines(t); !strings.Contains(got, want) {
			t.Errorf("no goroutine has the labels %s:\n%s", want, got)
		}
	}
	outer, entry := s.enter(t.Context(), "GET /")
	labels(outer)
	ctx, end := native.Start(outer)
	labels(ctx)
	end()
	labels(outer)
	entry.End()
	if got := goroutines(t); strings.Contains(got, entry.SpanContext().TraceID().String()) {
		t.Errorf("a label remains:\n%s", got)
	}
}

func goroutines(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestProviderIsBounded starts spans whose names contain data. Spans beyond the limit are always enabled.
func TestProviderIsBounded(t *testing.T) {
	s := newService("shop")
	ctx, entry := s.enter(t.Context(), "GET /")
	tracer := s.provider.Tracer("lib")
	const limit = 4096
	for i := range limit + 100 {
		_, span := tracer.Start(ctx, fmt.Sprintf("user %d", i))
		span.End()
	}
	_, odd := tracer.Start(ctx, "a\nb")
	odd.End()
	entry.End()
	if n := len(s.Catalogue()); n != limit {
		t.Errorf("%d tracepoints, want %d", n, limit)
	}
	if n := len(s.record.Ended()); n != 103 { // the entry span counts towards the limit, so 101 names exceed it
		t.Errorf("%d spans, want %d", n, 103)
	}
}
