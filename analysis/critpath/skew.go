package critpath

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// skew estimates how far clocks differ, from pairs of a CLIENT span and its SERVER child without a common clock.
type skew struct {
	shifts []int64 // by span: ns to add to its times, relative to its caller; empty if no span is shifted

	pairs []pair // scratch
}

// pair is a CLIENT span and its SERVER child on another clock, both baseline.
type pair struct {
	low, high uint64 // clocks in ascending order, so that calls in both directions compare the same two clocks
	shift     int64  // ns to add to the times of high, estimated from this pair alone
	server    int32  // the SERVER span
	reversed  bool   // whether the server is on low
}

// clockOf identifies the clock of s: its host or, if the host is unknown, its service. Phones and browsers, for
// example, report no host.
func clockOf(s *trace.Span) uint64 {
	const unknownHost = 0x3c6ef372fe94f82b
	if s.Host != 0 {
		return uint64(s.Host)
	}
	return trace.Mix(uint64(s.Service), unknownHost)
}

// estimate fills k.shifts. All pairs with the same two clocks, in whichever direction they call, are shifted by the
// median of their individual estimates. If a server is still outside its client, it is shifted by its own estimate,
// because spans without a host may belong to several instances, and clocks may step. If a server is only partly inside
// its client, its shift is adjusted to place it inside, if it fits.
func (k *skew) estimate(spans []trace.Span, caller []int32) {
	k.shifts = k.shifts[:0]
	if !k.findPairs(spans, caller) {
		return
	}
	k.shifts = scratch.Filled(k.shifts, len(spans), 0)
	slices.SortFunc(k.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high), cmp.Compare(a.shift, b.shift))
	})
	shifted := false
	for pairs := k.pairs; len(pairs) > 0; {
		n := 1
		for n < len(pairs) && pairs[n].low == pairs[0].low && pairs[n].high == pairs[0].high {
			n++
		}
		common := median(pairs[(n-1)/2].shift, pairs[n/2].shift)
		for i := range pairs[:n] {
			shifted = k.shift(spans, caller, &pairs[i], common) || shifted
		}
		pairs = pairs[n:]
	}
	if !shifted {
		k.shifts = k.shifts[:0]
	}
}

// findPairs fills k.pairs and reports whether any of them needs a shift.
func (k *skew) findPairs(spans []trace.Span, caller []int32) (shifted bool) {
	k.pairs = k.pairs[:0]
	for i := range spans {
		s := &spans[i]
		if s.Kind != trace.Server || caller[i] < 0 {
			continue
		}
		c := &spans[caller[i]]
		if c.Kind != trace.Client || c.Host == s.Host && c.Host != 0 || c.Tracepoint != 0 || s.Tracepoint != 0 {
			continue
		}
		p := pair{low: clockOf(c), high: clockOf(s), shift: shiftInto(c, s), server: int32(i)}
		if p.low == p.high {
			continue
		}
		if p.low > p.high {
			p.low, p.high, p.shift, p.reversed = p.high, p.low, -p.shift, true
		}
		shifted = shifted || p.shift != 0
		k.pairs = append(k.pairs, p)
	}
	return shifted
}

// shiftInto returns the shift, in ns, that moves the SERVER span s into its CLIENT span c. A server span inside its
// client is not moved. A server span that is longer than its client is not moved if it starts during the client, and
// otherwise moved to the start of the client, because a client may give up before its server ends. In all other cases
// it is centred in its client.
func shiftInto(c, s *trace.Span) int64 {
	cEnd, sEnd := max(c.Start, c.End), max(s.Start, s.End)
	slack := int64(cEnd-c.Start) - int64(sEnd-s.Start)
	switch {
	case slack < 0 && s.Start >= c.Start && s.Start < cEnd, s.Start >= c.Start && sEnd <= cEnd:
		return 0
	case slack < 0:
		return int64(c.Start - s.Start)
	}
	return int64(c.Start-s.Start) + slack/2
}

// median returns the median of an ordered list of shifts with the middle two values a and b: the value closer to 0, or
// 0 if they are opposite, so that no direction is preferred.
func median(a, b int64) int64 {
	switch {
	case a == -b:
		return 0
	case max(a, -a) <= max(b, -b):
		return a
	}
	return b
}

// shift shifts the server of p by common, or in the opposite direction if p is reversed. If common does not move the
// server into its client, shift uses the pair's own estimate instead. It reports whether the server is shifted.
func (k *skew) shift(spans []trace.Span, caller []int32, p *pair, common int64) bool {
	own := p.shift
	if p.reversed {
		own, common = -own, -common
	}
	s, c := &spans[p.server], &spans[caller[p.server]]
	least, most := shiftLimits(s)
	common = min(max(common, least), most)
	o, end, cEnd := trace.Nanos(common), max(s.Start, s.End), max(c.Start, c.End)
	if apart(s.Start+o, end+o, c.Start, cEnd) {
		common = own
	} else if low, high := int64(c.Start-s.Start), int64(cEnd-end); low <= high {
		common = min(max(common, low), high)
	}
	k.shifts[p.server] = common
	return common != 0
}

// shiftLimits returns the smallest and the largest shift, in ns, that keep the times of s in [0, [trace.MaxNanos]].
func shiftLimits(s *trace.Span) (least, most int64) {
	return min(0, -int64(min(s.Start, s.End))), int64(trace.MaxNanos - max(s.Start, s.End))
}

// apart reports whether a child that runs from start to end is outside its parent, which runs from low to high. A child
// with no duration may touch its parent.
func apart(start, end, low, high trace.Nanos) bool {
	return end < low || start > high || start < end && (end == low || start == high)
}
