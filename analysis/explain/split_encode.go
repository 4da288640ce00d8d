package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	splitsVersion = 1
	maxSplitText  = 1 << 16 // maximum length of a name or value
)

// AppendBinary appends the splits of all groups to b, without the options. They are saved because requests must have
// the same bins, and so the same groups, after a restart.
func (s *Splits) AppendBinary(b []byte) []byte {
	b = append(b, splitsVersion)
	all := s.All()
	b = codec.AppendUvarints(b, uint64(len(all)))
	for _, r := range all {
		b = r.appendTo(b)
	}
	return b
}

func (r *Split) appendTo(b []byte) []byte {
	b = codec.AppendWords(b, r.Group.Hi, r.Group.Lo, uint64(r.id.context), uint64(r.id.key))
	b = codec.AppendFloats(b, r.Effect)
	b = codec.AppendBools(append(b, byte(r.id.kind)), r.valuesPooled, r.values != nil)
	b = codec.AppendUvarints(b, uint64(r.Misses))
	b = appendText(b, r.Variable)
	b = codec.AppendUvarints(b, uint64(len(r.Bins)))
	if r.values == nil {
		return codec.AppendFloats(b, r.limits...)
	}
	for i := range r.Bins {
		b = codec.AppendUvarints(b, uint64(len(r.Bins[i].Values)))
		for _, v := range r.Bins[i].Values {
			b = appendText(b, v)
		}
	}
	b = codec.AppendUvarints(b, uint64(len(r.values)))
	for _, c := range slices.SortedFunc(maps.Keys(r.values), compareCells) {
		b = codec.AppendFloats(codec.AppendBools(b, c.some, c.numeric), c.number)
		b = codec.AppendWords(b, uint64(c.text))
		b = codec.AppendUvarints(b, r.values[c])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return codec.AppendText(b, s[:min(len(s), maxSplitText)])
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.number, b.number),
		trace.CompareBools(a.some, b.some), trace.CompareBools(a.numeric, b.numeric))
}

// DecodeSplits decodes an encoding by AppendBinary and returns the splits, with the given options, and the bytes after
// it. Errors wrap [codec.ErrCorrupt].
func DecodeSplits(b []byte, o SplitOptions) (*Splits, []byte, error) {
	d := codec.NewReader(b)
	d.Version(splitsVersion)
	s := NewSplits(o)
	var last analysis.Hash
	for range d.Count(1) {
		r := readSplit(d)
		if d.Bad() || len(s.rules) > 0 && r.Group.Compare(last) <= 0 {
			d.Fail()
			break
		}
		last = r.Group
		s.rules[r.Group] = r
	}
	if d.Bad() {
		return nil, nil, fmt.Errorf("%w: splits", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}

func readSplit(d *codec.Reader) *Split {
	r := &Split{Group: analysis.Hash{Hi: d.Word(), Lo: d.Word()}}
	r.id.context, r.id.key = trace.Context(d.Word()), trace.Symbol(d.Word())
	r.Effect = d.Float()
	r.id.kind = columnKind(d.Byte())
	r.valuesPooled = d.Bool()
	categories := d.Bool()
	misses := d.Uvarint()
	r.Variable = d.Text(maxSplitText)
	r.Where, r.Misses = r.id.context, int(misses)
	bins := d.Count(1)
	if d.Bad() || !(r.Effect >= 0 && r.Effect <= 1) || r.id.kind > spanCount || bins < 2 || misses > math.MaxInt32 {
		d.Fail()
		return r
	}
	if categories {
		readCategories(d, r, bins)
	} else {
		readLimits(d, r, bins)
	}
	return r
}

func readLimits(d *codec.Reader, r *Split, bins int) {
	for range bins - 1 {
		limit := d.Float()
		if n := len(r.limits); d.Bad() || limit != limit || n > 0 && limit <= r.limits[n-1] {
			d.Fail()
			return
		}
		r.limits = append(r.limits, limit)
	}
	r.numberBins()
}

func readCategories(d *codec.Reader, r *Split, bins int) {
	for range bins {
		var bin SplitBin
		for range d.Count(1) {
			bin.Values = append(bin.Values, d.Text(maxSplitText))
		}
		r.Bins = append(r.Bins, bin)
	}
	r.values = make(map[cell]uint64)
	var last cell
	for range d.Count(1) {
		c := cell{some: d.Bool(), numeric: d.Bool(), number: d.Float(), text: trace.Symbol(d.Word())}
		bin := d.Uvarint()
		if d.Bad() || bin >= uint64(bins) || c.number != c.number || len(r.values) > 0 && compareCells(c, last) <= 0 {
			d.Fail()
			return
		}
		last = c
		r.values[c] = bin
	}
}
