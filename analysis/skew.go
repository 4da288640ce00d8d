package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// pair is a CLIENT span and its SERVER child on another host, both baseline.
type pair struct {
	client, server trace.Symbol // hosts
	shift          int64        // ns by which this pair alone would shift the server
	span           int32        // the server
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
	x.pairs = append(x.pairs, pair{c.Host, s.Host, shiftOf(c, s), server})
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

// findShifts decides how far each server is shifted against its client: all pairs between the same two hosts by the median
// of what each of them asks for (of an even number, the smaller one of the two in the middle). It fills x.shifts if any is
// shifted at all.
func (x *Extractor) findShifts() {
	x.shifting = false
	x.path.Flags &^= FlagSkewCorrected | FlagSkewExcessive
	if !slices.ContainsFunc(x.pairs, func(p pair) bool { return p.shift != 0 }) {
		return
	}
	slices.SortFunc(x.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.server, b.server), cmp.Compare(a.shift, b.shift))
	})
	for pairs := x.pairs; len(pairs) > 0; {
		n := 1
		for n < len(pairs) && pairs[n].client == pairs[0].client && pairs[n].server == pairs[0].server {
			n++
		}
		x.shiftAll(pairs[:n], smaller(pairs[(n-1)/2].shift, pairs[n/2].shift))
		pairs = pairs[n:]
	}
}

// smaller returns the shift that changes less; a if they are opposite.
func smaller(a, b int64) int64 {
	if max(b, -b) < max(a, -a) {
		return b
	}
	return a
}

// shiftAll shifts the servers of pairs by shift, unless it is excessive.
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
	}
}
