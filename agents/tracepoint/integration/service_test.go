package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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

func newService(name string) *service {
	s := &service{Registry: tracepoint.NewRegistry(name), record: tracetest.NewSpanRecorder()}
	s.provider = s.Provider(sdk.NewTracerProvider(sdk.WithSpanProcessor(s.record)))
	return s
}

// planOf returns a plan in which all requests have the tracepoints on.
func planOf(version int64, ids ...string) *protocol.Plan {
	slices.Sort(ids)
	list := make([]protocol.Enabled, len(ids))
	for i, id := range ids {
		list[i] = protocol.Enabled{ID: id, Rate: 1}
	}
	return &protocol.Plan{Protocol: protocol.Version, Version: version, LeaseSeconds: 60, Arms: []protocol.Arm{{Name: "a", Share: 1, Tracepoints: list}}}
}

// ids returns the tracepoints of s that plans can switch.
func (s *service) ids() []string {
	var ids []string
	for _, tp := range s.Catalogue() {
		if !tp.Baseline {
			ids = append(ids, tp.ID)
		}
	}
	return ids
}

// tree returns the spans that services recorded as a tree: service, name and kind, indented by depth, siblings sorted. What has no
// parent among them is at the top.
func tree(services ...*service) string {
	type node struct {
		text string
		span sdk.ReadOnlySpan
	}
	below := make(map[trace.SpanID][]node)
	known := make(map[trace.SpanID]bool)
	each := func(visit func(s *service, span sdk.ReadOnlySpan)) {
		for _, s := range services {
			for _, span := range s.record.Ended() {
				visit(s, span)
			}
		}
	}
	each(func(_ *service, span sdk.ReadOnlySpan) { known[span.SpanContext().SpanID()] = true })
	each(func(_ *service, span sdk.ReadOnlySpan) {
		parent := span.Parent().SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		var id, plan string
		for _, kv := range span.Attributes() {
			switch string(kv.Key) {
			case protocol.KeyTracepoint:
				id = " [" + kv.Value.AsString() + "]"
			case protocol.KeyPlan:
				plan = fmt.Sprint(" plan ", kv.Value.AsInt64())
			}
		}
		below[parent] = append(below[parent], node{span.Name() + " " + span.SpanKind().String() + id + plan, span})
	})
	var out strings.Builder
	var write func(parent trace.SpanID, depth int)
	write = func(parent trace.SpanID, depth int) {
		list := below[parent]
		slices.SortStableFunc(list, func(a, b node) int { return strings.Compare(a.text, b.text) })
		for _, n := range list {
			out.WriteString(strings.Repeat("  ", depth) + n.text + "\n")
			write(n.span.SpanContext().SpanID(), depth+1)
		}
	}
	write(trace.SpanID{}, 0)
	for _, s := range services {
		s.record.Reset()
	}
	return out.String()
}

// expect compares the spans of services with a text that is indented like the code that it stands in.
func expect(t *testing.T, when, want string, services ...*service) {
	t.Helper()
	want = strings.ReplaceAll(strings.TrimPrefix(want, "\n"), "\t", "")
	if got := tree(services...); got != want {
		t.Errorf("%s, the spans are:\n%swant:\n%s", when, got, want)
	}
}

func apply(t testing.TB, s *service, p *protocol.Plan) {
	t.Helper()
	if err := s.Apply(p); err != nil {
		t.Fatal(err)
	}
}

// work runs a tracepoint of the library's own.
func work(ctx context.Context, p *tracepoint.Point) {
	_, end := p.Start(ctx)
	end()
}
