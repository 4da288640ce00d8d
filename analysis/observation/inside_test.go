package observation_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// The part of a request inside some operations has all of their own time, and all time of the tracepoints that refine
// it. Its contexts start at the operations. Inside is idempotent.
func TestInside(t *testing.T) {
	var some, none, refined int
	rapid.Check(t, func(t *rapid.T) {
		for _, o := range requests.Observe(tracetest.Traces(tracetest.Everything).Draw(t, "trace")) {
			operations := make(map[trace.Op]bool)
			for i := range o.Contexts {
				if c := &o.Contexts[i]; c.Tracepoint == 0 && rapid.Bool().Draw(t, "in") {
					operations[c.Step()] = true
				}
			}
			if ambiguous(o) {
				continue
			}
			own := make(map[trace.Op]int64)
			var total time.Duration
			for _, e := range o.Edges {
				if step := o.Context(e.Context).Step(); operations[step] {
					own[step] += e.Nanos
					total += time.Duration(e.Nanos)
				}
			}
			var in observation.Observation
			if got := o.Inside(operations, &in); got != (total > 0) {
				t.Fatalf("%v, with %v inside", got, total)
			}
			if total == 0 {
				none++
				continue
			}
			some++
			if in.Duration != total || len(in.Edges) != len(own) {
				t.Fatalf("%v in %d operations, want %v in %d", in.Duration, len(in.Edges), total, len(own))
			}
			for _, e := range in.Edges {
				c := in.Context(e.Context)
				if c == nil || c.Parent != 0 || e.Context != trace.Context(0).Child(c.Step()) ||
					e.Nanos != own[c.Step()] {
					t.Fatalf("edge %+v of context %+v, want %d ns", e, c, own[c.Step()])
				}
			}
			if diff := gocmp.Diff(byTracepoint(o, operations), byTracepoint(&in, operations)); diff != "" {
				t.Fatalf("times of tracepoints in the request (-) and inside (+):\n%s", diff)
			}
			refined += len(in.Refined)
			strictly := func(a, b observation.ContextCount) int { return cmp.Or(cmp.Compare(a.Context, b.Context), -1) }
			if !slices.IsSortedFunc(in.Contexts, strictly) {
				t.Fatal("contexts are not ascending and distinct")
			}
			var again observation.Observation
			if !in.Inside(operations, &again) {
				t.Fatal("nothing is inside the part")
			}
			if diff := gocmp.Diff(in, again, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
	if some == 0 || none == 0 || refined == 0 {
		t.Errorf("%d requests with and %d without time inside, %d refined parts: want some of each",
			some, none, refined)
	}
}

// ambiguous reports whether a tracepoint refines the time of an operation other than its context's: then an operation
// has spans with and without a tracepoint at one place. Real tracepoints are operations of their own.
func ambiguous(o *observation.Observation) bool {
	within := make(map[trace.Edge]trace.Context)
	for _, e := range o.Edges {
		within[e.Edge] = e.Context
	}
	return slices.ContainsFunc(o.Refined, func(e observation.EdgeTime) bool {
		c := o.Context(e.Context)
		for c != nil && c.Tracepoint != 0 {
			c = o.Context(c.Parent)
		}
		return c == nil || c.Context != within[e.Within]
	})
}

// byTracepoint returns the times of the parts of o that tracepoints refine, inside operations.
func byTracepoint(o *observation.Observation, operations map[trace.Op]bool) map[trace.Symbol]int64 {
	within := make(map[trace.Edge]trace.Op)
	for _, e := range o.Edges {
		within[e.Edge] = o.Context(e.Context).Step()
	}
	times := make(map[trace.Symbol]int64)
	for _, e := range o.Refined {
		if c := o.Context(e.Context); operations[within[e.Within]] && c.Tracepoint != 0 {
			times[c.Tracepoint] += e.Nanos
		}
	}
	return times
}

// Sums of absurd times don't wrap.
func TestInsideSaturates(t *testing.T) {
	const root, op = trace.Op(1), trace.Op(2)
	top := trace.Context(0).Child(root)
	outer := top.Child(op)
	inner := outer.Child(op)
	o := observation.Observation{
		Duration: 1,
		Contexts: []observation.ContextCount{
			{Context: top, Op: root, Count: 1},
			{Context: outer, Parent: top, Op: op, Count: 1, Self: math.MaxInt64, Total: math.MaxInt64},
			{Context: inner, Parent: outer, Op: op, Count: 1, Self: 1, Total: math.MaxInt64},
		},
		Edges: []observation.EdgeTime{{Context: outer, Nanos: 1}},
	}
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	var in observation.Observation
	if !o.Inside(map[trace.Op]bool{op: true}, &in) || len(in.Contexts) != 1 {
		t.Fatalf("contexts %+v, want one", in.Contexts)
	}
	if c := in.Contexts[0]; c.Self != math.MaxInt64 || c.Total != math.MaxInt64 || c.Count != 2 {
		t.Errorf("got %+v, want the largest times of two calls", c)
	}
}
