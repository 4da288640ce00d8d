package stats

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// SizeClass classifies a transfer by its latency relative to the size model.
type SizeClass int

// The classes. Their values are stable.
const (
	SizeNormal SizeClass = iota
	SizeDelayed
	SizeTimedOut
)

// String returns the name that the API uses for the class.
func (c SizeClass) String() string {
	switch c {
	case SizeNormal:
		return "normal"
	case SizeDelayed:
		return "delayed"
	case SizeTimedOut:
		return "timed_out"
	}
	return "unknown"
}

// SizeOptions configure a size model. Start from [DefaultSizeOptions].
type SizeOptions struct {
	// Segments are the candidates for the payload size of a packet, in bytes. The fit selects the best one.
	Segments []int
	// Timeout is the latency in ns at which transfers are abandoned, or 0 if they never are.
	Timeout float64
	// Seed is the seed of the random starts of the fit.
	Seed uint64
}

// DefaultSizeOptions returns options without a time-out, and with the payload sizes of jumbo frames and of Ethernet
// with and without TCP's header and options.
func DefaultSizeOptions() SizeOptions {
	return SizeOptions{Segments: []int{1500, 1460, 1448, 8960}}
}

// SizeModel is the latency of a transfer as a function of its size: linear within a packet, with a step per packet. The
// noise grows with the latency.
type SizeModel struct {
	Base       float64 // ns
	PerByte    float64 // ns per byte, at least 0
	PerSegment float64 // ns per packet beyond the first, at least 0
	Segment    int     // bytes per packet
	Noise      float64 // ns: standard deviation (by MAD) at an expected latency of 0
	Relative   float64 // increase of the standard deviation per ns of expected latency, at least 0
	Timeout    float64 // ns; 0 if there is no time-out
}

// Thresholds of the classes.
const (
	delayedAfter  = 4    // standard deviations, by MAD
	timedOutAfter = 0.95 // fraction of the time-out
)

// Expected returns the expected latency in ns of a transfer of size bytes.
func (m SizeModel) Expected(size float64) float64 {
	return m.Base + m.PerByte*size + m.PerSegment*math.Floor(size/float64(m.Segment))
}

// Spread returns the expected standard deviation of the latency, in ns, of a transfer of size bytes.
func (m SizeModel) Spread(size float64) float64 {
	return m.Noise + m.Relative*max(0, m.Expected(size))
}

// Class classifies a transfer of size bytes that took latency ns.
func (m SizeModel) Class(size, latency float64) SizeClass {
	switch {
	case m.Timeout > 0 && latency >= timedOutAfter*m.Timeout:
		return SizeTimedOut
	case latency-m.Expected(size) > delayedAfter*m.Spread(size):
		return SizeDelayed
	}
	return SizeNormal
}

// SizeSummary counts the transfers that take longer than a model expects.
type SizeSummary struct {
	Delayed, TimedOut int
}

// Summary counts the transfers that took longer than the model expects. sizes are in bytes, latencies in ns.
func (m SizeModel) Summary(sizes, latencies []float64) (s SizeSummary) {
	for i, size := range sizes {
		switch m.Class(size, latencies[i]) {
		case SizeDelayed:
			s.Delayed++
		case SizeTimedOut:
			s.TimedOut++
		case SizeNormal:
		}
	}
	return s
}

// ErrTooFew is returned by [FitSize] if too few transfers finished without timing out.
var ErrTooFew = errors.New("stats: too few transfers for a size model")

// minTransfers is the minimum number of transfers for a fit.
const minTransfers = 20

// Parameters of the search for the best trimmed fit.
const (
	trimmedTo  = 0.75 // fraction of the transfers that the fit uses; the others may be outliers
	fitStarts  = 24   // random triples; if a quarter are outliers, all triples contain one with probability 2e-6
	fitKeep    = 3    // number of best starts that are run to convergence
	fitSubset  = 256  // number of transfers used to try starts
	fitMaxStep = 30   // maximum number of concentration steps; a few suffice
)

// FitSize fits a size model to transfers of sizes in bytes and latencies in ns.
//
//  1. Exclude transfers near the time-out, whose latency is not informative.
//  2. Least trimmed squares: fit random triples of transfers. From each, repeat concentration steps until convergence:
//     select the three quarters of transfers with the smallest residuals and fit them. A step never increases the
//     trimmed sum. Select the best start. PerByte and PerSegment are constrained to be at least 0.
//  3. Noise: compute the MAD of the residuals, or of the positive ones if that is larger, in bins of expected latency.
//     Fit a line to the MADs.
//  4. Repeat concentration and step 3 with residuals relative to that noise, so that large transfers do not dominate.
//  5. Do this for every candidate packet size, and select the size with the largest likelihood of the trimmed
//     transfers.
//
// FitSize returns ErrTooFew if fewer than 20 transfers did not time out. Equal arguments yield equal models. Source:
// Rousseeuw and Van Driessen 2006, "Computing LTS regression for large data sets".
func FitSize(sizes, latencies []float64, o SizeOptions) (SizeModel, error) {
	var kept transfers
	for i, size := range sizes {
		if o.Timeout == 0 || latencies[i] < timedOutAfter*o.Timeout {
			kept.sizes, kept.latencies = append(kept.sizes, size), append(kept.latencies, latencies[i])
		}
	}
	if len(kept.sizes) < minTransfers {
		return SizeModel{}, ErrTooFew
	}
	var best SizeModel
	least := math.Inf(1)
	for _, segment := range o.Segments {
		m := kept.withNoise(kept.fit(SizeModel{Segment: segment, Noise: 1}, o.Seed))
		m, _ = kept.concentrate(m, fitMaxStep)
		m = kept.withNoise(m)
		if loss := kept.trimmedLoss(m); loss < least {
			best, least = m, loss
		}
	}
	best.Timeout = o.Timeout
	return best, nil
}

// transfers holds the sizes and latencies that a model is fitted to.
type transfers struct{ sizes, latencies []float64 }

// subset returns at most n transfers, evenly spaced.
func (t transfers) subset(n int) (p transfers) {
	step := (len(t.sizes) + n - 1) / n
	for i := 0; i < len(t.sizes); i += step {
		p.sizes, p.latencies = append(p.sizes, t.sizes[i]), append(p.latencies, t.latencies[i])
	}
	return p
}

// fit returns the model with the smallest trimmed sum of squares of residuals relative to the noise of m.
func (t transfers) fit(m SizeModel, seed uint64) SizeModel {
	type start struct {
		model SizeModel
		loss  float64
	}
	small := t.subset(fitSubset)
	r := rand.New(rand.NewPCG(seed, uint64(len(t.sizes))))
	var starts []start
	for range fitStarts {
		n := len(small.sizes)
		s := small.solve(m, []int{r.IntN(n), r.IntN(n), r.IntN(n)})
		s, loss := small.concentrate(s, 2)
		starts = append(starts, start{s, loss})
	}
	sorting.SliceStable(starts, func(a, b start) int { return cmp.Compare(a.loss, b.loss) })
	best, least := m, math.Inf(1)
	for _, s := range starts[:fitKeep] {
		if s, loss := t.concentrate(s.model, fitMaxStep); loss < least {
			best, least = s, loss
		}
	}
	return best
}

// concentrate improves m by concentration steps until it converges, but by at most the given number of steps. It
// returns the model and its trimmed sum of squares.
func (t transfers) concentrate(m SizeModel, steps int) (SizeModel, float64) {
	order := make([]int, len(t.sizes))
	squares, scratch := make([]float64, len(t.sizes)), make([]float64, len(t.sizes))
	loss := math.Inf(1)
	for range steps {
		next := t.solve(m, t.closest(m, order, squares, scratch))
		l := t.trimmedSquares(next, scratch)
		if !(l < loss*(1-1e-9)) {
			break
		}
		m, loss = next, l
	}
	return m, loss
}

// closest returns the indices of the transfers with the smallest residuals relative to the noise. It uses its slice
// arguments as scratch memory.
func (t transfers) closest(m SizeModel, order []int, squares, scratch []float64) []int {
	for i := range squares {
		squares[i] = t.square(m, i)
	}
	copy(scratch, squares)
	limit := Quantile(scratch, trimmedTo)
	order = order[:0]
	for i, s := range squares {
		if s <= limit {
			order = append(order, i)
		}
	}
	return order
}

// square returns the squared residual of transfer i relative to the noise.
func (t transfers) square(m SizeModel, i int) float64 {
	r := (t.latencies[i] - m.Expected(t.sizes[i])) / m.Spread(t.sizes[i])
	return r * r
}

// trimmedSquares returns the trimmed sum of squares of m. scratch must have one element per transfer.
func (t transfers) trimmedSquares(m SizeModel, scratch []float64) float64 {
	for i := range scratch {
		scratch[i] = t.square(m, i)
	}
	return trimmedSum(scratch)
}

// trimmedLoss returns the negative log-likelihood of the trimmed transfers, up to a constant. Unlike trimmedSquares, it
// can compare models with different noise.
func (t transfers) trimmedLoss(m SizeModel) float64 {
	losses := make([]float64, len(t.sizes))
	for i := range losses {
		losses[i] = t.square(m, i)/2 + math.Log(m.Spread(t.sizes[i]))
	}
	return trimmedSum(losses)
}

// trimmedSum returns the sum of the smallest values, a fraction trimmedTo of all of them. It reorders values.
func trimmedSum(values []float64) (sum float64) {
	h := int(trimmedTo * float64(len(values)))
	selectRank(values, h)
	for _, v := range values[:h] {
		sum += v
	}
	return sum
}

// solve returns the weighted least-squares fit to the transfers in rows, with PerByte and PerSegment at least 0: the
// best admissible fit with both of them, with one of them, or without them. The weights derive from the noise of m.
// Other fields are copied from m.
func (t transfers) solve(m SizeModel, rows []int) SizeModel {
	var gram [3][3]float64
	var right [3]float64
	for _, i := range rows {
		w := 1 / m.Spread(t.sizes[i])
		// Packets instead of bytes, so that the columns have similar magnitudes.
		x := [3]float64{w, w * t.sizes[i] / float64(m.Segment), w * math.Floor(t.sizes[i]/float64(m.Segment))}
		for a := range x {
			right[a] += x[a] * w * t.latencies[i]
			for b := range x {
				gram[a][b] += x[a] * x[b]
			}
		}
	}
	best, gain := m, math.Inf(-1)
	for _, used := range [4][3]bool{
		{true, true, true}, {true, true, false}, {true, false, true}, {true, false, false},
	} {
		c, ok := solveNormal(gram, right, used)
		if !ok || c[1] < 0 || c[2] < 0 {
			continue
		}
		// The explained sum of squares.
		if g := c[0]*right[0] + c[1]*right[1] + c[2]*right[2]; g > gain {
			best.Base, best.PerByte, best.PerSegment, gain = c[0], c[1]/float64(m.Segment), c[2], g
		}
	}
	return best
}

// solveNormal solves the normal equations for the used columns by elimination. The coefficients of the other columns
// are 0. It returns false if columns are collinear. It runs in the innermost loop and, unlike libraries, does not
// allocate.
func solveNormal(gram [3][3]float64, right [3]float64, used [3]bool) (c [3]float64, ok bool) {
	for i := range used {
		if !used[i] {
			gram[i], right[i] = [3]float64{}, 0
			for j := range gram {
				gram[j][i] = 0
			}
			gram[i][i] = 1
		}
	}
	diagonal := [3]float64{gram[0][0], gram[1][1], gram[2][2]}
	for i := range gram {
		if !(gram[i][i] > 1e-10*diagonal[i]) {
			return [3]float64{}, false
		}
		for j := i + 1; j < len(gram); j++ {
			f := gram[j][i] / gram[i][i]
			right[j] -= f * right[i]
			for k := i; k < len(gram); k++ {
				gram[j][k] -= f * gram[i][k]
			}
		}
	}
	for i := len(gram) - 1; i >= 0; i-- {
		c[i] = right[i]
		for k := i + 1; k < len(gram); k++ {
			c[i] -= gram[i][k] * c[k]
		}
		c[i] /= gram[i][i]
	}
	return c, true
}

// noiseBins is the number of bins, with equal numbers of transfers, for measuring the noise.
const noiseBins = 8

// withNoise returns m with the noise of the transfers: a line through the MADs of the residuals in bins of expected
// latency. The slope is at least 0. The intercept is at least 1 ns and at least a thousandth of the median latency.
func (t transfers) withNoise(m SizeModel) SizeModel {
	order := make([]int, len(t.sizes))
	for i := range order {
		order[i] = i
	}
	sorting.SliceStable(order, func(a, b int) int {
		return cmp.Compare(m.Expected(t.sizes[a]), m.Expected(t.sizes[b]))
	})
	count := max(1, min(noiseBins, len(order)/minTransfers))
	var at, spread []float64
	for b := range count {
		bin := order[b*len(order)/count : (b+1)*len(order)/count]
		residuals, expected := make([]float64, 0, len(bin)), 0.0
		for _, i := range bin {
			residuals = append(residuals, t.latencies[i]-m.Expected(t.sizes[i]))
			expected += m.Expected(t.sizes[i]) / float64(len(bin))
		}
		at, spread = append(at, expected), append(spread, upperMAD(residuals))
	}
	floor := max(1, 1e-3*Median(slices.Clone(t.latencies)))
	m.Noise, m.Relative = line(at, spread)
	m.Noise = max(floor, m.Noise)
	return m
}

// upperMAD returns the MAD of all residuals, or of the positive ones if that is larger. Noise of latencies is often
// skewed, and delays must be distinguished from noise on the slow side.
func upperMAD(residuals []float64) float64 {
	both := MAD(residuals, 0, nil)
	above := slices.DeleteFunc(residuals, func(r float64) bool { return r <= 0 })
	if len(above) == 0 {
		return both
	}
	return max(both, madScale*Median(above))
}

// line fits a line to the points by least squares relative to y, with intercept and slope at least 0.
func line(x, y []float64) (intercept, slope float64) {
	weights := make([]float64, len(y))
	for i, v := range y {
		weights[i] = 1 / max(1, v*v)
	}
	if len(x) > 1 {
		intercept, slope = stat.LinearRegression(x, y, weights, false)
	}
	switch {
	case len(x) < 2 || !(slope >= 0):
		return stat.Mean(y, weights), 0
	case intercept < 0:
		_, slope = stat.LinearRegression(x, y, weights, true)
		return 0, max(0, slope)
	}
	return intercept, slope
}
