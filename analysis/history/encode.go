package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// sitesVersion is the first byte of an encoded history.
const sitesVersion = 1

// AppendBinary appends h to b, without its table. Histories of the same calls have equal encodings.
func (h *Sites) AppendBinary(b []byte) []byte {
	b = append(b, sitesVersion)
	b = codec.AppendUvarints(b, h.refused, uint64(h.folded), uint64(h.hour))
	b = codec.AppendFloats(b, h.longFrom)
	b = h.appendEntries(b)
	b = codec.AppendUvarints(b, uint64(len(h.skipped)))
	for _, s := range h.skipped {
		b = codec.AppendWords(b, s.id)
		b = codec.AppendUvarints(b, uint64(s.From), uint64(s.To), uint64(len(s.services)))
		for _, service := range s.services {
			b = codec.AppendWords(b, uint64(service))
		}
	}
	b = codec.AppendUvarints(b, uint64(len(h.numbers)))
	for _, key := range slices.SortedFunc(maps.Keys(h.numbers), SiteKey.Compare) {
		b = h.appendSite(b, h.numbers[key])
	}
	return h.messages.appendTo(h.addresses.appendTo(h.instances.appendTo(b)))
}

func (h *instances) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(h.series)))
	for _, k := range slices.SortedFunc(maps.Keys(h.series), InstanceKey.compare) {
		s := h.series[k]
		b = codec.AppendWords(b, uint64(k.Service), uint64(k.Key), uint64(k.Value))
		b = s.Errors.appendTo(s.Counts.appendTo(b, timed), 0)
	}
	return b
}

// appendTo appends c with the contents selected by flags.
func (c *Counts) appendTo(b []byte, flags int) []byte {
	all := c.Unpack(nil)
	b = codec.AppendUvarints(b, uint64(len(all)))
	for _, x := range all {
		b = codec.AppendUvarints(b, uint64(x.Slice), uint64(x.Calls))
		if flags&timed != 0 {
			b = codec.AppendVarints(b, x.Nanos)
		}
		if flags&beside != 0 {
			b = codec.AppendVarints(b, x.Beside)
		}
		if flags&logged != 0 {
			b = codec.AppendUvarints(b, uint64(x.logs))
		}
	}
	return b
}

func (h *Sites) appendSite(b []byte, number int32) []byte {
	s := &h.sites[number]
	b = codec.AppendWords(b, uint64(s.Parent), uint64(s.Op), uint64(s.Base),
		uint64(h.called[number]), uint64(h.names[s.Service]))
	t := &h.targets[number]
	b = codec.AppendBools(b, s.Border, s.Client, t.direct, t.settled, t.settledDirect)
	series := &h.series[number]
	b = codec.AppendUvarints(b, series.requests, uint64(series.within))
	b = series.appendTo(b, timed|beside|logged)
	b = codec.AppendBools(b, series.Local != nil)
	if series.Local != nil {
		b = series.Local.appendTo(b, timed|beside|logged)
	}
	b = codec.AppendUvarints(b, uint64(len(series.Shapes)))
	for _, x := range slices.SortedFunc(slices.Values(series.Shapes),
		func(a, b ShapeSeries) int { return a.Shape.compare(b.Shape) }) {
		b = codec.AppendWords(b, x.Hash)
		b = codec.AppendBools(b, x.Failed, x.answered)
		b = x.appendTo(b, 0)
	}
	return series.Week.appendTo(b)
}

// DecodeSites returns the history that AppendBinary encoded. table is the table of the encoded history. Errors wrap
// [codec.ErrCorrupt].
func DecodeSites(b []byte, table *trace.Table) (*Sites, error) {
	r := codec.NewReader(b)
	r.Version(sitesVersion)
	h := NewSites(table)
	h.refused, h.folded, h.hour, h.longFrom = r.Uvarint(), readSlice(r), Hour(r.Below(1<<31)), r.Finite()
	h.readEntries(r)
	for range r.Count(11) {
		s := skip{id: r.Word(), Range: Range{readSlice(r), readSlice(r)}}
		for range r.Count(8) {
			s.services = append(s.services, trace.Symbol(r.Word()))
		}
		h.skipped = append(h.skipped, s)
	}
	n := r.Count(40)
	r.Check(n <= MaxSites)
	for range n {
		h.readSite(r)
	}
	h.instances.read(r)
	h.addresses.read(r)
	h.messages.read(r)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: history of sites", err)
	}
	return h, nil
}

func (h *Sites) readSite(r *codec.Reader) {
	s := tallySite{
		tallyKey: tallyKey{SiteKey: SiteKey{Parent: trace.Op(r.Word()), Op: trace.Op(r.Word())}},
		base:     trace.Op(r.Word()), target: trace.Op(r.Word()), service: trace.Symbol(r.Word()),
	}
	s.Border, s.client = r.Bool(), r.Bool()
	known := target{direct: r.Bool(), settled: r.Bool(), settledDirect: r.Bool()}
	if r.Bad() {
		return
	}
	_, twice := h.numbers[s.SiteKey]
	r.Check(!twice)
	number := h.number(&s)
	h.targets[number].keep(&known)
	series := &h.series[number]
	series.requests, series.within = r.Uvarint(), int64(r.Below(1<<63))
	times := func(x *Cell) { x.Nanos, x.Beside, x.logs = r.Varint(), r.Varint(), int64(r.Below(1<<63)) }
	series.pack(readCells(r, times))
	if r.Bool() {
		series.Local = &Times{}
		series.Local.pack(readCells(r, times))
	}
	n := r.Count(11)
	series.Shapes = make([]ShapeSeries, 0, n)
	for range n {
		x := ShapeSeries{Shape: Shape{r.Word(), r.Bool(), r.Bool()}}
		x.pack(readCells(r, nil))
		series.Shapes = append(series.Shapes, x)
	}
	h.shapes += len(series.Shapes)
	series.Week = readWeek(r)
}

func (h *instances) read(r *codec.Reader) {
	n := r.Count(26)
	r.Check(n <= maxInstances)
	last := InstanceKey{}
	for range n {
		k := InstanceKey{trace.Symbol(r.Word()), trace.Symbol(r.Word()), trace.Symbol(r.Word())}
		r.Check(last.compare(k) < 0)
		s := &InstanceSeries{}
		s.pack(readCells(r, func(x *Cell) { x.Nanos = r.Varint() }))
		s.Errors.pack(readCells(r, nil))
		if r.Bad() {
			return
		}
		h.put(k, s)
		last = k
	}
}

// readCells reads cells. It calls rest, if not nil, after the calls of each cell to read the other contents.
func readCells(r *codec.Reader, rest func(x *Cell)) Cells {
	n := r.Count(2)
	c := make(Cells, 0, n)
	for range n {
		x := Cell{Slice: readSlice(r), Calls: uint32(r.Below(1 << 32))}
		if rest != nil {
			rest(&x)
		}
		c = append(c, x)
	}
	r.Check(slices.IsSortedFunc(c, func(a, b Cell) int { return cmp.Compare(a.Slice, b.Slice) }))
	return c
}

func readSlice(r *codec.Reader) Slice { return Slice(r.Below(1 << 31)) }
