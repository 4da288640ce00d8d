package tracepoint_test

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

// TestFiltersAndRates says which requests have what on: decided at the entry, the same in the second service.
func TestFiltersAndRates(t *testing.T) {
	shop, cart := newService(t, "shop"), newService(t, "cart")
	for _, s := range []*service{shop, cart} {
		p := planOf(1)
		p.Filters = []protocol.Filter{{Operation: "GET /big", Service: "shop"}, {Attributes: map[string]string{"tenant": "7"}}}
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
	inside := func(ctx context.Context, s *service) {
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
		inside(ctx, shop)
		ctx, second := cart.enter(call(ctx, t), "GET /cart")
		inside(ctx, cart)
		second.End()
		entry.End()

		got := names(shop, "GET")
		if inCart := names(cart, "GET"); !slices.Equal(got, inCart) {
			t.Fatalf("%q is on in the first service, %q in the second", got, inCart)
		}
		if slices.Contains(got, "big") != (name == "GET /big") || slices.Contains(got, "tenant") != (tenant == 1) {
			t.Fatalf("%q is on for %s of tenant %d", got, name, tenant+6)
		}
		if slices.Contains(got, "half") {
			half++
		}
	}
	if share := float64(half) / n; math.Abs(share-0.5) > 0.05 {
		t.Errorf("%v of the requests have it on at a rate of 0.5", share)
	}
}

// names returns the names of the spans that s recorded, sorted, but for those with the given prefix, and forgets them.
func names(s *service, but string) []string {
	var list []string
	for _, span := range s.record.Ended() {
		if !strings.HasPrefix(span.Name(), but) {
			list = append(list, span.Name())
		}
	}
	s.record.Reset()
	slices.Sort(list)
	return list
}

// TestExplore has everything on, variables and what shows up later, unless that is not allowed.
func TestExplore(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		s := newService(t, "shop")
		native, size := s.Span("native"), s.Bool("large")
		if !allowed {
			a, err := s.Connect(t.Context(), tracepoint.WithEndpoint("http://127.0.0.1:1"), tracepoint.WithoutExplore())
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
		}
		p := planOf(1)
		p.Arms[0] = protocol.Arm{Name: protocol.ExploreArm, Share: 1, Everything: true}
		s.apply(t, p)
		ctx, entry := s.enter(t.Context(), "GET /")
		ctx, end := native.Start(ctx)
		size.Set(ctx, true)
		_, span := s.provider.Tracer("lib").Start(ctx, "new")
		span.End()
		_, endLate := s.Span("late").Start(ctx)
		endLate()
		end()
		entry.End()
		if allowed {
			s.expect(t, `
				GET / arm=x plan=1
				  native large=true tp=shop/native
				    late tp=shop/late
				    new tp=shop/lib/new
				`, "large")
		} else {
			s.expect(t, `
				GET / arm=x plan=1
				`)
		}
	}
}

// TestFirstSpanIsOff enters a service below a remote span with one that is off: the first that is on tells the plan, and what is
// carried on is what was decided.
func TestFirstSpanIsOff(t *testing.T) {
	s := newService(t, "shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID()))
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	ctx, span := s.provider.Tracer("lib").Start(trace.ContextWithRemoteSpanContext(t.Context(), remote), "off")
	if got := trace.SpanContextFromContext(ctx).TraceState().Get(protocol.TraceStateKey); got != "1-a" {
		t.Errorf("%q is carried on", got)
	}
	if span.SpanContext().SpanID() != remote.SpanID() {
		t.Error("the span that is off has an identity of its own")
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

// TestForeignSpans runs tracepoints in spans that no provider of the library made, and outside of any.
func TestForeignSpans(t *testing.T) {
	record := tracetest.NewSpanRecorder()
	inner := sdk.NewTracerProvider(sdk.WithSpanProcessor(record))
	s := &service{Registry: tracepoint.NewRegistry("shop"), record: record}
	s.Provider(inner) // says where tracepoints' spans go
	native, size := s.Span("native"), s.Float("size")
	s.apply(t, planOf(1, native.ID(), size.Point().ID()))
	if ctx, _ := native.Start(t.Context()); ctx != t.Context() {
		t.Error("a tracepoint is on outside of any span")
	}
	size.Set(t.Context(), 1)
	ctx, entry := inner.Tracer("plain").Start(t.Context(), "GET /")
	size.Set(ctx, 0.5)
	ctx, end := native.Start(ctx)
	if got := trace.SpanContextFromContext(ctx).TraceState().Get(protocol.TraceStateKey); got != "1-a" {
		t.Errorf("%q is carried on", got)
	}
	end()
	entry.End()
	s.expect(t, `
		GET / size=0.5
		  native arm=a plan=1 tp=shop/native
		`, "size")
}

// TestNewRoot starts a trace within another: a request of its own, always on.
func TestNewRoot(t *testing.T) {
	s := newService(t, "shop")
	ctx, entry := s.enter(t.Context(), "GET /")
	_, job := s.provider.Tracer("lib").Start(ctx, "job", trace.WithNewRoot())
	job.End()
	entry.End()
	s.expect(t, `
		GET / plan=0
		job plan=0
		`)
}

// TestBaseline keeps client spans on, too.
func TestBaseline(t *testing.T) {
	s := newService(t, "shop")
	tracer := s.Provider(sdk.NewTracerProvider(sdk.WithSpanProcessor(s.record)), tracepoint.WithBaseline(trace.SpanKindClient)).Tracer("lib")
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

// TestOwners says where spans that the provider found belong: in the baseline span in which they run, as long as that is one and keeps
// its name. The catalogue changes no more once it is known.
func TestOwners(t *testing.T) {
	s := newService(t, "shop")
	tracer := s.provider.Tracer("lib")
	run := func(ctx context.Context, names ...string) {
		for _, name := range names {
			_, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
			span.End()
		}
	}
	serve := func(name string, names ...string) trace.Span {
		ctx, entry := s.enter(t.Context(), name)
		ctx, inside := tracer.Start(ctx, "inside "+name) // off
		run(ctx, names...)
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
		t.Error("the catalogue changes with requests that bring nothing new")
	}

	// A baseline span inside of another is the owner of what runs in it.
	ctx, entry := s.enter(t.Context(), "GET /a")
	inner, nested := tracer.Start(ctx, "take", trace.WithSpanKind(trace.SpanKindConsumer))
	run(inner, "deep")
	nested.End()
	run(ctx, "own")
	entry.End()
	known["deep"] = "take|consumer"
	expect("a baseline span inside", known)

	// Below somebody else's span nobody knows.
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	run(trace.ContextWithRemoteSpanContext(t.Context(), remote), "deep")
	known["deep"] = "|"
	expect("no entry", known)

	// Instrumentation that finds the route later names the span by it.
	ctx, entry = s.enter(t.Context(), "GET /b")
	entry.SetName("GET /b")
	expect("the same name", known)
	entry.SetName("GET /b/{id}")
	run(ctx, "other")
	entry.End()
	known["other"] = "|"
	expect("another name", known)
}

// TestUnsampled says that requests that are not sampled make nothing, and that drops say so.
func TestUnsampled(t *testing.T) {
	s := newService(t, "shop", sdk.WithSampler(sdk.NeverSample()))
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
		t.Errorf("%q is carried on: others may sample", got)
	}
}

// TestPanic ends spans of functions that panic, and says so in them.
func TestPanic(t *testing.T) {
	s := newService(t, "shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID()))
	cause := errors.New("broken")
	func() {
		defer func() {
			if got := recover(); got != cause { //nolint:errorlint // the very same
				t.Errorf("the panic became %v", got)
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
		if len(events) != 1 || events[0].Name != "exception" || !slices.Contains(events[0].Attributes, attribute.String("exception.message", "broken")) {
			t.Errorf("%s has the events %v", span.Name(), events)
		}
	}
}

func TestGoroutineLabels(t *testing.T) {
	s := newService(t, "shop")
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
		t.Errorf("a label is left:\n%s", got)
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

// TestCatalogue lists what was registered, with hints, once each, with IDs of their own.
func TestCatalogue(t *testing.T) {
	r := tracepoint.NewRegistry(tracepoint.UnknownService)
	order := r.Span("order", tracepoint.WithOwner("GET /order", trace.SpanKindServer), tracepoint.WithCode("shop.Order"))
	r.Span("price", tracepoint.WithParent(order))
	r.Int("price", tracepoint.WithParent(order))
	if r.Span("order") != order {
		t.Error("the same name is another tracepoint")
	}
	r.SetService("shop")
	var got []string
	for _, tp := range r.Catalogue() {
		got = append(got, strings.Join([]string{tp.ID, string(tp.Kind), tp.Operation, tp.Parent, tp.Owner, string(tp.OwnerKind), tp.Code}, "|"))
	}
	want := []string{"shop/order|span|order||GET /order|server|shop.Order", "shop/price|span|price|shop/order|||", "shop/price#2|variable|price|shop/order|||"}
	if !slices.Equal(got, want) {
		t.Errorf("catalogue %q, want %q", got, want)
	}
	if order.ID() != "shop/order" {
		t.Errorf("the ID is %q", order.ID())
	}
}

func TestNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "a\nb", strings.Repeat("x", 129), "\xff"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is a name", name)
				}
			}()
			tracepoint.NewRegistry("shop").Span(name)
		}()
	}
}

// TestProviderIsBounded makes names of data: those beyond the bound stay as they were, on.
func TestProviderIsBounded(t *testing.T) {
	s := newService(t, "shop")
	ctx, entry := s.enter(t.Context(), "GET /")
	tracer := s.provider.Tracer("lib")
	const most = 4096
	for i := range most + 100 {
		_, span := tracer.Start(ctx, fmt.Sprintf("user %d", i))
		span.End()
	}
	_, odd := tracer.Start(ctx, "a\nb")
	odd.End()
	entry.End()
	if n := len(s.Catalogue()); n != most {
		t.Errorf("%d tracepoints, want %d", n, most)
	}
	if n := len(s.record.Ended()); n != 103 { // the entry's is one of the names, so that 101 are beyond the bound
		t.Errorf("%d spans, want %d", n, 103)
	}
}

func TestApplyIsRefused(t *testing.T) {
	s := newService(t, "shop")
	native := s.Span("native")
	s.apply(t, planOf(1, native.ID()))
	bad := planOf(2)
	bad.Arms[0].Share = 2
	if err := s.Apply(bad); err == nil {
		t.Error("a plan with a share of 2 is applied")
	}
	ctx, entry := s.enter(t.Context(), "GET /")
	_, end := native.Start(ctx)
	end()
	entry.End()
	s.expect(t, `
		GET / arm=a plan=1
		  native tp=shop/native
		`)
}
