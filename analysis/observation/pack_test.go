package observation_test

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/requests"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/bench/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// drawObservation returns an observation with any values, possible or not.
func drawObservation(t *rapid.T) *observation.Observation {
	word := rapid.Uint64()
	small := rapid.Uint64Range(0, 3)
	o := &observation.Observation{
		Trace: trace.ID{3: byte(small.Draw(t, "trace"))}, Root: trace.SpanID(word.Draw(t, "root")),
		Start: trace.Nanos(rapid.Int64().Draw(t, "start")), Duration: time.Duration(rapid.Int64().Draw(t, "duration")),
		Entry: trace.Op(small.Draw(t, "entry")), Failed: rapid.Bool().Draw(t, "failed"),
		Plan: rapid.Int64().Draw(t, "plan"), Arm: trace.Symbol(word.Draw(t, "arm")),
		Skeleton: analysis.Hash{Hi: word.Draw(t, "skeleton"), Lo: word.Draw(t, "skeleton")},
	}
	count := func(label string) int { return rapid.IntRange(0, 3).Draw(t, label) }
	for range count("children") {
		o.Children = append(o.Children, trace.Op(small.Draw(t, "child")))
	}
	for range count("contexts") {
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context: trace.Context(small.Draw(t, "context")), Parent: trace.Context(small.Draw(t, "parent")), Op: trace.Op(small.Draw(t, "op")),
			Tracepoint: trace.Symbol(small.Draw(t, "tracepoint")), Count: rapid.Int32Min(0).Draw(t, "count"), Errors: rapid.Int32Min(0).Draw(t, "errors"),
			Exclusive: rapid.Int64().Draw(t, "exclusive"), Self: rapid.Int64().Draw(t, "self"), Total: rapid.Int64().Draw(t, "total"),
		})
	}
	edges := func() (all []observation.EdgeTime) {
		for range count("edges") {
			all = append(all, observation.EdgeTime{
				Edge: trace.Edge(small.Draw(t, "edge")), Context: trace.Context(small.Draw(t, "context")), Before: trace.Op(small.Draw(t, "before")),
				After: trace.Op(small.Draw(t, "after")), Callee: trace.Op(small.Draw(t, "callee")), Within: trace.Edge(small.Draw(t, "within")),
				Nanos: rapid.Int64().Draw(t, "ns"),
			})
		}
		return all
	}
	o.Edges, o.Refined = edges(), edges()
	for range count("variables") {
		v := observation.Variable{Context: trace.Context(small.Draw(t, "context")), Key: trace.Symbol(small.Draw(t, "key"))}
		if v.Numeric = rapid.Bool().Draw(t, "numeric"); v.Numeric {
			v.Number = rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1.5, math.NaN(), math.Inf(-1), math.MaxFloat64}).Draw(t, "number")
		} else {
			v.Text = trace.Symbol(word.Draw(t, "text"))
		}
		o.Variables = append(o.Variables, v)
	}
	return o
}

// Observations come back as they were, in order, into memory that held others.
func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := observation.Packer{Limit: rapid.IntRange(0, 3).Draw(t, "limit")}
		var packed []byte
		var all []*observation.Observation
		for range rapid.IntRange(1, 5).Draw(t, "observations") {
			o := drawObservation(t)
			before := o.Clone()
			packed = p.Append(packed, o)
			if diff := cmp.Diff(before, o, cmpopts.EquateNaNs()); diff != "" {
				t.Fatalf("packing changed it: %s", diff)
			}
			all = append(all, o)
		}
		var got observation.Observation
		for _, want := range all {
			packed = p.Unpack(packed, &got)
			if diff := cmp.Diff(want, &got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(observation.Observation{}, "Shape")); diff != "" {
				t.Error(diff)
			}
		}
		if len(packed) != 0 {
			t.Errorf("%d bytes are left", len(packed))
		}
	})
}

// A full dictionary takes no more, and what it lacks is counted.
func TestPackerIsBounded(t *testing.T) {
	p := observation.Packer{Limit: 2}
	var b []byte
	for i := range 5 {
		b = p.Append(b, &observation.Observation{Entry: trace.Op(i + 1)})
	}
	p.Append(b, &observation.Observation{Entry: 1})
	if p.Inline != 3 {
		t.Errorf("%d values were written out, want 3", p.Inline)
	}
}

// What real traces give is small.
func TestPackedSize(t *testing.T) {
	var p observation.Packer
	bytes, n := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for _, o := range requests.Observe(tracetest.Traces(tracetest.Shape{Attrs: true}).Draw(t, "trace")) {
			bytes += len(p.Append(nil, o))
			n += 1 + len(o.Contexts) + len(o.Edges) + len(o.Refined) + len(o.Variables)
		}
	})
	if bytes > 30*n {
		t.Errorf("%d bytes for %d items", bytes, n)
	}
}

// A clone shares nothing.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawObservation(t)
		c := o.Clone()
		if diff := cmp.Diff(o, c, cmpopts.EquateNaNs()); diff != "" {
			t.Fatal(diff)
		}
		clear(o.Children)
		clear(o.Contexts)
		clear(o.Edges)
		clear(o.Refined)
		clear(o.Variables)
		again := c.Clone()
		if diff := cmp.Diff(c, again, cmpopts.EquateNaNs()); diff != "" || len(c.Edges) > 0 && cmp.Equal(o.Edges, c.Edges) && c.Edges[0] != (observation.EdgeTime{}) {
			t.Error("the clone changed")
		}
	})
}
