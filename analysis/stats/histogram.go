package stats

import (
	"iter"
	"math"
)

// Bins yields the filled bins, ascending, as (limit, count): count durations lie above the limit of the bin before and at
// or below limit, in ns. A bin is 2 % wide.
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

// Holds reports whether no event was more frequent among the requests of n than r allows: they may well be healthy.
func (r *Reference) Holds(n Counts) bool {
	for i, b := range r.bands {
		if float64(n.Events[i]) > b.bound*float64(n.N) {
			return false
		}
	}
	return true
}

// Holds reports whether no group was more, or less, frequent among the requests, numbered as in r, than r allows.
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
