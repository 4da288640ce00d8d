package critpath

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// pair is a CLIENT span and its SERVER child on another host, both baseline.
type pair struct {
	low, high trace.Symbol // hosts, in the order of symbols: calls in both directions tell about the same two clocks
	shift     int64        // ns by which this pair alone would shift high against low
	span      int32        // the server
	back      bool         // the server is on low
}

// maxOffset bounds the sum of shifts from a root down to a span, so that shifted times do not overflow.
const maxOffset = 1 << 57

// pair notes server and its parent for skew correction if they are a pair that tells something about two clocks.
func (x *Extractor) pair(client, server int32) {
	c, s := &x.trace.Spans[client], &x.trace.Spans[server]
	if x.options.MaxSkew <= 0 || c.Kind != trace.Client || c.Host == s.Host || c.Host == 0 || s.Host == 0 ||
		c.Tracepoint != 0 || s.Tracepoint != 0 {
		return
	}
	p := pair{low: c.Host, high: s.Host, shift: shiftOf(c, s), span: server}
	if p.low > p.high {
		p.low, p.high, p.shift, p.back = p.high, p.low, -p.shift, true
	}
	x.pairs = append(x.pairs, p)
}

// shiftOf returns by how much s has to be shifted to lie as it must in c: a server that is longer than its client is pulled to
// start no earlier; one that lies inside stays; else the slack is the same on both sides.
func shiftOf(c, s *trace.Span) int64 {
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

// findShifts decides how far each server is shifted against its client: all pairs between the same two hosts, whichever calls
// the other, by the median of what each of them asks for. It fills x.shifts if any is shifted at all.
func (x *Extractor) findShifts() {
	x.shifting = false
	x.path.Flags &^= FlagSkewCorrected | FlagSkewExcessive
	if !slices.ContainsFunc(x.pairs, func(p pair) bool { return p.shift != 0 }) {
		return
	}
	slices.SortFunc(x.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high), cmp.Compare(a.shift, b.shift))
	})
	for pairs := x.pairs; len(pairs) > 0; {
		n := 1
		for n < len(pairs) && pairs[n].low == pairs[0].low && pairs[n].high == pairs[0].high {
			n++
		}
		x.shiftAll(pairs[:n], middle(pairs[(n-1)/2].shift, pairs[n/2].shift))
		pairs = pairs[n:]
	}
}

// middle returns the median of shifts of which a and b are in the middle: the one that changes less; 0 if they are opposite,
// so that neither direction is preferred.
func middle(a, b int64) int64 {
	switch {
	case a == -b:
		return 0
	case max(a, -a) <= max(b, -b):
		return a
	}
	return b
}

// shiftAll shifts the servers of pairs by shift, back where they are on the lower host, unless it is excessive.
func (x *Extractor) shiftAll(pairs []pair, shift int64) {
	if shift == 0 {
		return
	}
	if time.Duration(max(shift, -shift)) > x.options.MaxSkew {
		x.path.Flags |= FlagSkewExcessive
		return
	}
	x.path.Flags |= FlagSkewCorrected
	if !x.shifting {
		x.shifting = true
		x.shifts = filled(x.shifts, len(x.trace.Spans), 0)
	}
	for _, p := range pairs {
		x.shifts[p.span] = shift
		if p.back {
			x.shifts[p.span] = -shift
		}
	}
}
