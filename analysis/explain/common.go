package explain

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// EdgeSeries is the mean time of one edge of one request type, window by window. Windows are aligned: number i is the
// same stretch of time (10 s, say) in every series.
type EdgeSeries struct {
	RequestType analysis.Hash
	Edge        trace.Edge
	Means       []float64 // exclusive ns a request; ignored where Counts is 0
	Counts      []uint64  // requests of the type in the window
}

// CommonOptions say what counts as common. The zero value takes the defaults.
type CommonOptions struct {
	Alpha       float64 // probability of naming any pair of edges that have nothing in common; 0: 0.02
	Correlation float64 // least correlation of a pair; 0: 0.3
	Windows     int     // least number of windows; 0: 30
}

// Cluster is a set of edges, of at least two request types, that rise and fall together: they point to a lock or a
// dependency that they share.
type Cluster struct {
	Series      []int   // numbers of the series, ascending
	Correlation float64 // mean over the pairs that were found
	PValue      float64 // the smallest of these pairs, corrected for the number of pairs tried
}

// Bounds of the edges that are compared by [CommonOf].
const (
	SeriesTypes   = 40  // request types, the most frequent ones
	SeriesEdges   = 5   // edges of a request type, those with the most time
	SeriesWindows = 360 // windows
	SeriesWindow  = 10 * time.Second
)

// CommonEdges are places in different request types that rise and fall together: they may share a lock or a dependency.
type CommonEdges struct {
	Edges       []TypedEdge
	Correlation float64 // mean over the pairs that were found
	PValue      float64 // corrected for the number of pairs tried
}

// TypedEdge is the own time of a calling context in the requests of one type.
type TypedEdge struct {
	RequestType analysis.Hash
	Context     trace.Context
}

// CommonOf returns the places of different request types that rise and fall together, by falling correlation. The edges
// of the series are whole ones.
func CommonOf(series []EdgeSeries) []CommonEdges {
	var all []CommonEdges
	for _, c := range Common(series, CommonOptions{}) {
		x := CommonEdges{Correlation: c.Correlation, PValue: c.PValue}
		for _, i := range c.Series {
			x.Edges = append(x.Edges, TypedEdge{series[i].RequestType, trace.Context(series[i].Edge)}) // a whole edge is its context
		}
		all = append(all, x)
	}
	return all
}

// Bounds of [Common].
const (
	fullEnough = 0.8 // part of the windows in which a series needs a request
	outlier    = 5   // MADs from the median beyond which a window counts as just that far
	shiftLevel = 0.02
	stepLevel  = 0.01
	// leastIndependent is how many independent windows a pair must be worth: with fewer, Fisher's scale is no longer
	// normal.
	leastIndependent = 8
)

// Common returns the clusters of edges in different request types that rise and fall together, the most correlated
// first. All series have the same number of windows.
//
//  1. A series is taken by its logarithm; windows without a request count as its median, and what lies far out is brought in: bursts
//     count, but one window does not decide.
//  2. What goes along with the load, that of the type and that of all, is removed: all edges get slower under load.
//  3. Pairs of series of different request types are correlated. A slow tide in both makes any two series correlate, so the p-value
//     is judged by how large correlations are when one series is shifted against the other, in a circle. Their mean square over all shifts is
//     Σ ρ₁ρ₂/n over the lags of the two autocorrelations (Parseval), which takes one pass a pair; with it the correlation
//     is judged on Fisher's scale. Holm corrects for the number of pairs.
//  4. What remains significant must also be among the largest 2 % over the shifts themselves, and the changes from window to
//     window must correlate too (1 %): two random walks often go together, but not step by step.
//  5. Series that are connected by such pairs form a cluster.
//
// It takes time O(windows) for each pair.
func Common(series []EdgeSeries, o CommonOptions) []Cluster {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Correlation = cmp.Or(o.Correlation, 0.3)
	o.Windows = cmp.Or(o.Windows, 30)
	if len(series) < 2 || len(series[0].Means) < o.Windows {
		return nil
	}
	waves := wavesOf(series)
	return clusters(len(series), correlate(series, waves, o))
}

// wave is a series made comparable.
type wave struct {
	values []float64 // mean 0, norm 1; nil: the series cannot be judged
	lags   []float64 // its autocorrelation in a circle: lags[k] is Σ values[i]·values[i+k]
}

func wavesOf(series []EdgeSeries) []wave {
	n := len(series[0].Means)
	loads := loadsOf(series, n)
	fft := fourier.NewFFT(n)
	waves := make([]wave, len(series))
	for i := range series {
		values := logsOf(&series[i])
		if values == nil {
			continue
		}
		f := newFit(values)
		f.control([][]float64{loads[series[i].RequestType], loads[analysis.Hash{}]})
		if f.square <= negligible*f.total || f.total == 0 {
			continue
		}
		floats.Scale(1/math.Sqrt(f.square), f.rest)
		waves[i] = wave{f.rest, autocorrelation(fft, f.rest)}
	}
	return waves
}

// loadsOf returns the logarithm of the number of requests in every window: of each request type and, under the zero
// Hash, of all.
func loadsOf(series []EdgeSeries, n int) map[analysis.Hash][]float64 {
	loads := map[analysis.Hash][]float64{{}: make([]float64, n)}
	for i := range series {
		s := &series[i]
		if loads[s.RequestType] != nil {
			continue // all edges of a type count the same requests
		}
		own := make([]float64, n)
		for k, c := range s.Counts {
			own[k] = float64(c)
			loads[analysis.Hash{}][k] += float64(c)
		}
		loads[s.RequestType] = own
	}
	for _, load := range loads {
		for k := range load {
			load[k] = math.Log1p(load[k])
		}
	}
	return loads
}

// logsOf returns the logarithms of a series, nil if too many windows are empty or nothing varies.
func logsOf(s *EdgeSeries) []float64 {
	logs := make([]float64, len(s.Means))
	var known, scratch []float64
	sum := 0.0
	for i, c := range s.Counts {
		if c > 0 {
			sum += s.Means[i]
			known = append(known, s.Means[i])
		}
	}
	if float64(len(known)) < fullEnough*float64(len(logs)) || !(sum > 0) {
		return nil
	}
	floor := sum / float64(len(known)) / 100 // differences below it do not matter, and 0 has a logarithm
	for i, v := range known {
		known[i] = math.Log(v + floor)
	}
	center := stats.Median(slices.Clone(known))
	spread := stats.MAD(known, center, scratch)
	if spread == 0 {
		spread = stat.PopStdDev(known, nil) // most windows are equal
	}
	for i, c := range s.Counts {
		if c > 0 {
			logs[i] = max(-outlier*spread, min(outlier*spread, math.Log(s.Means[i]+floor)-center))
		}
	}
	return logs
}

// autocorrelation returns Σ v[i]·v[i+k], in a circle, for every lag k.
func autocorrelation(fft *fourier.FFT, v []float64) []float64 {
	spectrum := fft.Coefficients(nil, v)
	for i, c := range spectrum {
		spectrum[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}
	lags := fft.Sequence(nil, spectrum)
	floats.Scale(1/float64(len(v)), lags) // gonum's transforms are not normalised
	return lags
}

// commonPair is two series that correlate.
type commonPair struct {
	a, b        int
	correlation float64
	pValue      float64
}

// correlate returns the pairs of series that rise and fall together.
func correlate(series []EdgeSeries, waves []wave, o CommonOptions) []commonPair {
	var pairs []commonPair
	tried := 0
	for i := range waves {
		for k := i + 1; k < len(waves); k++ {
			if waves[i].values == nil || waves[k].values == nil || series[i].RequestType == series[k].RequestType {
				continue
			}
			tried++
			r := floats.Dot(waves[i].values, waves[k].values)
			if r < o.Correlation {
				continue
			}
			variance := floats.Dot(waves[i].lags, waves[k].lags) / float64(len(waves[i].lags))
			if p := shiftPValue(r, variance); p <= o.Alpha {
				pairs = append(pairs, commonPair{i, k, r, p})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b commonPair) int {
		return cmp.Or(cmp.Compare(a.pValue, b.pValue), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	})
	kept, level := pairs[:0], 0.0
	for i, p := range pairs {
		level = max(level, p.pValue*float64(tried-i)) // Holm
		if level > o.Alpha {
			break
		}
		if standsOut(waves[p.a].values, waves[p.b].values, p.correlation) && stepTogether(waves[p.a].values, waves[p.b].values) {
			p.pValue = level
			kept = append(kept, p)
		}
	}
	return kept
}

// shiftPValue returns the probability of a correlation of at least r by chance, if those of shifted series have the
// given mean square.
func shiftPValue(r, variance float64) float64 {
	// On Fisher's scale the correlation of n independent pairs has variance 1/(n−3), and 1/(n−1) as it is.
	independent := 1/variance + 1
	if independent < leastIndependent {
		return 1
	}
	return math.Erfc(math.Atanh(min(r, 1-1e-12))*math.Sqrt((independent-3)/2)) / 2
}

// standsOut reports whether a correlation is among the largest over all shifts of a against b in a circle.
func standsOut(a, b []float64, correlation float64) bool {
	n := len(a)
	allowed := int(shiftLevel * float64(n))
	for shift := 1; shift < n; shift++ {
		if floats.Dot(a[shift:], b[:n-shift])+floats.Dot(a[:shift], b[n-shift:]) >= correlation {
			if allowed--; allowed < 0 {
				return false
			}
		}
	}
	return true
}

// stepTogether reports whether the changes from window to window correlate.
func stepTogether(a, b []float64) bool {
	x, y := make([]float64, len(a)-1), make([]float64, len(b)-1)
	floats.SubTo(x, a[1:], a[:len(a)-1])
	floats.SubTo(y, b[1:], b[:len(b)-1])
	return shiftPValue(stat.Correlation(x, y, nil), 1/float64(len(x)-1)) <= stepLevel
}

// clusters returns the connected sets of n series.
func clusters(n int, pairs []commonPair) []Cluster {
	leader := make([]int, n)
	for i := range leader {
		leader[i] = i
	}
	find := func(i int) int {
		for leader[i] != i {
			leader[i] = leader[leader[i]]
			i = leader[i]
		}
		return i
	}
	for _, p := range pairs {
		a, b := find(p.a), find(p.b)
		leader[max(a, b)] = min(a, b)
	}
	byLeader := make(map[int]*Cluster)
	counts := make(map[int]float64)
	for _, p := range pairs {
		l := find(p.a)
		c := byLeader[l]
		if c == nil {
			c = &Cluster{PValue: p.pValue}
			byLeader[l] = c
		}
		c.Series = append(c.Series, p.a, p.b)
		c.Correlation += p.correlation
		c.PValue = min(c.PValue, p.pValue)
		counts[l]++
	}
	var out []Cluster
	for l, c := range byLeader {
		slices.Sort(c.Series)
		c.Series = slices.Compact(c.Series)
		c.Correlation /= counts[l]
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(b.Correlation, a.Correlation), cmp.Compare(a.Series[0], b.Series[0]))
	})
	return out
}
