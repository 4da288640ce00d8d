package throughput

import (
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// The folded model finds three clusters of latency per byte in the last packet, and the line of the fastest one.
func TestFitFolded(t *testing.T) {
	const segment = 1000
	perByte := [3]float64{100, 1000, 100e3} // by class
	var sizes, latencies []float64
	var classes []stats.SizeClass
	for i := range 500 {
		inLast := float64(1 + i%(segment-1))
		class := []stats.SizeClass{
			stats.SizeNormal, stats.SizeDelayed, stats.SizeNormal, stats.SizeDelayed, stats.SizeTimedOut,
		}[i%5]
		sizes, classes = append(sizes, float64(i%3)*segment+inLast), append(classes, class)
		latencies = append(latencies, perByte[class]*inLast)
	}
	m := fitFolded(sizes, latencies, segment)
	for k, want := range perByte {
		if !(math.Abs(m.centers[k]-want) < 1e-6*want) {
			t.Errorf("centers are %v, want %v", m.centers, perByte)
			break
		}
	}
	if !(math.Abs(m.base) < 1e-3 && math.Abs(m.perByte-100) < 1e-6) {
		t.Errorf("the line is %v + %v per byte, want 0 + 100", m.base, m.perByte)
	}
	for i, want := range classes {
		if got := m.class(sizes[i], latencies[i]); got != want {
			t.Errorf("the class of %v bytes in %v ns is %v, want %v", sizes[i], latencies[i], got, want)
		}
	}
}
