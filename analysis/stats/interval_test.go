package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// latencies draws the times of the edges of one request.
type latencies func(r *rand.Rand) []float64

func lognormal(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}

// populations are healthy and slow groups with heavy tails.
var populations = []struct {
	name    string
	atLeast [2]float64 // minimum coverage of share and CoV at n = 50
	draw    latencies
}{
	{"log-normal σ=0.5", [2]float64{0.88, 0.88}, func(r *rand.Rand) []float64 {
		return []float64{lognormal(r, 2e6, 0.5), lognormal(r, 1e6, 0.5), lognormal(r, 1e6, 0.3)}
	}},
	{"slow path in 10 %", [2]float64{0.90, 0.90}, func(r *rand.Rand) []float64 {
		x := lognormal(r, 1e6, 0.3)
		if r.Float64() < 0.1 {
			x *= 8
		}
		return []float64{x, lognormal(r, 1e6, 0.3), lognormal(r, 1e6, 0.3)}
	}},
	{"shared cause", [2]float64{0.88, 0.82}, func(r *rand.Rand) []float64 {
		z := lognormal(r, 1e6, 0.5)
		return []float64{z * lognormal(r, 1, 0.2), 2 * z * lognormal(r, 1, 0.2), lognormal(r, 1e6, 0.3)}
	}},
	{"log-normal σ=1", [2]float64{0.88, 0.60}, func(r *rand.Rand) []float64 {
		return []float64{lognormal(r, 2e6, 1), lognormal(r, 1e6, 0.5), lognormal(r, 1e6, 0.3)}
	}},
}

func drawTable(r *rand.Rand, n int, draw latencies) (t stats.Table) {
	for range n {
		row := draw(r)
		t.Edges = len(row)
		var sum float64
		for _, x := range row {
			sum += x
		}
		t.Total = append(t.Total, sum)
		t.Cells = append(t.Cells, row...)
	}
	return t
}

// bootstrap returns a statistic of n requests with its percentile bootstrap interval. statistic receives the indices of
// a resample; NaNs are ignored.
func bootstrap(n, replicates int, seed uint64, statistic func(requests []int) float64) stats.Interval {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	requests := make([]int, n)
	for i := range requests {
		requests[i] = i
	}
	iv := stats.Interval{Value: statistic(requests)}
	values := make([]float64, 0, replicates)
	for range replicates {
		for i := range requests {
			requests[i] = r.IntN(n)
		}
		if v := statistic(requests); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	iv.Low, iv.High = stats.Quantile(values, (1-stats.Confidence)/2), stats.Quantile(values, (1+stats.Confidence)/2)
	return iv
}

func percentileShare(t stats.Table, seed uint64) stats.Interval {
	return bootstrap(len(t.Total), 400, seed, func(requests []int) float64 {
		var n, sx, st, sxt, stt float64
		for _, r := range requests {
			x, total := t.Cells[r*t.Edges], t.Total[r]
			n, sx, st, sxt, stt = n+1, sx+x, st+total, sxt+x*total, stt+total*total
		}
		return (n*sxt - sx*st) / (n*stt - st*st)
	})
}

// TestIntervalCoverage prints the coverage of the intervals and of the bootstrap.
func TestIntervalCoverage(t *testing.T) {
	const n, trials = 50, 400
	for _, p := range populations {
		r := rand.New(rand.NewPCG(7, 7))
		edges, total := drawTable(r, 300000, p.draw).Estimates()
		var share, mean, cov, lift, boot float64
		for i := range trials {
			table := drawTable(r, n, p.draw)
			es, all := table.Estimates()
			share += covers(es[0].Share, edges[0].Share.Value)
			mean += covers(es[0].Mean, edges[0].Mean.Value)
			cov += covers(all.CoV, total.CoV.Value)
			lift += covers(es[0].TailLift, edges[0].TailLift.Value)
			boot += covers(percentileShare(table, uint64(i)), edges[0].Share.Value)
		}
		t.Logf("%-18s n=%d: share %.3f (percentile bootstrap %.3f), mean %.3f, CoV %.3f, tail lift %.3f",
			p.name, n, share/trials, boot/trials, mean/trials, cov/trials, lift/trials)
		if share/trials < p.atLeast[0] || cov/trials < p.atLeast[1] || mean/trials < 0.85 || lift/trials < 0.8 {
			t.Errorf("%s: coverage is below the minimum", p.name)
		}
	}
}

// covers returns 1 if i contains truth, else 0.
func covers(i stats.Interval, truth float64) float64 {
	if i.Low <= truth && truth <= i.High {
		return 1
	}
	return 0
}

// The closed forms agree with a jackknife that recomputes every statistic.
func TestEstimatesJackknife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(4, 45).Draw(t, "n")
		table := drawTable(r, n, populations[rapid.IntRange(0, 3).Draw(t, "population")].draw)
		edges, _ := table.Estimates()
		for name, pick := range map[string]func(stats.Estimate) stats.Interval{
			"share":      func(e stats.Estimate) stats.Interval { return e.Share },
			"mean share": func(e stats.Estimate) stats.Interval { return e.MeanShare },
			"mean":       func(e stats.Estimate) stats.Interval { return e.Mean },
			"tail lift":  func(e stats.Estimate) stats.Interval { return e.TailLift },
		} {
			got := pick(edges[0])
			var loo []float64
			for i := range n {
				without := stats.Table{Edges: table.Edges}
				for k := range n {
					if k != i {
						without.Total = append(without.Total, table.Total[k])
						without.Cells = append(without.Cells, table.Row(k)...)
					}
				}
				es, _ := without.Estimates()
				loo = append(loo, pick(es[0]).Value)
			}
			var mean, ss float64
			for _, v := range loo {
				mean += v / float64(n)
			}
			for _, v := range loo {
				ss += (v - mean) * (v - mean)
			}
			se := math.Sqrt(ss * float64(n-1) / float64(n))
			half := (got.High - got.Low) / 2
			if ratio := half / se; !(ratio > 1.95 && ratio < 12.8) { // quantiles of t with 44 and 1 degrees of freedom
				t.Fatalf("%s: half width %v for a standard error of %v", name, half, se)
			}
		}
	})
}

func TestEstimatesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	edges, total := drawTable(r, 60, populations[0].draw).Estimates()
	var share, mean, lift float64
	for _, e := range edges {
		share, mean, lift = share+e.Share.Value, mean+e.MeanShare.Value, lift+e.TailLift.Value
	}
	if math.Abs(share-1) > 1e-9 || math.Abs(mean-1) > 1e-9 || math.Abs(lift/total.TailLift.Value-1) > 1e-9 {
		t.Errorf("shares add up to %v, mean shares to %v, tail lifts to %v, want 1, 1, %v",
			share, mean, lift, total.TailLift.Value)
	}
	if s := total.Share; math.Abs(s.Value-1) > 1e-12 || s.High-s.Low > 1e-9 {
		t.Errorf("share of the total is %+v, want 1 without error", s)
	}
}

func TestEstimatesWithoutError(t *testing.T) {
	for _, totals := range [][]float64{nil, {5}, {5, 7}, {5, 5, 5}, {0, 0, 9}} {
		edges, _ := stats.Table{Total: totals, Cells: totals, Edges: 1}.Estimates()
		if edges[0].Share.Valid() {
			t.Errorf("share of totals %v is %+v, want no bounds", totals, edges[0].Share)
		}
		if v := edges[0].Share.Value; len(totals) == 3 && totals[2] == 5 && !math.IsNaN(v) {
			t.Errorf("share of totals %v is %v, want NaN", totals, v)
		}
	}
}

// The interval of a CoV is symmetric on the logarithmic scale, so that both bounds are positive.
func TestEstimatesCoV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		_, total := drawTable(r, rapid.IntRange(4, 45).Draw(t, "n"),
			populations[rapid.IntRange(0, 3).Draw(t, "population")].draw).Estimates()
		c := total.CoV
		if !(c.Low > 0 && c.Low < c.Value) || math.Abs(c.Value/c.Low-c.High/c.Value) > 1e-9*c.High/c.Value {
			t.Fatalf("CoV is %+v, want a positive lower bound, and bounds at the same ratio to the value", c)
		}
	})
}

// If all requests but one are equal, the CoV without that one is 0 and has no logarithm. The interval starts at 0.
func TestEstimatesCoVOfOneOutlier(t *testing.T) {
	totals := []float64{5, 5, 5, 9}
	_, total := stats.Table{Total: totals, Cells: totals, Edges: 1}.Estimates()
	if c := total.CoV; c.Low != 0 || !(c.High > c.Value && c.High < 10) {
		t.Errorf("CoV of %v is %+v, want a lower bound of 0 and a finite upper one", totals, c)
	}
}

func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(-5, 5), 1, 100).Draw(t, "xs")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		sorted := slices.Clone(xs)
		slices.Sort(sorted)
		rank := q * float64(len(xs)-1)
		k := int(rank)
		want := sorted[k]
		if k+1 < len(xs) {
			want += (rank - float64(k)) * (sorted[k+1] - sorted[k])
		}
		if got := stats.Quantile(xs, q); math.Abs(got-want) > 1e-12 {
			t.Fatalf("Quantile() = %v, want %v", got, want)
		}
		slices.Sort(xs)
		if !slices.Equal(xs, sorted) {
			t.Fatalf("values are %v, want %v", xs, sorted)
		}
	})
}

func BenchmarkEstimates256x20(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	table := drawTable(r, 256, func(r *rand.Rand) []float64 {
		row := make([]float64, 20)
		for i := range row {
			row[i] = lognormal(r, 1e6, 0.5)
		}
		return row
	})
	b.ReportAllocs()
	for b.Loop() {
		table.Estimates()
	}
}

func TestProportion(t *testing.T) {
	for _, c := range []struct {
		k, n      uint64
		low, high float64
	}{{0, 10, 0, 0.3085}, {10, 10, 0.6915, 1}, {5, 10, 0.1871, 0.8129}} {
		i := stats.Proportion(c.k, c.n)
		near(t, "value", i.Value, float64(c.k)/float64(c.n), 1e-12)
		near(t, "low", i.Low, c.low, 1e-4)
		near(t, "high", i.High, c.high, 1e-4)
	}
	if i := stats.Proportion(0, 0); !math.IsNaN(i.Value) || i.Valid() {
		t.Errorf("Proportion(0, 0) = %+v, want NaN", i)
	}
}
