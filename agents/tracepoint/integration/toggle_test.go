package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

const (
	toggles     = 1000
	callDepth   = 4 // nesting of tracepoints of each kind in each service
	loadThreads = 4

	requestsPerPlan = 4
)

// TestTogglingUnderLoad changes the plans of two services while requests run through both. It checks that no span is
// lost or orphaned, that parents are correct, and that only tracepoints in the request's plan are enabled for a
// request.
func TestTogglingUnderLoad(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	for _, s := range []*service{shop, cart} {
		for i := range callDepth {
			s.Span(nativeName(i))
		}
	}
	var started atomic.Int64
	var load sync.WaitGroup
	ended := make(chan struct{}) // paces the plans, so that requests run while plans change
	for range loadThreads {
		load.Go(func() {
			for started.Add(1) <= toggles*requestsPerPlan {
				runRequest(t.Context(), shop, cart)
				ended <- struct{}{}
			}
		})
	}
	for v := int64(1); v <= toggles; v++ {
		for range requestsPerPlan {
			<-ended
		}
		for _, s := range []*service{shop, cart} {
			if v%10 == 0 {
				s.apply(t, nil)
			} else {
				s.apply(t, togglePlan(v))
			}
		}
	}
	load.Wait()

	c := checker{
		t: t, spans: make(map[trace.SpanID]sdk.ReadOnlySpan), entries: make(map[trace.TraceID]sdk.ReadOnlySpan),
	}
	c.add(shop)
	c.add(cart)
	if n := len(c.entries); n != toggles*requestsPerPlan {
		t.Errorf("%d of %d requests recorded an entry span", n, toggles*requestsPerPlan)
	}
	for _, s := range c.spans {
		c.checkParent(s)
		c.checkEnabled(s)
	}
	if c.enabled < toggles {
		t.Errorf("only %d spans were enabled: too few for a meaningful test", c.enabled)
	}
}

func nativeName(depth int) string { return fmt.Sprintf("native%d", depth) }
func spanName(depth int) string   { return fmt.Sprintf("span%d", depth) }

// togglePlan returns a plan for half of the requests. It enables the tracepoints selected by the bits of its version.
func togglePlan(v int64) *protocol.Plan {
	p := planOf(v)
	var ids []string
	for _, service := range []string{"shop", "cart"} {
		for i := range callDepth {
			if v>>i&1 == 1 {
				ids = append(ids, service+"/"+nativeName(i))
			} else {
				ids = append(ids, service+"/lib/"+spanName(i))
			}
		}
	}
	p.Arms[0].Share, p.Arms[0].Tracepoints = 0.5, enabled(ids...)
	return p
}

// runRequest runs a request through both services.
func runRequest(ctx context.Context, shop, cart *service) {
	ctx, entry := shop.enter(ctx, "GET /")
	defer entry.End()
	descend(ctx, shop, 0, func(ctx context.Context) {
		ctx, entry := cart.enter(propagate(ctx), "GET /cart")
		defer entry.End()
		descend(ctx, cart, 0, func(context.Context) {})
	})
}

// descend runs the tracepoints of a service from the given depth inwards, then inner.
func descend(ctx context.Context, s *service, depth int, inner func(ctx context.Context)) {
	if depth == callDepth {
		inner(ctx)
		return
	}
	ctx, end := s.Span(nativeName(depth)).Start(ctx)
	defer end()
	ctx, span := s.provider.Tracer("lib").Start(ctx, spanName(depth))
	defer span.End()
	descend(ctx, s, depth+1, inner)
}

// checker checks the recorded spans of two services.
type checker struct {
	t       *testing.T
	spans   map[trace.SpanID]sdk.ReadOnlySpan
	entries map[trace.TraceID]sdk.ReadOnlySpan // server spans of the shop
	enabled int                                // number of spans outside the baseline
}

func (c *checker) add(s *service) {
	if a, b := len(s.record.Started()), len(s.record.Ended()); a != b {
		c.t.Errorf("%d spans started, %d ended", a, b)
	}
	for _, span := range s.record.Ended() {
		c.spans[span.SpanContext().SpanID()] = span
		if !span.Parent().IsValid() {
			c.entries[span.SpanContext().TraceID()] = span
		}
	}
}

// order returns the depth of a span's code, which increases from caller to callee.
func order(s sdk.ReadOnlySpan) int {
	names := []string{"GET /"}
	inService := func() {
		for i := range callDepth {
			names = append(names, nativeName(i), spanName(i))
		}
	}
	inService()
	at := slices.Index(names, s.Name())
	switch {
	case s.Name() == "GET /cart":
		return len(names)
	case attributeText(s, protocol.KeyTracepoint) != "" && attributeText(s, protocol.KeyTracepoint)[:4] == "cart":
		return len(names) + at
	}
	return at
}

// checkParent checks that the parent of s was recorded and encloses its code.
func (c *checker) checkParent(s sdk.ReadOnlySpan) {
	if !s.Parent().IsValid() {
		if s.Name() != "GET /" {
			c.t.Errorf("%s has no parent", s.Name())
		}
		return
	}
	p := c.spans[s.Parent().SpanID()]
	switch {
	case p == nil:
		c.t.Errorf("the parent of %s was not recorded", s.Name())
	case p.SpanContext().TraceID() != s.SpanContext().TraceID() || order(p) >= order(s):
		c.t.Errorf("%s is the parent of %s", p.Name(), s.Name())
	}
}

// checkEnabled checks that s is enabled by the plan under which its request started.
func (c *checker) checkEnabled(s sdk.ReadOnlySpan) {
	id := attributeText(s, protocol.KeyTracepoint)
	if id == "" {
		return
	}
	c.enabled++
	entry := c.entries[s.SpanContext().TraceID()]
	var version int64
	if _, err := fmt.Sscan(attributeText(entry, protocol.KeyPlan), &version); err != nil {
		c.t.Fatalf("the entry span has no plan: %v", err)
	}
	if version == 0 || attributeText(entry, protocol.KeyArm) != "a" {
		c.t.Errorf("%s is enabled in a request of plan %d", id, version)
		return
	}
	is := func(e protocol.Enabled) bool { return e.ID == id }
	if !slices.ContainsFunc(togglePlan(version).Arms[0].Tracepoints, is) {
		c.t.Errorf("%s is enabled in a request of plan %d", id, version)
	}
}

func attributeText(s sdk.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}
