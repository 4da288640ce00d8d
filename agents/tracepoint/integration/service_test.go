package integration_test

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

// service has its own registry, provider and span recorder.
type service struct {
	*tracepoint.Registry
	provider trace.TracerProvider
	record   *tracetest.SpanRecorder
}

func newService(name string, options ...sdk.TracerProviderOption) *service {
	s := &service{Registry: tracepoint.NewRegistry(name), record: tracetest.NewSpanRecorder()}
	s.provider = s.Provider(sdk.NewTracerProvider(append(options, sdk.WithSpanProcessor(s.record))...))
	return s
}

func (s *service) apply(t testing.TB, p *protocol.Plan) {
	t.Helper()
	if err := s.Apply(p); err != nil {
		t.Fatal(err)
	}
}

// enter starts the server span of a request.
func (s *service) enter(
	ctx context.Context, name string, attributes ...attribute.KeyValue,
) (context.Context, trace.Span) {
	return s.provider.Tracer("entry").Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attributes...))
}

// ids returns the IDs of the tracepoints that plans can enable.
func (s *service) ids() []string {
	var ids []string
	for _, tp := range s.Catalogue() {
		if !tp.Baseline {
			ids = append(ids, tp.ID)
		}
	}
	return ids
}

// planOf returns a plan that enables the given tracepoints for all requests.
func planOf(version int64, ids ...string) *protocol.Plan {
	arm := protocol.Arm{Name: "a", Share: 1, Tracepoints: enabled(ids...)}
	return &protocol.Plan{
		Protocol: protocol.Version, Version: version, LeaseSeconds: 60, Arms: []protocol.Arm{arm},
	}
}

func enabled(ids ...string) []protocol.Enabled {
	slices.Sort(ids)
	list := make([]protocol.Enabled, len(ids))
	for i, id := range ids {
		list[i] = protocol.Enabled{ID: id, Rate: 1}
	}
	return list
}

// expect compares the spans that s has recorded since the last call with want, as formatted by tree. It ignores the
// tabs that indent want in the source.
func (s *service) expect(t testing.TB, want string, keys ...string) {
	t.Helper()
	expect(t, want, keys, s)
}

// expect is like service.expect, but for requests through several services.
func expect(t testing.TB, want string, keys []string, services ...*service) {
	t.Helper()
	var spans []sdk.ReadOnlySpan
	for _, s := range services {
		spans = append(spans, s.record.Ended()...)
		s.record.Reset()
	}
	want = strings.ReplaceAll(strings.TrimPrefix(want, "\n"), "\t", "")
	if got := tree(spans, keys...); got != want {
		t.Errorf("spans:\n%swant:\n%s", got, want)
	}
}

// tree formats ended spans as a tree: one line per span, indented by depth, siblings sorted by name, with Sibyl's
// attributes and the attributes with the given keys. The key "kind" adds the span kind.
func tree(spans []sdk.ReadOnlySpan, keys ...string) string {
	children := make(map[trace.SpanID][]sdk.ReadOnlySpan)
	known := make(map[trace.SpanID]bool)
	for _, s := range spans {
		known[s.SpanContext().SpanID()] = true
	}
	for _, s := range spans {
		parent := s.Parent().SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], s)
	}
	var out strings.Builder
	var write func(parent trace.SpanID, depth int)
	write = func(parent trace.SpanID, depth int) {
		list := children[parent]
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
	if slices.Contains(keys, "kind") {
		found["kind"] = s.SpanKind().String()
	}
	for _, kv := range s.Attributes() {
		if name := short[string(kv.Key)]; name != "" {
			found[name] = kv.Value.String()
		}
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out.WriteString(" " + name + "=" + found[name])
	}
	return out.String()
}

// propagate returns the context that the next service receives if a request is sent in ctx.
func propagate(ctx context.Context) context.Context {
	headers := make(map[string]string)
	propagator.Inject(ctx, carrier(headers))
	return propagator.Extract(context.Background(), carrier(headers))
}

type carrier map[string]string

func (c carrier) Get(key string) string { return c[key] }
func (c carrier) Set(key, value string) { c[key] = value }
func (c carrier) Keys() []string        { return nil }

// run executes a tracepoint.
func run(ctx context.Context, p *tracepoint.Point) {
	_, end := p.Start(ctx)
	end()
}
