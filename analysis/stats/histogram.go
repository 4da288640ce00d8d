package stats

import (
	"iter"
	"math"
)

// Bins yields the non-empty bins, ascending, as pairs of limit and count: count durations are above the previous limit
// and at most limit, in ns. A bin is 2 % wide.
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

// Holds reports whether n is consistent with r: no event is more frequent among the requests than its bound.
func (r *Reference) Holds(n Counts) bool {
	for i, b := range r.bands {
		if float64(n.Events[i]) > b.bound*float64(n.N) {
			return false
		}
	}
	return true
}

// Holds reports whether the requests per group, numbered as in r, are consistent with r: no group is more, or less,
// frequent than its limits.
func (r *MixReference) Holds(requests []uint64) bool {
	var n uint64
	for _, k := range requests {
		n += k
	}
	for i, k := range requests {
		if float64(k) > r.more[i]*float64(n) || float64(n-k) > r.less[i]*float64(n) {
			return false
		}
	}
	return true
}
