package observation_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// asPacked compares observations as they are after packing, which drops the shape.
var asPacked = cmp.Options{
	cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(observation.Observation{}, "Shape"),
}

// drawObservation returns an observation whose values are in range and in order, but unrelated to each other.
func drawObservation(t *rapid.T) *observation.Observation {
	word := rapid.Uint64()
	small := rapid.Uint64Range(0, 3)
	nanos := rapid.Int64Range(1, int64(trace.MaxDuration)-1)
	o := &observation.Observation{
		Trace: trace.ID{3: byte(small.Draw(t, "trace"))}, Root: trace.SpanID(word.Draw(t, "root")),
		Start: trace.Nanos(rapid.Int64().Draw(t, "start")), Duration: time.Duration(nanos.Draw(t, "duration")),
		Entry: trace.Op(small.Draw(t, "entry")), Failed: rapid.Bool().Draw(t, "failed"),
		Plan: rapid.Int64().Draw(t, "plan"), Arm: trace.Symbol(word.Draw(t, "arm")),
		Skeleton: analysis.Hash{Hi: word.Draw(t, "skeleton"), Lo: word.Draw(t, "skeleton")},
		Path:     observation.PathSums{Hi: word.Draw(t, "path"), Lo: word.Draw(t, "path"), N: word.Draw(t, "path")},
	}
	keys := func(label string) []uint64 { // distinct, ascending
		set := rapid.SliceOfNDistinct(small, 0, 3, rapid.ID).Draw(t, label)
		slices.Sort(set)
		return set
	}
	for _, service := range keys("behind") {
		o.Behind = append(o.Behind, trace.Symbol(service))
	}
	for _, op := range keys("children") {
		o.Children = append(o.Children, trace.Op(op))
	}
	for _, context := range keys("contexts") {
		count := rapid.Int32Min(0).Draw(t, "count")
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:    trace.Context(context),
			Parent:     trace.Context(small.Draw(t, "parent")),
			Op:         trace.Op(small.Draw(t, "op")),
			Target:     trace.Op(small.Draw(t, "target")),
			Peer:       trace.Op(small.Draw(t, "peer")),
			Unanswered: rapid.Int32Min(0).Draw(t, "unanswered"),
			Tracepoint: trace.Symbol(small.Draw(t, "tracepoint")),
			Count:      count,
			Errors:     rapid.Int32Range(0, count).Draw(t, "errors"),
			Exclusive:  rapid.Int64().Draw(t, "exclusive"),
			Self:       rapid.Int64().Draw(t, "self"),
			Total:      rapid.Int64().Draw(t, "total"),
		})
	}
	edges := func(within trace.Edge) (all []observation.EdgeTime) {
		for _, edge := range keys("edges") {
			all = append(all, observation.EdgeTime{
				Edge:    trace.Edge(edge),
				Context: trace.Context(small.Draw(t, "context")),
				Before:  trace.Op(small.Draw(t, "before")),
				After:   trace.Op(small.Draw(t, "after")),
				Within:  within,
				Nanos:   rapid.Int64Range(0, int64(o.Duration)).Draw(t, "ns"),
			})
		}
		return all
	}
	o.Edges = edges(0)
	for _, within := range keys("within") {
		o.Refined = append(o.Refined, edges(trace.Edge(within))...)
	}
	for _, at := range keys("variables") {
		v := observation.Variable{Context: trace.Context(at / 2), Key: trace.Symbol(at % 2)}
		if v.Numeric = rapid.Bool().Draw(t, "numeric"); v.Numeric {
			v.Number = rapid.SampledFrom([]float64{
				0, math.Copysign(0, -1), 1.5, math.NaN(), math.Inf(-1), math.MaxFloat64,
			}).Draw(t, "number")
		} else {
			v.Text = trace.Symbol(word.Draw(t, "text"))
		}
		o.Variables = append(o.Variables, v)
	}
	return o
}

// Observations are unpacked unchanged and in order, into memory that held others.
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
				t.Fatalf("packing changed the observation: %s", diff)
			}
			all = append(all, o)
		}
		var got observation.Observation
		for _, want := range all {
			var err error
			if packed, err = p.Unpack(packed, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &got, asPacked); diff != "" {
				t.Error(diff)
			}
		}
		if len(packed) != 0 {
			t.Errorf("%d bytes are left", len(packed))
		}
	})
}

// Truncated bytes, values that the dictionary lacks, and values out of range or out of order cause errors, and leave
// the zero value.
func TestUnpackRefuses(t *testing.T) {
	valid := func() *observation.Observation {
		context := observation.ContextCount{Context: 1, Count: 2, Errors: 1}
		edge, part := observation.EdgeTime{Edge: 1, Nanos: 5}, observation.EdgeTime{Edge: 1, Within: 1, Nanos: 5}
		return &observation.Observation{
			Duration:  5,
			Behind:    []trace.Symbol{1},
			Children:  []trace.Op{1},
			Contexts:  []observation.ContextCount{context},
			Edges:     []observation.EdgeTime{edge},
			Refined:   []observation.EdgeTime{part},
			Variables: []observation.Variable{{Context: 1}},
		}
	}
	refuses := func(name string, p *observation.Packer, b []byte) {
		t.Helper()
		o := observation.Observation{Duration: 7, Edges: make([]observation.EdgeTime, 3)}
		rest, err := p.Unpack(b, &o)
		if diff := cmp.Diff(observation.Observation{}, o); !errors.Is(err, codec.ErrCorrupt) ||
			rest != nil || diff != "" {
			t.Errorf("%s: error %v, %d bytes behind it, %s", name, err, len(rest), diff)
		}
	}
	var p observation.Packer
	packed := p.Append(nil, valid())
	for n := range packed {
		refuses("truncated", &p, packed[:n])
	}
	refuses("empty dictionary", &observation.Packer{}, packed)
	for name, change := range map[string]func(*observation.Observation){
		"no duration":     func(o *observation.Observation) { o.Duration = 0 },
		"too long":        func(o *observation.Observation) { o.Duration = trace.MaxDuration },
		"behind twice":    func(o *observation.Observation) { o.Behind = append(o.Behind, 1) },
		"child twice":     func(o *observation.Observation) { o.Children = append(o.Children, 1) },
		"context twice":   func(o *observation.Observation) { o.Contexts = append(o.Contexts, o.Contexts[0]) },
		"negative count":  func(o *observation.Observation) { o.Contexts[0].Count = -1 },
		"too many errors": func(o *observation.Observation) { o.Contexts[0].Errors = 3 },
		"edge twice":      func(o *observation.Observation) { o.Edges = append(o.Edges, o.Edges[0]) },
		"edge too long":   func(o *observation.Observation) { o.Edges[0].Nanos = 6 },
		"negative edge":   func(o *observation.Observation) { o.Edges[0].Nanos = -1 },
		"part before part": func(o *observation.Observation) {
			o.Refined = append(o.Refined, observation.EdgeTime{Edge: 2})
		},
		"variable twice": func(o *observation.Observation) { o.Variables = append(o.Variables, o.Variables[0]) },
	} {
		o := valid()
		change(o)
		written := observation.Packer{Limit: -1}
		refuses(name, &written, written.Append(nil, o))
		_, _, err := observation.DecodeObservation(observation.AppendObservation(nil, o))
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Saved samples lack the fields that only a grouper reads.
func TestPlainObservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawObservation(t)
		got, rest, err := observation.DecodeObservation(observation.AppendObservation(nil, want))
		if err != nil || len(rest) > 0 {
			t.Fatalf("%d bytes are left, error %v", len(rest), err)
		}
		want.Path = observation.PathSums{}
		for i := range want.Contexts {
			want.Contexts[i].Peer, want.Contexts[i].Unanswered = 0, 0
		}
		if diff := cmp.Diff(want, got, asPacked); diff != "" {
			t.Error(diff)
		}
	})
}

// A full dictionary takes no more values, and counts the values written out.
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

// Observations of traces, malformed ones included, are packed into few bytes and unpacked again.
func TestPackedTraces(t *testing.T) {
	var p observation.Packer
	bytes, n := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for _, o := range requests.Observe(tracetest.Traces(tracetest.Everything).Draw(t, "trace")) {
			packed := p.Append(nil, o)
			var got observation.Observation
			if rest, err := p.Unpack(packed, &got); err != nil || len(rest) > 0 {
				t.Fatalf("%d bytes are left, error %v", len(rest), err)
			}
			if diff := cmp.Diff(o, &got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
			bytes += len(packed)
			n += 1 + len(o.Contexts) + len(o.Edges) + len(o.Refined) + len(o.Variables)
		}
	})
	if bytes > 30*n {
		t.Errorf("%d bytes for %d items, want at most 30 for each", bytes, n)
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
		if diff := cmp.Diff(c, again, cmpopts.EquateNaNs()); diff != "" ||
			len(c.Edges) > 0 && cmp.Equal(o.Edges, c.Edges) && c.Edges[0] != (observation.EdgeTime{}) {
			t.Error("the clone changed with the original")
		}
	})
}
