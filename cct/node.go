package cct

import (
	"math"
	"math/bits"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Node is one calling context: the operations from the root of a request to a span, including all tracepoints between
// them, enabled or not. A tracepoint may have several nodes.
type Node struct {
	Context    trace.Context // the full calling context
	Op         trace.Op      // a step; for a variable, which is not an operation, the symbol of its tracepoint
	Service    trace.Symbol  // of Op; 0 if unknown
	Tracepoint trace.Symbol  // 0 for the baseline
	Parent     int32         // -1 for a root
	End        int32         // the subtree of node i is Nodes[i:Nodes[i].End]
	Depth      int32         // 0 for a root
	Layer      Layer
	Kind       TracepointKind
	Catalogued bool        // an agent announces it
	Unanchored bool        // runs somewhere below its parent, a baseline operation: its caller is unknown
	Seen       trace.Nanos // time of the last request that executed it, or 0
	Requests   uint64      // requests with it enabled, whether they executed it or not
	Hits       uint64      // its spans in these requests
	Errors     uint64      // its spans with status error
	Unanswered uint64      // its calls without their usual answer
	Bytes      int32       // trace data per hit; 0 if unknown
	Cost       time.Duration
	History    History
	Reference  Reference
}

// HitRate returns the number of spans of n per request with n enabled, or NaN without such requests.
func (n *Node) HitRate() float64 {
	if n.Requests == 0 {
		return math.NaN()
	}
	return float64(n.Hits) / float64(n.Requests)
}

// Baseline reports whether n is always enabled.
func (n *Node) Baseline() bool { return n.Tracepoint == 0 }

// History summarizes past investigations that enabled a context: its share of the slowdown and of the excess variance.
// Sums are integers, so the order of merging doesn't matter. The zero History is empty.
type History struct {
	N        uint64 // investigations
	Share    int64  // Σ share of the variance of its edge, in millionths
	Square   uint64 // Σ share², in millionths
	MeanTime int64  // Σ share of the mean, in millionths
}

const million = 1e6

// HistoryOf returns the history of one investigation with the given shares of variance and mean. It clips shares to
// [−1, 2] and counts NaN as 0.
func HistoryOf(variance, mean float64) History {
	v, m := clip(variance), clip(mean)
	return History{N: 1, Share: int64(v * million), Square: uint64(v * v * million), MeanTime: int64(m * million)}
}

func clip(share float64) float64 {
	if math.IsNaN(share) {
		return 0
	}
	return min(max(share, -1), 2)
}

// Merge adds the investigations in g to h.
func (h *History) Merge(g History) {
	h.N += g.N
	h.Share += g.Share
	h.Square += g.Square
	h.MeanTime += g.MeanTime
}

// Mean returns the mean share of variance, or NaN for an empty history.
func (h History) Mean() float64 {
	if h.N == 0 {
		return math.NaN()
	}
	return float64(h.Share) / float64(h.N) / million
}

// Reference holds exact sums of the time that fully instrumented, healthy requests spent in a context. The order of
// merging doesn't matter. The zero Reference is empty.
type Reference struct {
	N          uint64    // requests that executed the context
	Sum        uint64    // Σ ns
	SumSquares [2]uint64 // Σ ns², high and low word
}

// Add adds a request that spent nanos in the context. Negative times count as 0.
func (r *Reference) Add(nanos int64) {
	x := uint64(max(nanos, 0))
	hi, lo := bits.Mul64(x, x)
	r.Merge(Reference{N: 1, Sum: x, SumSquares: [2]uint64{hi, lo}})
}

// Merge adds the requests in s to r.
func (r *Reference) Merge(s Reference) {
	var carry uint64
	r.N += s.N
	r.Sum += s.Sum
	r.SumSquares[1], carry = bits.Add64(r.SumSquares[1], s.SumSquares[1], 0)
	r.SumSquares[0], _ = bits.Add64(r.SumSquares[0], s.SumSquares[0], carry)
}

// Mean returns the mean time of the requests that executed the context, in ns, or NaN without requests.
func (r Reference) Mean() float64 {
	if r.N == 0 {
		return math.NaN()
	}
	return float64(r.Sum) / float64(r.N)
}

// Level is a mean with its standard error, in ns.
type Level struct{ Mean, Error float64 }

// among returns the mean over n requests. r.N of them executed the context; the others count as 0. n must be at least
// 2.
func (r Reference) among(n uint64) Level {
	mean := float64(r.Sum) / float64(n)
	squares := math.Ldexp(float64(r.SumSquares[0]), 64) + float64(r.SumSquares[1])
	variance := max(0, (squares-float64(n)*mean*mean)/float64(n-1))
	return Level{mean, math.Sqrt(variance / float64(n))}
}

// Variance returns the sample variance in ns², or NaN for fewer than two requests.
func (r Reference) Variance() float64 {
	if r.N < 2 {
		return math.NaN()
	}
	n, mean := float64(r.N), r.Mean()
	squares := math.Ldexp(float64(r.SumSquares[0]), 64) + float64(r.SumSquares[1])
	return max(0, (squares-n*mean*mean)/(n-1))
}
