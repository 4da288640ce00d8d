package stats

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Row is the packed encoding of one request in a [Sample]: its arrival and, as variable-length integers, its total time
// and the times of the edges that it executed. A row of 20 edges takes about 110 bytes. Rows are created by NewRow and
// the decoders. A Row is immutable except for [Row.Stamp]. A nil Row stands for no request.
type Row []byte

// stamp is the size in bytes of the first field of a row: the [Series] tick when the request arrived, plus 1, or 0 if
// it is unknown. The field has a fixed size so that Stamp can set it later.
const stamp = 4

// NewRow packs a row without an arrival. The caller numbers the edges. NewRow panics unless edges are at least 0 and in
// ascending order, and total and times are in [0, MaxNanos) ns.
func NewRow(total int64, edges []int32, times []int64) Row {
	b := binary.AppendUvarint(make([]byte, stamp, 8+6*len(edges)), checked(total))
	last := int32(-1)
	for i, e := range edges {
		if e <= last {
			panic(fmt.Sprintf("stats: edge %d after edge %d", e, last))
		}
		b = codec.AppendUvarints(b, uint64(e-last-1))
		b = codec.AppendUvarints(b, checked(times[i]))
		last = e
	}
	return Row(slices.Clip(b))
}

// Stamp sets the arrival of r to the [Tick] that contains ns, a time in ns since the Unix epoch. It must be called
// before r is shared.
func (r Row) Stamp(ns int64) { binary.LittleEndian.PutUint32(r, uint32(tickOf(ns)+1)) }

// Arrival returns the tick [from, to) of the request's arrival, in ns since the Unix epoch, or 0, 0 if it is unknown.
func (r Row) Arrival() (from, to int64) {
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

// maxRow is the exclusive upper limit on the size of a row in bytes when decoding.
const maxRow = 1 << 16

// AppendBinary appends the length of r, then r, to b.
func (r Row) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(r)))
	return append(b, r...)
}

// DecodeRow decodes the output of AppendBinary and returns the bytes after it. The row does not share memory with b.
// Errors wrap [codec.ErrCorrupt].
func DecodeRow(b []byte) (Row, []byte, error) {
	d := codec.NewReader(b)
	n := d.Below(maxRow)
	if d.Bad() || n > uint64(d.Len()) || !validRow(d.Rest()[:n]) {
		return nil, nil, fmt.Errorf("%w: row", codec.ErrCorrupt)
	}
	return slices.Clone(Row(d.Rest()[:n])), d.Rest()[n:], nil
}

// maxStamp is the largest valid stamp: a later tick would end after the largest time.
const maxStamp = math.MaxInt64 / int64(Tick)

// validRow reports whether b can be the result of NewRow, with or without Stamp.
func validRow(b []byte) bool {
	return len(b) > stamp && int64(binary.LittleEndian.Uint32(b)) <= maxStamp && validTimes(b[stamp:])
}

// validTimes reports whether b can be the result of NewRow, without the stamp.
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

// Table is a sample of requests as a matrix in ns: one row per request, one column per edge.
type Table struct {
	Total []float64 // per request
	Cells []float64 // row-major: the times of request r are Cells[r*Edges : (r+1)*Edges]
	Edges int
}

// NewTable unpacks rows. The columns are the given edges, which must be in ascending order. Other edges in the rows are
// ignored; edges missing from a row are 0.
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

// Row returns the times of request r by edge. The slice shares memory with the table.
func (t Table) Row(r int) []float64 { return t.Cells[r*t.Edges : (r+1)*t.Edges] }
