package throughput

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// foldedModel is the published size model that we compare [stats.SizeModel] with. It folds sizes modulo the packet,
// clusters transfers by latency per folded byte into normal, delayed and timed-out ones, and fits a line to the normal
// ones. Its authors report 88.8 % overall accuracy and 32.7 % precision for delayed transfers.
type foldedModel struct {
	segment int        // bytes per packet
	centers [3]float64 // ns per folded byte, ascending: normal, delayed, timed out
	base    float64    // ns
	perByte float64    // ns per folded byte
}

// foldedSteps limits the iterations of 3-means, which converges in far fewer.
const foldedSteps = 200

// fitFolded fits the folded model to at least one transfer, with sizes in bytes and latencies in ns.
func fitFolded(sizes, latencies []float64, segment int) foldedModel {
	m := foldedModel{segment: segment}
	ratios := make([]float64, len(sizes))
	for i, size := range sizes {
		ratios[i] = m.ratio(size, latencies[i])
	}
	m.centers = threeMeans(ratios)
	var x, y []float64
	for i, size := range sizes {
		if m.class(size, latencies[i]) == stats.SizeNormal {
			x, y = append(x, m.fold(size)), append(y, latencies[i])
		}
	}
	if len(x) > 1 {
		m.base, m.perByte = stat.LinearRegression(x, y, nil, false)
	}
	return m
}

// fold returns the bytes in the last packet, at least 1.
func (m foldedModel) fold(size float64) float64 {
	return max(1, math.Mod(size, float64(m.segment)))
}

// ratio returns the latency per folded byte.
func (m foldedModel) ratio(size, latency float64) float64 { return latency / m.fold(size) }

// class classifies a transfer of size bytes that took latency ns, by the nearest center.
func (m foldedModel) class(size, latency float64) stats.SizeClass {
	return stats.SizeClass(nearestCenter(m.centers, m.ratio(size, latency)))
}

// nearestCenter returns the index of the center nearest to x.
func nearestCenter(centers [3]float64, x float64) (best int) {
	for k, c := range centers {
		if math.Abs(x-c) < math.Abs(x-centers[best]) {
			best = k
		}
	}
	return best
}

// threeMeans returns the centers of three clusters, ascending: the best result of Lloyd's algorithm from several
// starts.
func threeMeans(xs []float64) (centers [3]float64) {
	lo, hi := slices.Min(xs), slices.Max(xs)
	sorted := slices.Sorted(slices.Values(xs))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	least := math.Inf(1)
	for _, start := range [][3]float64{
		{lo, (lo + hi) / 2, hi}, {at(0.16), at(0.5), at(0.84)}, {at(0.5), at(0.95), at(0.995)},
	} {
		if c, loss := lloyd(xs, start); loss < least {
			centers, least = c, loss
		}
	}
	slices.SortFunc(centers[:], cmp.Compare)
	return centers
}

// lloyd moves every center to the mean of its nearest values until the centers converge. It also returns the sum of
// squared distances.
func lloyd(xs []float64, centers [3]float64) (_ [3]float64, loss float64) {
	for range foldedSteps {
		var sums, counts [3]float64
		loss = 0
		for _, x := range xs {
			k := nearestCenter(centers, x)
			sums[k] += x
			counts[k]++
			loss += (x - centers[k]) * (x - centers[k])
		}
		before := centers
		for k := range centers {
			if counts[k] > 0 {
				centers[k] = sums[k] / counts[k]
			}
		}
		if centers == before {
			break
		}
	}
	return centers, loss
}
