package critpath_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// simulated returns the predicted duration for each edge of o at half its time.
func simulated(s *critpath.Simulation, o *observation.Observation) (after []time.Duration) {
	for _, e := range o.Edges {
		after = append(after, s.WhatIf(false, e.Edge, e.Nanos, e.Nanos/2))
	}
	return after
}

// A simulation agrees with [critpath.WhatIf], even if it was captured in used memory, copied or decoded.
func TestSimulation(t *testing.T) {
	var s critpath.Simulation
	rapid.Check(t, func(t *rapid.T) {
		p, root := drawPath(t, tracetest.Everything)
		if p.Unusable(root) != "" {
			t.Skip("no observation")
		}
		var o observation.Observation
		new(observation.Observer).Observe(p, root, &o)
		var want []time.Duration
		for _, e := range o.Edges {
			want = append(want, critpath.WhatIf(p, root, false, func(edge trace.Edge, nanos int64) int64 {
				if edge == e.Edge {
					return nanos / 2
				}
				return nanos
			}))
		}
		s.Capture(p, root)
		if got := simulated(&s, &o); !slices.Equal(got, want) {
			t.Fatalf("captured simulation predicts %v, want %v\n%s", got, want, dump(p.Trace))
		}
		c := s.Clone()
		s.Capture(p, 0)
		if got := simulated(c, &o); !slices.Equal(got, want) {
			t.Fatalf("copied simulation predicts %v, want %v\n%s", got, want, dump(p.Trace))
		}
		b := c.AppendBinary(nil)
		d, rest, err := critpath.DecodeSimulation(append(slices.Clone(b), 1, 2))
		if err != nil || len(rest) != 2 {
			t.Fatalf("error %v, %d bytes left, want nil, 2", err, len(rest))
		}
		if got := simulated(d, &o); !slices.Equal(got, want) || !bytes.Equal(d.AppendBinary(nil), b) {
			t.Fatalf("decoded simulation predicts %v, want %v\n%s", got, want, dump(p.Trace))
		}
	})
}

func FuzzDecodeSimulation(f *testing.F) {
	traces := benchTraces(4, 20, false)
	x := critpath.NewExtractor(critpath.DefaultOptions())
	for i := range traces {
		var s critpath.Simulation
		s.Capture(x.Extract(&traces[i]), 0)
		f.Add(s.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := critpath.DecodeSimulation(b)
		if err != nil {
			if s != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("DecodeSimulation() = %v, %v, %v, want nil, nil, ErrCorrupt", s, rest, err)
			}
			return
		}
		if again := s.AppendBinary(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Fatalf("decoded and encoded %x, want %x", again, b)
		}
		s.WhatIf(false, 1, 5, 3)
		s.WhatIf(true, 1, 5, 3)
	})
}

func BenchmarkCapture(b *testing.B) {
	traces := benchTraces(16, 50, false)
	x := critpath.NewExtractor(critpath.DefaultOptions())
	p := x.Extract(&traces[0])
	var s critpath.Simulation
	b.ReportAllocs()
	for b.Loop() {
		s.Capture(p, 0)
	}
	reportSpans(b, 50)
}
