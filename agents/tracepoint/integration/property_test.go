package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// node is a call in a random program.
type node struct {
	service  int
	provider bool // a span of a Provider; otherwise a Point
	name     string
	children []*node
	parallel bool // the children run concurrently
}

const (
	programServices = 3
	programPoints   = 5 // of each kind in each service; few, so that several calls share a tracepoint
	programPlans    = 4
)

func drawNode(t *rapid.T, depth, caller int) *node {
	n := &node{
		service:  caller,
		provider: rapid.Bool().Draw(t, "provider"),
		name:     fmt.Sprintf("p%d", rapid.IntRange(0, programPoints-1).Draw(t, "name")),
		parallel: rapid.Bool().Draw(t, "parallel"),
	}
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "remote") == 0 {
		n.service = rapid.IntRange(0, programServices-1).Draw(t, "service")
	}
	if depth < 6 {
		for range rapid.IntRange(0, 3).Draw(t, "children") {
			n.children = append(n.children, drawNode(t, depth+1, n.service))
		}
	}
	return n
}

// id returns the ID of n's tracepoint.
func (n *node) id() string {
	if n.provider {
		return fmt.Sprintf("s%d/lib/%s", n.service, n.name)
	}
	return fmt.Sprintf("s%d/%s", n.service, n.name)
}

// drawPlan returns a plan with a random subset of the tracepoints.
func drawPlan(t *rapid.T, version int64) *protocol.Plan {
	p := &protocol.Plan{Protocol: protocol.Version, Version: version, LeaseSeconds: 60}
	share := 1.
	for _, name := range []string{"a", "b", "c"} {
		part := rapid.Float64Range(0, 1).Draw(t, "share")
		a := protocol.Arm{Name: name, Share: share * part}
		share -= a.Share
		for service := range programServices {
			for i := range programPoints {
				for _, provider := range []bool{false, true} {
					n := node{service: service, provider: provider, name: fmt.Sprintf("p%d", i)}
					if rate := rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(t, "rate"); rate > 0 {
						a.Tracepoints = append(a.Tracepoints, protocol.Enabled{ID: n.id(), Rate: rate})
					}
				}
			}
		}
		slices.SortFunc(a.Tracepoints, func(x, y protocol.Enabled) int { return strings.Compare(x.ID, y.ID) })
		p.Arms = append(p.Arms, a)
	}
	return p
}

// run executes n, called from the given service, or from outside if caller is -1.
func (n *node) run(ctx context.Context, services []*service, caller int) {
	s := services[n.service]
	if n.service != caller {
		var entry trace.Span
		ctx, entry = s.provider.Tracer("entry").Start(propagate(ctx), "entry", trace.WithSpanKind(trace.SpanKindServer))
		defer entry.End()
	}
	if n.provider {
		var span trace.Span
		ctx, span = s.provider.Tracer("lib").Start(ctx, n.name)
		defer span.End()
	} else {
		var end func()
		ctx, end = s.Span(n.name).Start(ctx)
		defer end()
	}
	var all sync.WaitGroup
	for _, k := range n.children {
		if n.parallel {
			all.Go(func() { k.run(ctx, services, n.service) })
		} else {
			k.run(ctx, services, n.service)
		}
	}
	all.Wait()
}

// model predicts the spans of a request.
type model struct {
	randomness protocol.Randomness
	plan       *protocol.Plan // of the first service; may be nil
	applied    []int64        // by service: version of the current plan; the service has the previous one, too
}

// knows reports whether the service has the plan of the request.
func (m *model) knows(service int) bool {
	return m.plan != nil && m.plan.Version <= m.applied[service] && m.plan.Version >= m.applied[service]-1
}

// enabled reports whether n's tracepoint is enabled.
func (m *model) enabled(n *node) bool {
	if !m.knows(n.service) {
		return false
	}
	at := m.randomness.Arm(m.plan)
	if at < 0 {
		return false
	}
	a := &m.plan.Arms[at]
	k := slices.IndexFunc(a.Tracepoints, func(e protocol.Enabled) bool { return e.ID == n.id() })
	return k >= 0 && m.randomness.Passes(a.Tracepoints[k].Rate)
}

// expected returns the spans of n's call. They form the call tree, except that a call with a disabled tracepoint is
// replaced by its children.
func (m *model) expected(n *node, caller int) []string {
	var below []string
	for _, k := range n.children {
		below = append(below, m.expected(k, n.service)...)
	}
	if m.enabled(n) {
		below = []string{bracket(n.id(), below)}
	}
	if n.service == caller {
		return below
	}
	version, arm := int64(0), ""
	if m.knows(n.service) {
		version = m.plan.Version
		if at := m.randomness.Arm(m.plan); at >= 0 {
			arm = m.plan.Arms[at].Name
		}
	}
	return []string{bracket(fmt.Sprintf("s%d entry %d%s", n.service, version, arm), below)}
}

// bracket formats a span with its children, sorted because their order is irrelevant.
func bracket(name string, below []string) string {
	slices.Sort(below)
	return name + "(" + strings.Join(below, " ") + ")"
}

// recorded returns the recorded root spans with their descendants, formatted like expected.
func recorded(services []*service) []string {
	below := make(map[trace.SpanID][]sdk.ReadOnlySpan)
	names := make(map[trace.SpanID]string)
	for i, s := range services {
		for _, span := range s.record.Ended() {
			below[span.Parent().SpanID()] = append(below[span.Parent().SpanID()], span)
			names[span.SpanContext().SpanID()] = nameOf(i, span)
		}
	}
	var write func(id trace.SpanID) []string
	write = func(id trace.SpanID) []string {
		var list []string
		for _, span := range below[id] {
			list = append(list, bracket(names[span.SpanContext().SpanID()], write(span.SpanContext().SpanID())))
		}
		return list
	}
	var roots []string
	for parent := range below {
		if names[parent] == "" {
			roots = append(roots, write(parent)...)
		}
	}
	return roots
}

func nameOf(service int, span sdk.ReadOnlySpan) string {
	var plan, arm string
	for _, kv := range span.Attributes() {
		switch string(kv.Key) {
		case protocol.KeyTracepoint:
			return kv.Value.AsString()
		case protocol.KeyPlan:
			plan = fmt.Sprint(kv.Value.AsInt64())
		case protocol.KeyArm:
			arm = kv.Value.AsString()
		}
	}
	return fmt.Sprintf("s%d %s %s%s", service, span.Name(), plan, arm)
}

// TestContraction runs random programs over several services under random plans. It compares the spans with the call
// tree without the calls whose tracepoint is disabled.
func TestContraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services := make([]*service, programServices)
		plans := make([]*protocol.Plan, programPlans)
		for v := range plans {
			plans[v] = drawPlan(t, int64(v)+1)
		}
		m := model{applied: make([]int64, programServices)}
		for i := range services {
			services[i] = newService(fmt.Sprintf("s%d", i))
			m.applied[i] = rapid.Int64Range(0, programPlans).Draw(t, "applied")
			for v := range m.applied[i] {
				if err := services[i].Apply(plans[v]); err != nil {
					t.Fatal(err)
				}
			}
		}
		program := drawNode(t, 0, 0)
		program.run(context.Background(), services, -1)

		if v := m.applied[program.service]; v > 0 {
			m.plan = plans[v-1]
		}
		for _, span := range services[program.service].record.Ended() {
			m.randomness = protocol.RandomnessOf(span.SpanContext().TraceID())
		}
		want, got := m.expected(program, -1), recorded(services)
		if !slices.Equal(got, want) {
			t.Fatalf("spans %s\nwant  %s", got, want)
		}
	})
}
