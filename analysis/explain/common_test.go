package explain

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// processes generates series of several edges for each of several request types. Each is an autoregressive process
// under a common periodic load. The shared series also follow the bursts of one lock.
type processes struct {
	rng     *rand.Rand
	types   int
	edges   int
	windows int
	memory  float64 // of the autoregressive process, 0–1
	shared  []int
}

func (x processes) series() []EdgeSeries {
	load := make([]float64, x.windows)
	lock := make([]float64, x.windows)
	for i := range load {
		load[i] = 50 + 30*math.Sin(float64(i)/20)
		lock[i] = 0
		if i > 0 {
			lock[i] = 0.7 * lock[i-1]
		}
		if x.rng.IntN(20) == 0 {
			lock[i] += 2
		}
	}
	var out []EdgeSeries
	for t := range x.types {
		counts := make([]uint64, x.windows)
		for i := range counts {
			counts[i] = uint64(load[i] * (0.8 + 0.4*x.rng.Float64()))
		}
		for e := range x.edges {
			s := EdgeSeries{
				RequestType: analysis.Hash{Hi: 1, Lo: uint64(t)},
				Edge:        trace.Edge(t*100 + e),
				Counts:      counts,
			}
			state := 0.0
			for i := range x.windows {
				state = x.memory*state + 0.3*x.rng.NormFloat64()
				level := state + load[i]/100
				if slices.Contains(x.shared, len(out)) {
					level += lock[i]
				}
				s.Means = append(s.Means, 1e6*math.Exp(level))
			}
			out = append(out, s)
		}
	}
	return out
}

func TestCommonLock(t *testing.T) {
	found, extra := 0, 0
	for seed := range uint64(20) {
		x := processes{rand.New(rand.NewPCG(seed, 1)), 10, 5, 180, 0.5, []int{3, 11, 27}}
		got := Common(x.series(), CommonOptions{})
		if len(got) > 0 && slices.Equal(got[0].Series, []int{3, 11, 27}) {
			found++
		}
		if len(got) > 1 {
			extra++
		}
	}
	if found < 19 || extra > 1 {
		t.Errorf("found the edges that share a lock in %d of 20 samples, others in %d, want 20, 0", found, extra)
	}
}

// Series that share only the load have no clusters, even with slow variation.
func TestCommonNothing(t *testing.T) {
	for _, memory := range []float64{0, 0.9, 0.99, 1} {
		found := 0
		for seed := range uint64(100) {
			x := processes{rand.New(rand.NewPCG(seed, 2)), 10, 4, 180, memory, nil}
			if got := Common(x.series(), CommonOptions{}); len(got) > 0 {
				found++
			}
		}
		if found > 5 {
			t.Errorf("memory %v: clusters in %d of 100 samples, want at most 5", memory, found)
		}
	}
}

func TestCommonEmpty(t *testing.T) {
	x := processes{rand.New(rand.NewPCG(1, 3)), 4, 2, 60, 0, nil}
	series := x.series()
	for i := range series[0].Counts { // shared by the edges of the type
		series[0].Counts[i] = 0
	}
	for i := range series[2].Means {
		series[2].Means[i] = 5
	}
	if got := Common(series, CommonOptions{}); got != nil {
		t.Errorf("Common() = %v, want none", got)
	}
	if got := Common(nil, CommonOptions{}); got != nil {
		t.Errorf("Common(nil) = %v, want none", got)
	}
}

func BenchmarkCommon(b *testing.B) {
	x := processes{rand.New(rand.NewPCG(1, 1)), 60, 5, 360, 0.5, []int{3, 11, 27}}
	series := x.series()
	b.ReportAllocs()
	for b.Loop() {
		Common(series, CommonOptions{})
	}
}
