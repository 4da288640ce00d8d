package cct

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Node is one calling context: the operations from the root of a request to a span, including all tracepoints in
// between, enabled or not. A tracepoint may have several nodes.
type Node struct {
	Context    trace.Context // the full calling context
	Op         trace.Op      // a step; for a variable, the symbol of its tracepoint
	Service    trace.Symbol  // of Op; 0 if unknown
	Tracepoint trace.Symbol  // 0 for the baseline
	Parent     int32         // -1 for a root
	End        int32         // the subtree of node i is Nodes[i:Nodes[i].End]
	Depth      int32         // 0 for a root
	Layer      Layer
	Kind       TracepointKind
	Catalogued bool        // an agent announces it
	Unanchored bool        // runs somewhere below its parent, a baseline operation, but its caller is unknown
	Seen       trace.Nanos // time of the last request that executed it; 0 before the first
	Requests   uint64      // requests while it was enabled, whether they executed it or not
	Hits       uint64      // its spans in these requests
	Errors     uint64      // its spans with an error status
	Unanswered uint64      // its calls without their usual answer
	Bytes      int32       // bytes of trace data per hit; 0 if unknown
	Cost       time.Duration
	History    History
}

// HitRate returns the number of spans of n per request while n was enabled, or NaN if there were no such requests.
func (n *Node) HitRate() float64 {
	if n.Requests == 0 {
		return math.NaN()
	}
	return float64(n.Hits) / float64(n.Requests)
}

// Baseline reports whether n is always enabled.
func (n *Node) Baseline() bool { return n.Tracepoint == 0 }

// History summarizes the shares of the slowdown and of the excess variance that past investigations found in a context.
// Sums are integers so that the order of merging doesn't matter. The zero History is empty.
type History struct {
	N        uint64 // number of investigations
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
