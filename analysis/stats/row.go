package stats

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Row is one request in a [Sample], packed: when it came, and, as variable-length integers, its total and the times of the
// edges it executed. A row of 20 edges takes some 110 bytes. Edges that it did not execute take nothing. A Row is immutable
// but for [Row.Stamp], and comes from NewRow or DecodeRow: nil is none.
type Row []byte

// stamp is the size of the first field of a row: one more than the tick of a [Series] in which it came, or 0. It is no varint,
// so that it can be written when the others are.
const stamp = 4

// NewRow packs a row that does not say when it came. Edges are numbered as the caller likes, ascending; times are in ns, at
// least 0. It panics where edges do not ascend or times are out of range.
func NewRow(total int64, edges []int32, times []int64) Row {
	b := binary.AppendUvarint(make([]byte, stamp, 8+6*len(edges)), checked(total))
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

// Stamp makes r say that it came at time ns after 1970, to the [Tick]. Whoever packed r calls it before others have r.
func (r Row) Stamp(ns int64) { binary.LittleEndian.PutUint32(r, uint32(tickOf(ns)+1)) }

// Came returns the tick [from, to) in which the request came, in ns since the Unix epoch; 0, 0 where r does not say.
func (r Row) Came() (from, to int64) {
	end := int64(binary.LittleEndian.Uint32(r)) * int64(Tick)
	return max(0, end-int64(Tick)), end
}

// Total returns the request's duration in ns.
func (r Row) Total() int64 {
	t, _ := binary.Uvarint(r[stamp:])
	return int64(t)
}

// Edges yields the edges, ascending, and their times in ns.
func (r Row) Edges() iter.Seq2[int32, int64] {
	return func(yield func(int32, int64) bool) {
		_, n := binary.Uvarint(r[stamp:])
		edge := int32(-1)
		for at := stamp + n; at < len(r); {
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
	b = codec.AppendUvarints(b, uint64(len(r)))
	return append(b, r...)
}

// DecodeRow reads what AppendBinary wrote, into memory of its own, and returns the bytes behind it. An error wraps
// codec.ErrCorrupt.
func DecodeRow(b []byte) (Row, []byte, error) {
	d := codec.NewReader(b)
	n := d.Below(maxRow)
	if d.Bad() || n > uint64(d.Len()) || !validRow(d.Rest()[:n]) {
		return nil, nil, fmt.Errorf("%w: row", codec.ErrCorrupt)
	}
	return slices.Clone(Row(d.Rest()[:n])), d.Rest()[n:], nil
}

// DecodeUnstampedRow is DecodeRow for what AppendBinary wrote before rows said when they came.
func DecodeUnstampedRow(b []byte) (Row, []byte, error) {
	d := codec.NewReader(b)
	n := d.Below(maxRow - stamp)
	if d.Bad() || n > uint64(d.Len()) || !validTimes(d.Rest()[:n]) {
		return nil, nil, fmt.Errorf("%w: row", codec.ErrCorrupt)
	}
	return append(make(Row, stamp, stamp+n), d.Rest()[:n]...), d.Rest()[n:], nil
}

// maxStamp bounds stamps: later ticks end beyond what a time can be.
const maxStamp = math.MaxInt64 / int64(Tick)

// validRow reports whether NewRow could have packed b, and Stamp stamped it.
func validRow(b []byte) bool {
	return len(b) > stamp && int64(binary.LittleEndian.Uint32(b)) <= maxStamp && validTimes(b[stamp:])
}

// validTimes reports whether NewRow could have packed b behind the stamp.
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
