package baselinediff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Versions of the encoding. The first has no instances, the second no weeks, the third no logarithms, the fourth no
// days.
const (
	sitesVersion  = 5
	sitesVersion1 = 1
	sitesVersion2 = 2
	sitesVersion3 = 3
	sitesVersion4 = 4
)

// AppendBinary appends h to b, without its table. Histories of the same calls give equal bytes.
func (h *Sites) AppendBinary(b []byte) []byte {
	b = append(b, sitesVersion)
	b = codec.AppendUvarints(b, h.refused, uint64(h.folded), uint64(h.hour), uint64(len(h.total)))
	for _, c := range h.total {
		b = codec.AppendUvarints(b, uint64(c.slice), uint64(c.calls), uint64(c.nanos))
	}
	b = codec.AppendUvarints(b, uint64(len(h.skipped)))
	for _, s := range h.skipped {
		b = codec.AppendWords(b, s.id)
		b = codec.AppendUvarints(b, uint64(s.from), uint64(s.to), uint64(len(s.services)))
		for _, service := range s.services {
			b = codec.AppendWords(b, uint64(service))
		}
	}
	b = codec.AppendUvarints(b, uint64(len(h.numbers)))
	for _, key := range slices.SortedFunc(maps.Keys(h.numbers), siteKey.compare) {
		b = h.appendSite(b, h.numbers[key])
	}
	return h.instances.appendTo(b)
}

func (h *instances) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(h.series)))
	for _, k := range slices.SortedFunc(maps.Keys(h.series), instanceKey.compare) {
		s := h.series[k]
		b = codec.AppendWords(b, uint64(k.service), uint64(k.key), uint64(k.value))
		b = s.errors.appendTo(s.counts.appendTo(b, timed), 0)
	}
	return b
}

// appendTo appends c, with what cells of such flags have.
func (c *counts) appendTo(b []byte, flags int) []byte {
	all := c.unpack(nil)
	b = codec.AppendUvarints(b, uint64(len(all)))
	for _, x := range all {
		b = codec.AppendUvarints(b, uint64(x.slice), uint64(x.calls))
		if flags&timed != 0 {
			b = codec.AppendVarints(b, x.nanos)
		}
		if flags&logged != 0 {
			b = codec.AppendUvarints(b, uint64(x.logs))
		}
	}
	return b
}

func (h *Sites) appendSite(b []byte, number int32) []byte {
	s := &h.sites[number]
	b = codec.AppendWords(b, uint64(s.parent), uint64(s.op), uint64(s.base), uint64(h.called[number]), uint64(h.names[s.service]))
	b = codec.AppendBools(b, s.border, s.client)
	series := &h.series[number]
	b = series.appendTo(b, timed|logged)
	b = codec.AppendUvarints(b, uint64(len(series.shapes)))
	for _, x := range slices.SortedFunc(slices.Values(series.shapes), func(a, b shapeSeries) int { return a.shape.compare(b.shape) }) {
		b = codec.AppendWords(b, x.hash)
		b = codec.AppendBools(b, x.failed, x.answered)
		b = x.appendTo(b, 0)
	}
	return series.week.appendTo(b)
}

// DecodeSites returns the history that AppendBinary encoded. table is the one of the encoded history. An error wraps
// [codec.ErrCorrupt].
func DecodeSites(b []byte, table *trace.Table) (*Sites, error) {
	r := codec.NewReader(b)
	version := r.Version(sitesVersion, sitesVersion4, sitesVersion3, sitesVersion2, sitesVersion1)
	h := NewSites(table)
	h.refused, h.folded = r.Uvarint(), readSlice(r)
	if version > sitesVersion2 {
		h.hour = hour(r.Below(1 << 31))
	}
	h.total = readCells(r, func(x *cell) { x.nanos = int64(r.Below(1 << 63)) })
	for range r.Count(2) {
		s := skip{}
		if version > sitesVersion2 {
			s.id = r.Word()
		}
		s.sliceRange = sliceRange{readSlice(r), readSlice(r)}
		if version > sitesVersion2 {
			for range r.Count(8) {
				s.services = append(s.services, trace.Symbol(r.Word()))
			}
		}
		h.skipped = append(h.skipped, s)
	}
	n := r.Count(40)
	r.Check(n <= MaxSites)
	for range n {
		h.readSite(r, version)
	}
	if version != sitesVersion1 {
		h.instances.read(r)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: history of sites", err)
	}
	return h, nil
}

func (h *Sites) readSite(r *codec.Reader, version byte) {
	s := tallySite{
		siteKey: siteKey{parent: trace.Op(r.Word()), op: trace.Op(r.Word())},
		base:    trace.Op(r.Word()), target: trace.Op(r.Word()), service: trace.Symbol(r.Word()),
	}
	s.border, s.client = r.Bool(), r.Bool()
	if r.Bad() {
		return
	}
	_, known := h.numbers[s.siteKey]
	r.Check(!known)
	series := &h.series[h.number(&s)]
	series.pack(readCells(r, func(x *cell) {
		x.nanos = r.Varint()
		if version > sitesVersion3 {
			x.logs = int64(r.Below(1 << 63))
		} else {
			x.logs = x.logsOfMean() // more than it was, for the two hours of a history
		}
	}))
	n := r.Count(11)
	series.shapes = make([]shapeSeries, 0, n)
	for range n {
		x := shapeSeries{shape: shape{r.Word(), r.Bool(), r.Bool()}}
		x.pack(readCells(r, nil))
		series.shapes = append(series.shapes, x)
	}
	h.shapes += len(series.shapes)
	if version > sitesVersion2 {
		series.week = readWeek(r, version)
	}
}

func (h *instances) read(r *codec.Reader) {
	n := r.Count(26)
	r.Check(n <= maxInstances)
	last := instanceKey{}
	for range n {
		k := instanceKey{trace.Symbol(r.Word()), trace.Symbol(r.Word()), trace.Symbol(r.Word())}
		r.Check(last.compare(k) < 0)
		s := &instanceSeries{}
		s.pack(readCells(r, func(x *cell) { x.nanos = r.Varint() }))
		s.errors.pack(readCells(r, nil))
		if r.Bad() {
			return
		}
		h.put(k, s)
		last = k
	}
}

// readCells reads cells. After their calls, rest reads what else they have; nil: nothing.
func readCells(r *codec.Reader, rest func(x *cell)) cells {
	n := r.Count(2)
	c := make(cells, 0, n)
	for range n {
		x := cell{slice: readSlice(r), calls: uint32(r.Below(1 << 32))}
		if rest != nil {
			rest(&x)
		}
		c = append(c, x)
	}
	r.Check(slices.IsSortedFunc(c, func(a, b cell) int { return cmp.Compare(a.slice, b.slice) }))
	return c
}

func readSlice(r *codec.Reader) slice { return slice(r.Below(1 << 31)) }
