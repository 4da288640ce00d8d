package stats

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Row is one request in a [Sample], packed: its total and the times of the edges it executed, as variable-length
// integers. A row of 20 edges takes some 110 bytes. Edges that it did not execute take nothing. A Row is immutable; nil
// is a row of total 0.
type Row []byte

// NewRow packs a row. Edges are numbered as the caller likes, ascending; times are in ns, at least 0. It panics where
// edges do not ascend or times are out of range.
func NewRow(total int64, edges []int32, times []int64) Row {
	b := binary.AppendUvarint(make([]byte, 0, 8+6*len(edges)), checked(total))
	last := int32(-1)
	for i, e := range edges {
		if e <= last {
			panic(fmt.Sprintf("stats: edge %d after %d in a row", e, last))
		}
		b = binary.AppendUvarint(b, uint64(e-last-1))
		b = binary.AppendUvarint(b, checked(times[i]))
		last = e
	}
	return Row(slices.Clip(b))
}

// Total returns the request's duration in ns.
func (r Row) Total() int64 {
	t, _ := binary.Uvarint(r)
	return int64(t)
}

// Edges yields the edges, ascending, and their times in ns.
func (r Row) Edges() iter.Seq2[int32, int64] {
	return func(yield func(int32, int64) bool) {
		_, n := binary.Uvarint(r)
		edge := int32(-1)
		for at := max(n, 0); at < len(r); {
			gap, n := binary.Uvarint(r[at:])
			x, m := binary.Uvarint(r[at+n:])
			at += n + m
			edge += int32(gap) + 1
			if !yield(edge, int64(x)) {
				return
			}
		}
	}
}

// maxRow bounds the bytes of a row when decoding.
const maxRow = 1 << 16

// AppendBinary appends r to b, with its length.
func (r Row) AppendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r)))
	return append(b, r...)
}

// DecodeRow reads what AppendBinary wrote, into memory of its own, and returns the bytes behind it. An error wraps
// ErrCorrupt.
func DecodeRow(b []byte) (Row, []byte, error) {
	d := decoder{rest: b}
	n := d.below(maxRow)
	if d.bad || n > uint64(len(d.rest)) || !validRow(d.rest[:n]) {
		return nil, nil, fmt.Errorf("%w: row", ErrCorrupt)
	}
	return slices.Clone(Row(d.rest[:n])), d.rest[n:], nil
}

// validRow reports whether NewRow could have packed b.
func validRow(b []byte) bool {
	d := decoder{rest: b}
	if len(b) > 0 {
		d.below(MaxNanos)
	}
	edge := int64(-1)
	for len(d.rest) > 0 && edge < 1<<31 {
		edge += int64(d.below(1<<31)) + 1
		d.below(MaxNanos)
	}
	return !d.bad && edge < 1<<31
}

// Table is a sample of requests as a matrix: one row per request, one column per edge, in ns. Parts and totals are set by the
// caller or by [NewTable].
type Table struct {
	Total []float64 // per request
	Cells []float64 // row-major: the times of request r are Cells[r*Edges : (r+1)*Edges]
	Edges int
}

// NewTable unpacks rows. The columns are the given edges, ascending; what a row has in other edges is left out. Missing is 0.
func NewTable(rows iter.Seq2[uint64, Row], edges []int32) Table {
	t := Table{Edges: len(edges)}
	for _, row := range rows {
		t.Total = append(t.Total, float64(row.Total()))
		if len(edges) == 0 {
			continue
		}
		at := len(t.Cells)
		t.Cells = append(t.Cells, make([]float64, len(edges))...)
		col := 0
		for e, x := range row.Edges() {
			for col < len(edges) && edges[col] < e {
				col++
			}
			if col < len(edges) && edges[col] == e {
				t.Cells[at+col] = float64(x)
			}
		}
	}
	return t
}

// Row returns the times of request r; it shares memory with the table.
func (t Table) Row(r int) []float64 { return t.Cells[r*t.Edges : (r+1)*t.Edges] }
