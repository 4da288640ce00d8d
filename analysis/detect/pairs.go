package detect

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Pairs holds the covariances of the times of the leading edges of a problem: exact sums over the requests since the
// Pairs were created. The zero value is not usable; see [NewPairs].
type Pairs struct {
	edges   []trace.Edge // ascending
	moments stats.PairMoments
	times   []observation.EdgeNanos // scratch
	row     []int64                 // scratch: the times of edges, then the duration
}

// maxPairedEdges is the maximum number of edges of one problem. Together with the duration, they have 153 sums of
// products.
const maxPairedEdges = 16

// NewPairs returns empty Pairs for the edges with the highest positive scores in p.
func NewPairs(p *Problem) *Pairs {
	var order []*group.EdgeShare
	for i := range p.Edges {
		if e := &p.Edges[i]; e.Edge != 0 && e.Score > 0 {
			order = append(order, e)
		}
	}
	sorting.Slice(order, func(a, b *group.EdgeShare) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Edge, b.Edge))
	})
	x := &Pairs{}
	for _, e := range order[:min(len(order), maxPairedEdges)] {
		x.edges = append(x.edges, e.Edge)
	}
	slices.Sort(x.edges)
	x.row = make([]int64, len(x.edges)+1)
	return x
}

// Observe adds o. coarse means that the problem concerns a request type, so that its edges are results of
// [trace.ContextEdge].
func (x *Pairs) Observe(o *observation.Observation, coarse bool) {
	if coarse {
		x.times = o.AppendContextTimes(x.times[:0])
	} else {
		x.times = o.AppendTimes(x.times[:0])
	}
	clear(x.row)
	for _, t := range x.times {
		if i, found := slices.BinarySearch(x.edges, t.Edge); found {
			x.row[i] += t.Nanos
		}
	}
	x.row[len(x.edges)] = o.Duration.Nanoseconds()
	x.moments.Add(x.row)
}

// PairShare is the share that the covariance of two edges has in the variance of a group: 2·Cov(a,b)/Var(T).
type PairShare struct {
	A, B  trace.Edge
	Share float64
}

// Shares returns the pairs with a positive share, the largest first, or nil if there are fewer than two requests.
func (x *Pairs) Shares() []PairShare {
	if x.moments.N < 2 {
		return nil
	}
	var shares []PairShare
	variance := x.moments.Cov(len(x.edges), len(x.edges))
	for i := range x.edges {
		for j := range i {
			if share := quotient(2*x.moments.Cov(i, j), variance); share > 0 {
				shares = append(shares, PairShare{x.edges[j], x.edges[i], share})
			}
		}
	}
	sorting.SliceStable(shares, func(a, b PairShare) int { return cmp.Compare(b.Share, a.Share) })
	return shares
}

const pairsVersion = 1

// AppendBinary appends x to b. The same requests in any order give the same bytes.
func (x *Pairs) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, pairsVersion))
	e.Uvarints(uint64(len(x.edges)))
	for _, edge := range x.edges {
		e.Words(uint64(edge))
	}
	return x.moments.AppendBinary(e.B)
}

// DecodePairs returns the Pairs that AppendBinary encoded, and the bytes after them. Errors wrap [codec.ErrCorrupt].
func DecodePairs(b []byte) (*Pairs, []byte, error) {
	d := codec.NewReader(b)
	d.Version(pairsVersion)
	x := &Pairs{}
	for i := range d.Below(maxPairedEdges + 1) {
		edge := trace.Edge(d.Word())
		d.Ascending(int(i), i > 0 && edge > x.edges[max(0, int(i)-1)])
		x.edges = append(x.edges, edge)
	}
	x.moments = codec.Decode(d, stats.DecodePairMoments)
	x.row = make([]int64, len(x.edges)+1)
	if d.Bad() || x.moments.Sums != nil && len(x.moments.Sums) != len(x.row) {
		return nil, nil, codec.ErrCorrupt
	}
	return x, d.Rest(), nil
}
