package critpath

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// skew estimates how far the clocks of hosts differ, from pairs of a CLIENT span and its SERVER child.
type skew struct {
	limit time.Duration // Options.MaxSkew

	shifts    []int64 // by span: ns to add to its times, relative to its caller; empty if no span is shifted
	excessive bool    // whether a shift exceeded the limit and was not applied

	pairs []pair // scratch
}

// pair is a CLIENT span and its SERVER child on another host, both baseline.
type pair struct {
	low, high trace.Symbol // hosts in the order of symbols, so that calls in both directions compare the same two clocks
	shift     int64        // ns to add to the times of high, estimated from this pair alone
	server    int32        // the SERVER span
	reversed  bool         // whether the server is on low
}

// maxOffset bounds the sum of the shifts from a root down to a span, so that shifted times do not overflow.
const maxOffset = 1 << 57

// estimate fills k.shifts. All pairs of the same two hosts, whichever host calls the other, are shifted by the median
// of their individual estimates.
func (k *skew) estimate(spans []trace.Span, caller []int32) {
	k.shifts, k.excessive = k.shifts[:0], false
	if k.limit <= 0 || !k.findPairs(spans, caller) {
		return
	}
	slices.SortFunc(k.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high), cmp.Compare(a.shift, b.shift))
	})
	for pairs := k.pairs; len(pairs) > 0; {
		n := 1
		for n < len(pairs) && pairs[n].low == pairs[0].low && pairs[n].high == pairs[0].high {
			n++
		}
		k.shift(pairs[:n], median(pairs[(n-1)/2].shift, pairs[n/2].shift), len(spans))
		pairs = pairs[n:]
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
		if c.Kind != trace.Client || c.Host == s.Host || c.Host == 0 || s.Host == 0 || c.Tracepoint != 0 || s.Tracepoint != 0 {
			continue
		}
		p := pair{low: c.Host, high: s.Host, shift: shiftInto(c, s), server: int32(i)}
		if p.low > p.high {
			p.low, p.high, p.shift, p.reversed = p.high, p.low, -p.shift, true
		}
		shifted = shifted || p.shift != 0
		k.pairs = append(k.pairs, p)
	}
	return shifted
}

// shiftInto returns the shift in ns that moves the SERVER span s into its CLIENT span c. A server span longer than its
// client is moved only if it starts too early, to the start of the client. A server span inside its client is not
// moved. Any other is centred in its client.
func shiftInto(c, s *trace.Span) int64 {
	cEnd, sEnd := max(c.Start, c.End), max(s.Start, s.End)
	slack := int64(cEnd-c.Start) - int64(sEnd-s.Start)
	switch {
	case slack < 0:
		return max(0, int64(c.Start-s.Start))
	case s.Start >= c.Start && sEnd <= cEnd:
		return 0
	}
	return int64(c.Start-s.Start) + slack/2
}

// median returns the median of shifts whose middle two are a and b: the smaller one, or 0 if they are opposite, so that
// no direction is preferred.
func median(a, b int64) int64 {
	switch {
	case a == -b:
		return 0
	case max(a, -a) <= max(b, -b):
		return a
	}
	return b
}

// shift shifts the servers of pairs by ns, in the opposite direction for reversed pairs, unless ns exceeds the limit.
func (k *skew) shift(pairs []pair, ns int64, spans int) {
	switch {
	case ns == 0:
		return
	case time.Duration(max(ns, -ns)) > k.limit:
		k.excessive = true
		return
	case len(k.shifts) == 0:
		k.shifts = scratch.Filled(k.shifts, spans, 0)
	}
	for _, p := range pairs {
		k.shifts[p.server] = ns
		if p.reversed {
			k.shifts[p.server] = -ns
		}
	}
}
