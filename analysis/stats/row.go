package stats

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Row is one request of a [Sample], packed: the tick of its arrival, then, as variable-length integers, its total and
// the times of the edges it executed. A row of 20 edges takes about 110 bytes. Edges that the request did not execute
// take none. Rows come from NewRow and DecodeRow; nil is no row. A Row is immutable except for [Row.Stamp].
type Row []byte

// stampSize is the size in bytes of the first field of a row: 1 + the [Series] tick in which the request arrived, or 0
// if unknown. The field has a fixed width so that it can be set after the others.
const stampSize = 4

// NewRow packs a row without an arrival time. Edges must be ascending, in any numbering; times are in ns, each in [0,
// MaxNanos). It panics if edges are not ascending or times are out of range.
func NewRow(total int64, edges []int32, times []int64) Row {
	b := binary.AppendUvarint(make([]byte, stampSize, 8+6*len(edges)), checked(total))
	last := int32(-1)
	for i, e := range edges {
		if e <= last {
			panic(fmt.Sprintf("stats: edge %d after %d in a row", e, last))
		}
		b = codec.AppendUvarints(b, uint64(e-last-1))
		b = codec.AppendUvarints(b, checked(times[i]))
		last = e
	}
	return Row(slices.Clip(b))
}

// Stamp records that the request arrived ns after the Unix epoch, rounded down to the [Tick]. Only the creator of r may
// call it, before sharing r.
func (r Row) Stamp(ns int64) { binary.LittleEndian.PutUint32(r, uint32(tickOf(ns)+1)) }

// Came returns the tick [from, to) in which the request arrived, in ns since the Unix epoch, or 0, 0 if it is unknown.
func (r Row) Came() (from, to int64) {
	end := int64(binary.LittleEndian.Uint32(r)) * int64(Tick)
	return max(0, end-int64(Tick)), end
}

// Total returns the request's duration in ns.
func (r Row) Total() int64 {
	t, _ := binary.Uvarint(r[stampSize:])
	return int64(t)
}

// Edges yields the edges, ascending, with their times in ns.
func (r Row) Edges() iter.Seq2[int32, int64] {
	return func(yield func(int32, int64) bool) {
		_, n := binary.Uvarint(r[stampSize:])
		edge := int32(-1)
		for at := stampSize + n; at < len(r); {
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

// maxRow bounds the bytes of a row that a decoder accepts.
const maxRow = 1 << 16

// AppendBinary appends the length of r and r to b.
func (r Row) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(r)))
	return append(b, r...)
}

// DecodeRow decodes the output of AppendBinary into new memory and returns the remaining bytes. An error wraps
// [codec.ErrCorrupt].
func DecodeRow(b []byte) (Row, []byte, error) {
	d := codec.NewReader(b)
	n := d.Below(maxRow)
	if d.Bad() || n > uint64(d.Len()) || !validRow(d.Rest()[:n]) {
		return nil, nil, fmt.Errorf("%w: row", codec.ErrCorrupt)
	}
	return slices.Clone(Row(d.Rest()[:n])), d.Rest()[n:], nil
}

// DecodeUnstampedRow is DecodeRow for the older encoding without arrival times.
func DecodeUnstampedRow(b []byte) (Row, []byte, error) {
	d := codec.NewReader(b)
	n := d.Below(maxRow - stampSize)
	if d.Bad() || n > uint64(d.Len()) || !validTimes(d.Rest()[:n]) {
		return nil, nil, fmt.Errorf("%w: row", codec.ErrCorrupt)
	}
	return append(make(Row, stampSize, stampSize+n), d.Rest()[:n]...), d.Rest()[n:], nil
}

// maxStamp bounds stamps: later ticks end after the largest time in ns that an int64 holds.
const maxStamp = math.MaxInt64 / int64(Tick)

// validRow reports whether b is a possible output of NewRow and Stamp.
func validRow(b []byte) bool {
	return len(b) > stampSize && int64(binary.LittleEndian.Uint32(b)) <= maxStamp && validTimes(b[stampSize:])
}

// validTimes reports whether b is a possible output of NewRow without the stamp.
func validTimes(b []byte) bool {
	d := codec.NewReader(b)
	d.Below(MaxNanos)
	edge := int64(-1)
	for d.Len() > 0 && edge < 1<<31 {
		edge += int64(d.Below(1<<31)) + 1
		d.Below(MaxNanos)
	}
	return !d.Bad() && edge < 1<<31
}

// Table is a sample of requests as a matrix, in ns: one row per request, one column per edge. It is built by [NewTable]
// or by the caller.
type Table struct {
	Total []float64 // per request
	Cells []float64 // row-major: the times of request r are Cells[r*Edges : (r+1)*Edges]
	Edges int
}

// NewTable unpacks rows. The columns are the given edges, ascending; other edges of a row are ignored. Edges missing
// from a row are 0.
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
