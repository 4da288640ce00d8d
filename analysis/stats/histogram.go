package stats

import (
	"iter"
	"math"
)

// Bins yields the non-empty bins in ascending order, as (limit, count): count durations are at most limit ns and above
// the limit of the previous bin. Bins are 2 % wide.
func (s *Sketch) Bins() iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		if s.zeros > 0 && !yield(0, s.zeros) {
			return
		}
		keys, counts := s.binsAscending()
		for i, k := range keys {
			if !yield(int64(math.Ceil(bins.LowerBound(k+1))), counts[i]) {
				return
			}
		}
	}
}

// Allows reports whether the frequency of every event in n is within its bound in r.
func (r *Reference) Allows(n Counts) bool {
	for i, b := range r.bands {
		if float64(n.Events[i]) > b.bound*float64(n.N) {
			return false
		}
	}
	return true
}

// Exceeds reports whether k of n requests are more than r allows in group number group.
func (r *MixReference) Exceeds(group int, k, n uint64) bool {
	return float64(k) > r.more[group]*float64(n)
}

// Allows reports whether the frequency of every group is within the limits of r. requests holds the number of requests
// of each group.
func (r *MixReference) Allows(requests []uint64) bool {
	var n uint64
	for _, k := range requests {
		n += k
	}
	for i, k := range requests {
		if r.Exceeds(i, k, n) || float64(n-k) > r.less[i]*float64(n) {
			return false
		}
	}
	return true
}
