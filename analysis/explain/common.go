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
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// EdgeSeries holds the mean times of one edge of one request type by window. Windows are aligned: window i is the same
// period of time, such as 10 s, in every series.
type EdgeSeries struct {
	RequestType analysis.Hash
	Edge        trace.Edge
	Means       []float64 // exclusive ns per request; ignored where Counts is 0
	Counts      []uint64  // number of requests of the type in the window
}

// CommonOptions configure [Common]. The zero value selects the defaults.
type CommonOptions struct {
	Alpha       float64 // probability of reporting any pair of edges if no pair is related; default 0.02
	Correlation float64 // minimum correlation of a pair; default 0.3
	Windows     int     // minimum number of windows; default 30
}

// Cluster is a set of edges of at least two request types whose times rise and fall together, for example because they
// share a lock or a dependency.
type Cluster struct {
	Series      []int   // indices of the series, ascending
	Correlation float64 // mean over the pairs found
	PValue      float64 // smallest p-value of the pairs found, corrected for the number of pairs tested
}

// Limits on the series for [CommonOf], and the length of their windows.
const (
	SeriesTypes   = 40  // number of request types: the most frequent ones
	SeriesEdges   = 5   // number of edges per request type: the edges with the most time
	SeriesWindows = 360 // number of windows
	SeriesWindow  = 10 * time.Second
)

// CommonEdges are edges of different request types whose times rise and fall together: they may share a lock or a
// dependency.
type CommonEdges struct {
	Edges       []TypedEdge
	Correlation float64 // mean over the pairs found
	PValue      float64 // corrected for the number of pairs tested
}

// TypedEdge is the own time of a calling context in the requests of one type.
type TypedEdge struct {
	RequestType analysis.Hash
	Context     trace.Context
}

// CommonOf returns the edges of different request types whose times rise and fall together, in descending order of
// correlation. The edges of the series must be results of [trace.ContextEdge].
func CommonOf(series []EdgeSeries) []CommonEdges {
	var all []CommonEdges
	for _, c := range Common(series, CommonOptions{}) {
		x := CommonEdges{Correlation: c.Correlation, PValue: c.PValue}
		for _, i := range c.Series {
			x.Edges = append(x.Edges, TypedEdge{series[i].RequestType, trace.Context(series[i].Edge)})
		}
		all = append(all, x)
	}
	return all
}

// Thresholds of [Common].
const (
	minFilled  = 0.8  // minimum fraction of the windows with requests
	outlier    = 5    // values are clamped to this number of MADs from the median
	shiftLevel = 0.02 // significance level of the test by shifts
	stepLevel  = 0.01 // significance level of the test by steps
	// minIndependent is the minimum effective number of independent windows of a pair. We don't test pairs with fewer,
	// because their correlations are not normally distributed on Fisher's scale.
	minIndependent = 8
)

// Common returns the clusters of edges of different request types whose times rise and fall together, the most
// correlated first. All series must have the same number of windows.
//
//  1. Take the logarithm of each series. Replace windows without a request by the median, and clamp outliers, so that
//     bursts count but no window dominates.
//  2. Remove the linear effect of the load of the request type, and of the total load, because all edges get slower
//     under load.
//  3. Correlate pairs of series of different request types. Any two series correlate if both vary slowly, so the
//     p-value is relative to the correlations under circular shifts of one series. Their mean square over all shifts is
//     Σ ρ₁ρ₂/n over the lags of the two autocorrelations (Parseval), which takes one pass per pair. The p-value is
//     computed from this mean square on Fisher's scale, and corrected for the number of pairs (Holm).
//  4. Keep a significant pair if its correlation is among the largest 2 % over all shifts, and if the changes from
//     window to window correlate, too (at the 1 % level): two random walks often correlate, but their steps do not.
//  5. Series that are connected by such pairs form a cluster.
//
// Common takes time O(windows) per pair, and O(windows²) per significant pair. It returns nil if there are fewer than
// two series, or fewer than o.Windows windows.
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

// wave is a series prepared for correlation.
type wave struct {
	values []float64 // mean 0, norm 1; nil if the series cannot be tested
	lags   []float64 // circular autocorrelation: lags[k] is Σ values[i]·values[i+k]
}

// wavesOf returns the wave of each series.
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

// loadsOf returns the logarithm of the number of requests by window, for each request type. The zero Hash stands for
// all types.
func loadsOf(series []EdgeSeries, n int) map[analysis.Hash][]float64 {
	loads := map[analysis.Hash][]float64{{}: make([]float64, n)}
	for i := range series {
		s := &series[i]
		if loads[s.RequestType] != nil {
			continue // all edges of a type have the same counts
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

// logsOf returns the clamped logarithms of s minus their median, or nil if too many windows are empty or all times are
// 0. The values of empty windows are 0.
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
	if float64(len(known)) < minFilled*float64(len(logs)) || !(sum > 0) {
		return nil
	}
	floor := sum / float64(len(known)) / 100 // suppresses irrelevant differences; avoids the logarithm of 0
	for i, v := range known {
		known[i] = math.Log(v + floor)
	}
	center := stats.Median(slices.Clone(known))
	spread := stats.MAD(known, center, scratch)
	if spread == 0 {
		spread = stat.PopStdDev(known, nil) // most values are equal
	}
	for i, c := range s.Counts {
		if c > 0 {
			logs[i] = max(-outlier*spread, min(outlier*spread, math.Log(s.Means[i]+floor)-center))
		}
	}
	return logs
}

// autocorrelation returns the circular autocorrelation Σ v[i]·v[i+k] for every lag k.
func autocorrelation(fft *fourier.FFT, v []float64) []float64 {
	spectrum := fft.Coefficients(nil, v)
	for i, c := range spectrum {
		spectrum[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}
	lags := fft.Sequence(nil, spectrum)
	floats.Scale(1/float64(len(v)), lags) // gonum's transforms are not normalised
	return lags
}

// commonPair is a pair of correlated series, given by their indices.
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
	sorting.Slice(pairs, func(a, b commonPair) int {
		return cmp.Or(cmp.Compare(a.pValue, b.pValue), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	})
	kept, level := pairs[:0], 0.0
	for i, p := range pairs {
		level = max(level, p.pValue*float64(tried-i)) // Holm
		if level > o.Alpha {
			break
		}
		if standsOut(waves[p.a].values, waves[p.b].values, p.correlation) &&
			stepTogether(waves[p.a].values, waves[p.b].values) {
			p.pValue = level
			kept = append(kept, p)
		}
	}
	return kept
}

// shiftPValue returns the p-value of the correlation r. variance is the mean square of the correlations of shifted
// series.
func shiftPValue(r, variance float64) float64 {
	// The correlation of n independent pairs has variance 1/(n−1), and 1/(n−3) on Fisher's scale.
	independent := 1/variance + 1
	if independent < minIndependent {
		return 1
	}
	return math.Erfc(math.Atanh(min(r, 1-1e-12))*math.Sqrt((independent-3)/2)) / 2
}

// standsOut reports whether correlation is among the largest over all circular shifts of a against b; see shiftLevel.
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

// stepTogether reports whether the changes of a and b from window to window correlate.
func stepTogether(a, b []float64) bool {
	x, y := make([]float64, len(a)-1), make([]float64, len(b)-1)
	floats.SubTo(x, a[1:], a[:len(a)-1])
	floats.SubTo(y, b[1:], b[:len(b)-1])
	return shiftPValue(stat.Correlation(x, y, nil), 1/float64(len(x)-1)) <= stepLevel
}

// clusters returns the sets of series that are connected by pairs, the most correlated first. n is the number of
// series.
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
	sorting.Slice(out, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(b.Correlation, a.Correlation), cmp.Compare(a.Series[0], b.Series[0]))
	})
	return out
}
