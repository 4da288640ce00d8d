package stats

import (
	"fmt"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// sketchAccuracy is the maximum relative error of quantiles.
const sketchAccuracy = 0.01

// bins maps durations to bin numbers and back. It is immutable. Durations in [1, MaxNanos) have about 1,650 bins, so
// the memory of a sketch is bounded without collapsing bins.
var bins = must(mapping.NewCubicallyInterpolatedMapping(sketchAccuracy))

// firstBin and lastBin are the lowest and the highest bin of durations above 0.
var firstBin, lastBin = bins.Index(1), bins.Index(MaxNanos)

// binValues holds the middle of each bin from firstBin to lastBin, because it is expensive to compute.
var binValues = func() (values []float64) {
	for k := firstBin; k <= lastBin; k++ {
		values = append(values, bins.Value(k))
	}
	return values
}()

// binValue returns the middle of bin.
func binValue(bin int) float64 { return binValues[bin-firstBin] }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Sketch is the distribution of a set of durations with 1 % relative accuracy: a DDSketch (Masson, Rim, Lee, VLDB 2019)
// with integer counts. The zero value is the empty set. A sketch takes about 200 bytes for a few durations, and up to
// 15 KiB for durations over the whole range. Results and encoding depend only on the set, not on the order of adding
// and merging. Reading may sort an internal buffer, so even concurrent reads are not safe.
type Sketch struct {
	zeros   uint64
	total   uint64                        // number of durations, including zeros
	longest int64                         // duration; 0 if empty
	store   *store.BufferedPaginatedStore // counts of durations above 0, or nil
}

// Add adds a duration. It panics if ns is outside [0, MaxNanos).
func (s *Sketch) Add(ns int64) {
	x := checked(ns)
	s.total++
	s.longest = max(s.longest, ns)
	if x == 0 {
		s.zeros++
		return
	}
	s.allocated().Add(bins.Index(float64(x)))
}

// allocated returns the store, creating it if necessary.
func (s *Sketch) allocated() *store.BufferedPaginatedStore {
	if s.store == nil {
		s.store = store.NewBufferedPaginatedStore()
	}
	return s.store
}

// Merge adds the durations of o. It doesn't change o.
func (s *Sketch) Merge(o Sketch) {
	s.total += o.total
	s.zeros += o.zeros
	s.longest = max(s.longest, o.longest)
	if o.store != nil {
		s.allocated().MergeWith(o.store)
	}
}

// Count returns the number of durations.
func (s *Sketch) Count() uint64 { return s.total }

// Longest returns the exact longest duration in ns, or 0 for an empty sketch.
func (s *Sketch) Longest() int64 { return s.longest }

// Quantile returns the q-quantile in ns: the duration of rank ⌊q·(n−1)⌋ in ascending order, accurate to 1 % and at most
// the longest duration. It is NaN for an empty sketch, or if q is outside [0, 1].
func (s *Sketch) Quantile(q float64) float64 {
	if s.total == 0 || !(q >= 0 && q <= 1) {
		return math.NaN()
	}
	rank := math.Floor(q * float64(s.total-1))
	if rank < float64(s.zeros) {
		return 0
	}
	return min(binValue(s.store.KeyAtRank(rank-float64(s.zeros))), float64(s.longest))
}

// CoV returns the coefficient of variation of the durations, with an interval by the delta method. It treats each
// duration as the middle of its bin. The bounds are NaN if there are fewer than three durations. All fields are NaN if
// the durations do not vary.
func (s *Sketch) CoV() Interval {
	n := float64(s.total)
	keys, counts := s.binsAscending()
	var mean, variance, squares float64
	each := func(f func(x, count float64)) {
		f(0, float64(s.zeros))
		for i, k := range keys {
			f(binValue(k), float64(counts[i]))
		}
	}
	each(func(x, count float64) { mean += x * count / n })
	each(func(x, count float64) { variance += (x - mean) * (x - mean) * count / (n - 1) })
	if !(variance > 0) {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	cov := math.Sqrt(variance) / mean
	if s.total < 3 {
		return Interval{cov, math.NaN(), math.NaN()}
	}
	each(func(x, count float64) {
		influence := (x-mean)*(x-mean)/(2*variance) - 0.5 - (x-mean)/mean // on the logarithm of the CoV
		squares += influence * influence * count
	})
	half := StudentsT(int(min(s.total-1, math.MaxInt32))) * math.Sqrt(squares) / n
	return Interval{cov, cov * math.Exp(-half), cov * math.Exp(half)}
}

// Logs returns the moments of the bin numbers of the durations. A bin number is a logarithm in units of 2 %.
func (s *Sketch) Logs() Moments {
	m := Moments{N: s.total}
	if s.store == nil {
		return m
	}
	s.store.ForEach(func(key int, count float64) bool {
		k, n := uint64(key), uint64(count)
		m.Sum = m.Sum.AddProduct(k, n)
		m.Sum2 = m.Sum2.AddProduct(k*k, n)
		return false
	})
	return m
}

// UpperLimit returns the smallest bin boundary such that at most a fraction p of the durations lie above it, and the
// exact number of those durations. It returns 0, 0 for an empty sketch.
func (s *Sketch) UpperLimit(p float64) (limit int64, above uint64) {
	budget := uint64(max(0, p*float64(s.total)))
	keys, counts := s.binsAscending()
	for i, k := range slices.Backward(keys) {
		if above+counts[i] > budget {
			return least(k+1) - 1, above
		}
		above += counts[i]
	}
	return 0, above
}

// LowerLimit returns the largest bin boundary such that at most a fraction p of the durations lie below it, and the
// exact number of those durations. It returns MaxNanos, 0 for an empty sketch.
func (s *Sketch) LowerLimit(p float64) (limit int64, below uint64) {
	budget := uint64(max(0, p*float64(s.total)))
	if s.zeros > budget {
		return 0, 0
	}
	below = s.zeros
	keys, counts := s.binsAscending()
	for i, k := range keys {
		if below+counts[i] > budget {
			return least(k), below
		}
		below += counts[i]
	}
	return MaxNanos, below
}

// Outside returns the number of durations in bins that extend below low or above high. If the limits come from
// [Sketch.LowerLimit] and [Sketch.UpperLimit], it is the exact number of durations outside [low, high]; otherwise it is
// an upper bound.
func (s *Sketch) Outside(low, high int64) (n uint64) {
	if low > 0 {
		n = s.zeros
	}
	keys, counts := s.binsAscending()
	for i, k := range keys {
		if least(k) < low || least(k+1)-1 > high {
			n += counts[i]
		}
	}
	return n
}

// least returns the shortest duration, at least 1, that is in bin key or above. It corrects the rounding errors of
// bins.LowerBound.
func least(key int) int64 {
	x := max(1, int64(bins.LowerBound(key)))
	for x > 1 && bins.Index(float64(x-1)) >= key {
		x--
	}
	for bins.Index(float64(x)) < key {
		x++
	}
	return x
}

// binsAscending returns the non-empty bins and their counts, without the zeros.
func (s *Sketch) binsAscending() (keys []int, counts []uint64) {
	if s.store == nil {
		return nil, nil
	}
	s.store.ForEach(func(key int, count float64) bool { // ascending, each bin once
		keys, counts = append(keys, key), append(counts, uint64(count))
		return false
	})
	return keys, counts
}

// sketchVersion is the first byte of an encoded [Sketch].
const sketchVersion = 1

// AppendBinary appends s to b: the version, the number of zeros, the distance and count of each non-empty bin, in about
// two bytes per bin, and the longest duration if it is above 0.
func (s *Sketch) AppendBinary(b []byte) []byte {
	b = append(b, sketchVersion)
	b = codec.AppendUvarints(b, s.zeros)
	keys, counts := s.binsAscending()
	b = codec.AppendUvarints(b, uint64(len(keys)))
	last := -1
	for i, k := range keys {
		b = codec.AppendUvarints(b, uint64(k-last-1))
		b = codec.AppendUvarints(b, counts[i]-1)
		last = k
	}
	if len(keys) > 0 {
		b = codec.AppendUvarints(b, uint64(s.longest))
	}
	return b
}

// DecodeSketch decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeSketch(b []byte) (Sketch, []byte, error) {
	d := codec.NewReader(b)
	d.Version(sketchVersion)
	zeros := d.Below(MaxCount)
	s := Sketch{zeros: zeros, total: zeros}
	key := -1
	for range d.Below(uint64(lastBin) + 2) {
		key += int(d.Below(uint64(lastBin)+1)) + 1
		count := d.Below(MaxCount) + 1
		if d.Bad() || key > lastBin {
			d.Fail()
			break
		}
		s.allocated().AddWithCount(key, float64(count))
		s.total += count
	}
	if key >= 0 && !d.Bad() {
		s.longest = int64(d.Below(MaxNanos))
		d.Check(s.longest > 0 && bins.Index(float64(s.longest)) == key)
	}
	if d.Bad() {
		return Sketch{}, nil, fmt.Errorf("%w: sketch", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}
