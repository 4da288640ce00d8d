package stats_test

import (
	"errors"
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
)

// The size model, fitted to half of the transfers of 40 networks, classifies the other half accurately.
func TestSizeModel(t *testing.T) {
	for _, segments := range []float64{0.95, 20} {
		var ours transfergen.Confusion
		worstAccuracy, worstPrecision := 1.0, 1.0
		for seed := range uint64(40) {
			o := transfergen.Draw(seed, segments)
			train, test := transfergen.Generate(2*seed, 2000, o), transfergen.Generate(2*seed+1, 2000, o)
			sizes, latencies := transfergen.Columns(train)
			options := stats.DefaultSizeOptions()
			options.Timeout = float64(o.Timeout)
			m, err := stats.FitSize(sizes, latencies, options)
			if err != nil {
				t.Fatal(err)
			}
			c := transfergen.Classify(test, m.Class)
			ours.Add(c)
			worstAccuracy = min(worstAccuracy, c.Accuracy())
			worstPrecision = min(worstPrecision, c.Precision(transfergen.Delayed))
		}
		if ours.Accuracy() < 0.99 || ours.Precision(transfergen.Delayed) < 0.95 || worstAccuracy < 0.99 ||
			worstPrecision < 0.95 {
			t.Errorf("up to %v packets: accuracy %.4f, precision %.4f, worst %.4f, %.4f, want at least 0.99, 0.95",
				segments,
				ours.Accuracy(), ours.Precision(transfergen.Delayed), worstAccuracy, worstPrecision)
		}
	}
}

func TestFitSize(t *testing.T) {
	o := transfergen.Options{
		Segment: 1460, MaxSegments: 10, Base: 1e6, PerByte: 20, PerSegment: 300e3, Jitter: 0.01, Floor: 1e4,
		Delayed: 0.1, TimedOut: 0.02, Timeout: 3e9, RTO: 2e8,
	}
	sizes, latencies := transfergen.Columns(transfergen.Generate(1, 4000, o))
	options := stats.DefaultSizeOptions()
	options.Timeout = 3e9
	m, err := stats.FitSize(sizes, latencies, options)
	if err != nil || m.Segment != 1460 {
		t.Fatalf("FitSize() = %+v, %v, want a segment of 1460", m, err)
	}
	near(t, "base", m.Base, 1e6, 2e4)
	near(t, "per byte", m.PerByte, 20, 1)
	near(t, "per segment", m.PerSegment, 300e3, 2e3)
	s := m.Summary(sizes, latencies)
	near(t, "delayed", float64(s.Delayed)/4000, 0.1, 0.02)
	near(t, "timed out", float64(s.TimedOut)/4000, 0.02, 0.01)
	if again, _ := stats.FitSize(sizes, latencies, options); again != m {
		t.Errorf("fitted again, %+v, want %+v", again, m)
	}
}

func TestFitSizeOfOneSize(t *testing.T) {
	sizes, latencies := make([]float64, 50), make([]float64, 50)
	for i := range sizes {
		sizes[i], latencies[i] = 100, 5e6+float64(i%7)*1e4
	}
	m, err := stats.FitSize(sizes, latencies, stats.DefaultSizeOptions())
	if err != nil || math.Abs(m.Expected(100)-5e6) > 1e5 || m.PerByte < 0 || m.PerSegment < 0 {
		t.Errorf("FitSize() = %+v, %v, want 5e6 ns for 100 bytes", m, err)
	}
	if m.Class(100, 5e6) != stats.SizeNormal || m.Class(100, 9e6) != stats.SizeDelayed {
		t.Errorf("Class() = %v, %v, want normal, delayed", m.Class(100, 5e6), m.Class(100, 9e6))
	}
	if _, err := stats.FitSize(sizes[:5], latencies[:5], stats.DefaultSizeOptions()); !errors.Is(err, stats.ErrTooFew) {
		t.Errorf("FitSize() of five transfers: %v, want ErrTooFew", err)
	}
}

func BenchmarkFitSize(b *testing.B) {
	sizes, latencies := transfergen.Columns(transfergen.Generate(1, 2000, transfergen.Draw(1, 20)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stats.FitSize(sizes, latencies, stats.DefaultSizeOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
