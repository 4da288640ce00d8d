package tracepoint_test

import (
	"context"
	"fmt"
	"maps"
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

// service is one with a registry, a provider and a record of its own.
type service struct {
	*tracepoint.Registry
	provider trace.TracerProvider
	record   *tracetest.SpanRecorder
}

func newService(t testing.TB, name string, options ...sdk.TracerProviderOption) *service {
	t.Helper()
	s := &service{Registry: tracepoint.NewRegistry(name), record: tracetest.NewSpanRecorder()}
	inner := sdk.NewTracerProvider(append(options, sdk.WithSpanProcessor(s.record))...)
	t.Cleanup(func() { _ = inner.Shutdown(context.Background()) })
	s.provider = s.Provider(inner)
	return s
}

func (s *service) apply(t testing.TB, p *protocol.Plan) {
	t.Helper()
	if err := s.Apply(p); err != nil {
		t.Fatal(err)
	}
}

// enter starts the span of a request's entry into the service.
func (s *service) enter(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return s.provider.Tracer("entry").Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
}

// planOf returns a plan in which all requests have the tracepoints on.
func planOf(version int64, ids ...string) *protocol.Plan {
	return &protocol.Plan{Protocol: protocol.Version, Version: version, LeaseSeconds: 60, Arms: []protocol.Arm{{Name: "a", Share: 1, Tracepoints: enabled(ids...)}}}
}

func enabled(ids ...string) []protocol.Enabled {
	slices.Sort(ids)
	list := make([]protocol.Enabled, len(ids))
	for i, id := range ids {
		list[i] = protocol.Enabled{ID: id, Rate: 1}
	}
	return list
}

// tree returns the ended spans as a tree: one line each, indented by depth, siblings in the order of their names, with Sibyl's
// attributes and those that keys names.
func tree(spans []sdk.ReadOnlySpan, keys ...string) string {
	below := make(map[trace.SpanID][]sdk.ReadOnlySpan)
	known := make(map[trace.SpanID]bool)
	for _, s := range spans {
		known[s.SpanContext().SpanID()] = true
	}
	for _, s := range spans {
		parent := s.Parent().SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		below[parent] = append(below[parent], s)
	}
	var out strings.Builder
	var write func(parent trace.SpanID, depth int)
	write = func(parent trace.SpanID, depth int) {
		list := below[parent]
		slices.SortStableFunc(list, func(a, b sdk.ReadOnlySpan) int { return strings.Compare(a.Name(), b.Name()) })
		for _, s := range list {
			orphan := ""
			if parent == (trace.SpanID{}) && s.Parent().IsValid() && !s.Parent().IsRemote() {
				orphan = " ORPHAN"
			}
			fmt.Fprintf(&out, "%s%s%s%s\n", strings.Repeat("  ", depth), s.Name(), attributesOf(s, keys), orphan)
			write(s.SpanContext().SpanID(), depth+1)
		}
	}
	write(trace.SpanID{}, 0)
	return out.String()
}

func attributesOf(s sdk.ReadOnlySpan, keys []string) string {
	short := map[string]string{protocol.KeyTracepoint: "tp", protocol.KeyPlan: "plan", protocol.KeyArm: "arm"}
	for _, k := range keys {
		short[k] = k
	}
	found := make(map[string]string)
	for _, kv := range s.Attributes() {
		if name := short[string(kv.Key)]; name != "" {
			found[name] = kv.Value.String()
		}
	}
	var out string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out += " " + name + "=" + found[name]
	}
	return out
}

func (s *service) expect(t testing.TB, want string, keys ...string) {
	t.Helper()
	want = strings.ReplaceAll(strings.TrimPrefix(want, "\n"), "\t", "")
	if got := tree(s.record.Ended(), keys...); got != want {
		t.Errorf("spans:\n%swant:\n%s", got, want)
	}
	s.record.Reset()
}

func TestSpans(t *testing.T) {
	s := newService(t, "shop")
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

// TestOffIsTheContextItself says what a tracepoint that is off costs: nothing.
func TestOffIsTheContextItself(t *testing.T) {
	s := newService(t, "shop")
	p, size := s.Span("p"), s.String("size")
	ctx, entry := s.enter(t.Context(), "GET /")
	defer entry.End()
	if got, _ := p.Start(ctx); got != ctx {
		t.Error("a tracepoint that is off changes the context")
	}
	type key struct{}
	within, number, share, large := context.WithValue(ctx, key{}, "x"), s.Int("number"), s.Float("share"), s.Bool("large")
	n := 1000.0
	if n := testing.AllocsPerRun(100, func() {
		n++
		inner, end := p.Start(within)
		size.Set(inner, "large")
		number.Set(inner, int(n))
		share.Set(inner, n)
		large.Set(inner, n > 0)
		end()
	}); n != 0 {
		t.Errorf("a tracepoint and a variable that are off allocate %v times", n)
	}
}

// TestProvider switches the spans of existing instrumentation.
func TestProvider(t *testing.T) {
	s := newService(t, "shop")
	native := s.Span("native")
	request := func() {
		tracer := s.provider.Tracer("lib")
		ctx, entry := s.enter(t.Context(), "GET /")
		defer entry.End()
		ctx, client := tracer.Start(ctx, "call", trace.WithSpanKind(trace.SpanKindClient))
		client.SetAttributes(attribute.Bool("seen", true))
		if got := trace.SpanFromContext(ctx); got != client {
			t.Errorf("the context holds %v, not the span that was started", got)
		}
		if client.TracerProvider() != s.provider {
			t.Error("the span leads past the provider")
		}
		ctx, end := native.Start(ctx)
		_, query := tracer.Start(ctx, "query")
		query.End()
		end()
		client.End()
		trace.SpanFromContext(ctx).End() // as otelgrpc does with the span that it finds
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
	want := []string{"shop/baseline/entry/GET / server true", "shop/lib/call client false", "shop/lib/query internal false", "shop/native internal false"}
	if !slices.Equal(ids, want) {
		t.Errorf("catalogue %q, want %q", ids, want)
	}
}

// call takes a request from one service to the next, as propagation does.
func call(ctx context.Context, t testing.TB) context.Context {
	t.Helper()
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		t.Fatal("there is nothing to propagate")
	}
	state, err := trace.ParseTraceState(sc.TraceState().String())
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithRemoteSpanContext(t.Context(), sc.WithTraceState(state))
}

// TestEverywhereOrNowhere takes requests through two services that get their plans one after the other.
func TestEverywhereOrNowhere(t *testing.T) {
	shop, cart := newService(t, "shop"), newService(t, "cart")
	for _, s := range []*service{shop, cart} {
		s.Span("work")
	}
	request := func() {
		ctx, entry := shop.enter(t.Context(), "GET /")
		defer entry.End()
		ctx, end := shop.Span("work").Start(ctx)
		defer end()
		ctx, entry = cart.enter(call(ctx, t), "GET /cart")
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

	cart.apply(t, plan(1)) // the first service has none yet: nothing is on
	request()
	expect("GET / plan=0\n", "GET /cart plan=0\n")

	shop.apply(t, plan(1))
	request()
	expect("GET / arm=a plan=1\n  work tp=shop/work\n", "GET /cart arm=a plan=1\n  work tp=cart/work\n")

	shop.apply(t, plan(2)) // the second does not know it yet
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart plan=0\n")

	cart.apply(t, plan(2))
	cart.apply(t, plan(3)) // the second still knows the one before
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart arm=a plan=2\n  work tp=cart/work\n")
	cart.apply(t, plan(4))
	request()
	expect("GET / arm=a plan=2\n  work tp=shop/work\n", "GET /cart plan=0\n")
}
