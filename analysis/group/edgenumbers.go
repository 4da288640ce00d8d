package group

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// edgeNumbers numbers the edges of a group for the rows of its samples. If there are too many edges, only those with
// the smallest identities keep a number, so that the edges in samples depend on the set of all edges, not on their
// order.
type edgeNumbers struct {
	edges     []trace.Edge // by number
	ascending []int32      // the numbers, ascending by edge
	beyond    trace.Edge   // greater edges have no number because there were too many; 0 means that all have one
}

// find returns the position of the number of edge e in n.ascending, and reports whether e has a number.
func (n *edgeNumbers) find(e trace.Edge) (int, bool) {
	return slices.BinarySearchFunc(n.ascending, e,
		func(i int32, e trace.Edge) int { return cmp.Compare(n.edges[i], e) })
}

// of returns the number of e. It returns -1 if e has no number, or would have no number if the same requests had come
// in another order.
func (n *edgeNumbers) of(e trace.Edge, limit int) int32 {
	at, found := n.find(e)
	if !found || n.beyond != 0 && at >= limit {
		return -1
	}
	return n.ascending[at]
}

// add numbers the new edges in times. If there are twice as many edges as limit, it stops and returns true; the caller
// must then compact n and add times again.
func (n *edgeNumbers) add(times []observation.EdgeNanos, limit int) (full bool) {
	for _, x := range times {
		at, found := n.find(x.Edge)
		if found || n.beyond != 0 && x.Edge > n.beyond {
			continue
		}
		n.ascending = slices.Insert(n.ascending, at, int32(len(n.edges)))
		n.edges = append(n.edges, x.Edge)
		if len(n.edges) == 2*limit {
			return true
		}
	}
	return false
}

// compact renumbers the edges in ascending order. If there are too many, it drops the edges beyond the limit. It
// returns the new numbers by old number, or -1 for a dropped edge.
func (n *edgeNumbers) compact(limit int) (numbers []int32) {
	kept := n.ascending
	if len(kept) > limit && (n.beyond != 0 || len(kept) >= 2*limit) {
		kept = kept[:limit]
		n.beyond = n.edges[kept[limit-1]]
	}
	numbers = make([]int32, len(n.edges))
	for i := range numbers {
		numbers[i] = -1
	}
	edges := make([]trace.Edge, len(kept))
	for i, old := range kept {
		edges[i], numbers[old] = n.edges[old], int32(i)
	}
	n.edges, n.ascending = edges, kept
	for i := range kept {
		kept[i] = int32(i)
	}
	return numbers
}

// rowBuilder builds the rows of samples. It reuses its buffers.
type rowBuilder struct {
	columns []int32
	nanos   []int64
}

// row packs a request into a row of the sample. It leaves out the times of edges without a number.
func (b *rowBuilder) row(numbers *edgeNumbers, limit int, duration int64, times []observation.EdgeNanos) stats.Row {
	columns, nanos := b.columns[:0], b.nanos[:0]
	for _, x := range times {
		if n := numbers.of(x.Edge, limit); n >= 0 {
			columns = append(columns, n)
			nanos = append(nanos, x.Nanos)
		}
	}
	b.columns, b.nanos = columns, nanos
	sort2(columns, nanos)
	return stats.NewRow(duration, columns, nanos)
}

// renumbered returns row with new numbers for its edges. numbers holds the new number by old number, or -1 for edges to
// leave out. The time stamp does not change.
func (b *rowBuilder) renumbered(row stats.Row, numbers []int32) stats.Row {
	columns, nanos := b.columns[:0], b.nanos[:0]
	for e, x := range row.Edges() {
		if n := numbers[e]; n >= 0 {
			columns, nanos = append(columns, n), append(nanos, x)
		}
	}
	b.columns, b.nanos = columns, nanos
	sort2(columns, nanos)
	other := stats.NewRow(row.Total(), columns, nanos)
	if from, to := row.Arrival(); to > 0 {
		other.Stamp(from)
	}
	return other
}

// sort2 sorts keys in ascending order, and reorders values in the same way. It uses insertion sort, because rows are
// short and few requests are sampled.
func sort2(keys []int32, values []int64) {
	for i := 1; i < len(keys); i++ {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
			values[j], values[j-1] = values[j-1], values[j]
		}
	}
}
