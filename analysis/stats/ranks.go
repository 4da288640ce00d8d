package stats

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Ranks is a histogram of durations from which the percentile of a duration can be read. It is coarser than a [Sketch]
// and much smaller. Its 704 bins are at most 6.3 % wide, so it represents a duration to within 3.2 %. It takes four
// bytes for each bin from the shortest to the longest duration: half a kilobyte for most operations, and at most 3.5
// KiB including spare capacity. The zero value is the empty set.
type Ranks struct {
	first  int      // bin of counts[0]
	counts []uint32 // the first and the last are above 0; counts saturate at the largest uint32
	total  uint64   // sum of counts
	// longest is the longest duration in ns. It limits quantiles, because the middle of its bin may be longer.
	longest int64
}

// rankBits is the number of bits after the leading one that distinguish bins.
const rankBits = 4

// rankBins is the number of bins of durations in [0, MaxNanos).
const rankBins = 704

// rankBin returns the number of the bin of ns. Each duration below 32 ns has its own bin; above, each power of two has
// sixteen bins.
func rankBin(ns int64) int {
	shift := max(0, bits.Len64(checked(ns))-rankBits-1)
	return shift<<rankBits + int(ns>>shift)
}

// Add adds a duration. It panics if ns is outside [0, MaxNanos).
func (r *Ranks) Add(ns int64) {
	r.add(rankBin(ns), 1)
	r.longest = max(r.longest, ns)
}

func (r *Ranks) add(bin int, n uint32) {
	i := bin - r.first
	if i < 0 || i >= len(r.counts) {
		r.extend(bin)
		i = bin - r.first
	}
	n = min(n, math.MaxUint32-r.counts[i])
	r.counts[i] += n
	r.total += uint64(n)
}

// extend extends r.counts to include bin.
func (r *Ranks) extend(bin int) {
	switch {
	case len(r.counts) == 0:
		r.first, r.counts = bin, append(r.counts, 0)
	case bin < r.first:
		r.counts = slices.Insert(r.counts, 0, make([]uint32, r.first-bin)...)
		r.first = bin
	default:
		r.counts = append(r.counts, make([]uint32, bin-r.first-len(r.counts)+1)...)
	}
}

// Merge adds the durations of o. It doesn't change o.
func (r *Ranks) Merge(o *Ranks) {
	for i, n := range o.counts {
		if n > 0 {
			r.add(o.first+i, n)
		}
	}
	r.longest = max(r.longest, o.longest)
}

// Quantile returns the q-quantile (0–1) of the durations in ns: the middle of its bin, but at most the longest
// duration. It is NaN for the empty set.
func (r *Ranks) Quantile(q float64) float64 {
	if r.total == 0 {
		return math.NaN()
	}
	left := uint64(max(1, math.Ceil(min(1, q)*float64(r.total))))
	i := 0
	for ; uint64(r.counts[i]) < left && i < len(r.counts)-1; i++ {
		left -= uint64(r.counts[i])
	}
	low, high := rankBounds(r.first + i)
	return min(float64(low+high-1)/2, float64(r.longest))
}

// Sum returns the sum of the durations in ns, estimated from the middles of their bins.
func (r *Ranks) Sum() float64 {
	sum := 0.
	for i, n := range r.counts {
		low, high := rankBounds(r.first + i)
		sum += float64(n) * float64(low+high-1) / 2
	}
	return sum
}

// rankBounds returns the range [low, high) in ns of the durations in bin.
func rankBounds(bin int) (low, high int64) {
	shift := max(0, bin>>rankBits-1)
	low = int64(bin-shift<<rankBits) << shift
	return low, low + 1<<shift
}

// Count returns the number of durations.
func (r *Ranks) Count() uint64 { return r.total }

// Below returns the fraction (0–1) of the durations that are shorter than ns. Half of the durations in the bin of ns,
// which is up to 6.3 % wide, count as shorter. It is NaN for the empty set. Below panics if ns is outside [0,
// MaxNanos).
func (r *Ranks) Below(ns int64) float64 {
	bin := rankBin(ns)
	var halves uint64
	for i, n := range r.counts {
		switch at := r.first + i; {
		case at < bin:
			halves += 2 * uint64(n)
		case at == bin:
			halves += uint64(n)
		}
	}
	return float64(halves) / float64(2*r.total)
}

const ranksVersion = 2

// AppendBinary appends r to b: the version and the number of bins, followed by the first bin, the longest duration and
// the counts if there are any.
func (r *Ranks) AppendBinary(b []byte) []byte {
	b = append(b, ranksVersion)
	b = codec.AppendUvarints(b, uint64(len(r.counts)))
	if len(r.counts) > 0 {
		b = codec.AppendUvarints(b, uint64(r.first), uint64(r.longest))
	}
	for _, n := range r.counts {
		b = codec.AppendUvarints(b, uint64(n))
	}
	return b
}

// DecodeRanks decodes the output of AppendBinary and returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeRanks(b []byte) (Ranks, []byte, error) {
	d := codec.NewReader(b)
	d.Version(ranksVersion)
	var r Ranks
	if n := d.Below(rankBins + 1); n > 0 {
		r.first = int(d.Below(rankBins - n + 1))
		r.longest = int64(d.Below(MaxNanos))
		r.counts = make([]uint32, n)
	}
	for i := range r.counts {
		r.counts[i] = uint32(d.Below(math.MaxUint32 + 1))
		r.total += uint64(r.counts[i])
	}
	if n := len(r.counts); n > 0 && (r.counts[0] == 0 || r.counts[n-1] == 0 || rankBin(r.longest) != r.first+n-1) {
		d.Fail()
	}
	if d.Bad() {
		return Ranks{}, nil, fmt.Errorf("%w: ranks", codec.ErrCorrupt)
	}
	return r, d.Rest(), nil
}
