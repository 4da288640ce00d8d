package explain

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	splitsVersion = 1
	maxSplitText  = 1 << 16 // longest name or value that is decoded
)

// AppendBinary appends the splits of all groups to b: without them, the bins of requests, and so their groups, would be others
// after a restart. The options are not part of it.
func (s *Splits) AppendBinary(b []byte) []byte {
	b = append(b, splitsVersion)
	all := s.All()
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, r := range all {
		b = r.append(b)
	}
	return b
}

func (r *Split) append(b []byte) []byte {
	for _, w := range []uint64{r.Group.Hi, r.Group.Lo, uint64(r.id.context), uint64(r.id.key), math.Float64bits(r.Effect)} {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	b = append(b, byte(r.id.kind), byte(b2i(r.any)), byte(b2i(r.values != nil)))
	b = binary.AppendUvarint(b, uint64(r.Misses))
	b = appendText(b, r.Variable)
	b = binary.AppendUvarint(b, uint64(len(r.Bins)))
	if r.values == nil {
		for _, limit := range r.limits {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(limit))
		}
		return b
	}
	for i := range r.Bins {
		b = binary.AppendUvarint(b, uint64(len(r.Bins[i].Values)))
		for _, v := range r.Bins[i].Values {
			b = appendText(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.values)))
	for _, c := range slices.SortedFunc(maps.Keys(r.values), compareCells) {
		b = append(b, byte(b2i(c.some)), byte(b2i(c.numeric)))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.number))
		b = binary.LittleEndian.AppendUint64(b, uint64(c.text))
		b = binary.AppendUvarint(b, r.values[c])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxSplitText)]
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.number, b.number), b2i(a.some)-b2i(b.some), b2i(a.numeric)-b2i(b.numeric))
}

// DecodeSplits returns the Splits that AppendBinary wrote, with the given options, and the bytes behind them. An error wraps
// [stats.ErrCorrupt].
func DecodeSplits(b []byte, o SplitOptions) (*Splits, []byte, error) {
	d := splitDecoder{rest: b}
	if d.byte() != splitsVersion {
		d.bad = true
	}
	s := NewSplits(o)
	var last analysis.Hash
	for range d.count() {
		r := d.split()
		if d.bad || len(s.rules) > 0 && r.Group.Compare(last) <= 0 {
			d.bad = true
			break
		}
		last = r.Group
		s.rules[r.Group] = r
	}
	if d.bad {
		return nil, nil, fmt.Errorf("%w: splits", stats.ErrCorrupt)
	}
	return s, d.rest, nil
}

// splitDecoder reads untrusted bytes. Once it is bad, everything reads as 0.
type splitDecoder struct {
	rest []byte
	bad  bool
}

func (d *splitDecoder) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *splitDecoder) byte() byte { return d.take(1)[0] }

func (d *splitDecoder) flag() bool {
	b := d.byte()
	d.bad = d.bad || b > 1
	return b == 1
}

func (d *splitDecoder) fixed() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *splitDecoder) float() float64 { return math.Float64frombits(d.fixed()) }

func (d *splitDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad || n <= 0 || n > 1 && d.rest[n-1] == 0 { // a longer form of the same number
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads the number of things that follow, each of which takes a byte at least.
func (d *splitDecoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *splitDecoder) text() string {
	n := d.count()
	d.bad = d.bad || n > maxSplitText
	if d.bad {
		return ""
	}
	return string(d.take(n))
}

func (d *splitDecoder) split() *Split {
	r := &Split{Group: analysis.Hash{Hi: d.fixed(), Lo: d.fixed()}}
	r.id.context, r.id.key = trace.Context(d.fixed()), trace.Symbol(d.fixed())
	r.Effect = d.float()
	r.id.kind = columnKind(d.byte())
	r.any = d.flag()
	categories := d.flag()
	misses := d.uvarint()
	r.Variable = d.text()
	r.Where, r.Misses = r.id.context, int(misses)
	bins := d.count()
	if d.bad || !(r.Effect >= 0 && r.Effect <= 1) || r.id.kind > spanCount || bins < 2 || misses > math.MaxInt32 {
		d.bad = true
		return r
	}
	if categories {
		d.categories(r, bins)
	} else {
		d.limits(r, bins)
	}
	return r
}

func (d *splitDecoder) limits(r *Split, bins int) {
	for range bins - 1 {
		limit := d.float()
		if n := len(r.limits); d.bad || limit != limit || n > 0 && limit <= r.limits[n-1] {
			d.bad = true
			return
		}
		r.limits = append(r.limits, limit)
	}
	r.numberBins()
}

func (d *splitDecoder) categories(r *Split, bins int) {
	for range bins {
		var bin SplitBin
		for range d.count() {
			bin.Values = append(bin.Values, d.text())
		}
		r.Bins = append(r.Bins, bin)
	}
	r.values = make(map[cell]uint64)
	var last cell
	for range d.count() {
		c := cell{some: d.flag(), numeric: d.flag(), number: d.float(), text: trace.Symbol(d.fixed())}
		bin := d.uvarint()
		if d.bad || bin >= uint64(bins) || c.number != c.number || len(r.values) > 0 && compareCells(c, last) <= 0 {
			d.bad = true
			return
		}
		last = c
		r.values[c] = bin
	}
}
