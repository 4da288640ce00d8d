package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// sitesVersion is the first byte of an encoded history.
const sitesVersion = 2

// AppendBinary appends the encoding of h to b, without its table. Histories of the same calls have equal encodings.
func (h *Sites) AppendBinary(b []byte) []byte {
	b = append(b, sitesVersion)
	b = codec.AppendUvarints(b, h.refused, uint64(h.folded), uint64(h.hour))
	b = h.Skipped.appendTo(h.Requests.appendTo(b))
	b = codec.AppendUvarints(b, uint64(len(h.numbers)))
	for _, key := range sorting.Sorted(maps.Keys(h.numbers), SiteKey.Compare) {
		b = h.appendSite(b, h.numbers[key])
	}
	return h.Durations.appendTo(h.Messages.appendTo(h.addresses.appendTo(h.Instances.appendTo(b))))
}

// DecodeSites returns the history that AppendBinary encoded. table is the table of the encoded history. Errors wrap
// [codec.ErrCorrupt].
func DecodeSites(b []byte, table *trace.Table) (*Sites, error) {
	r := codec.NewReader(b)
	r.Version(sitesVersion)
	h := NewSites(table)
	h.refused, h.folded, h.hour = r.Uvarint(), readSlice(r), Hour(r.Below(1<<31))
	h.Requests.read(r)
	h.Skipped.read(r)
	n := r.Count(40)
	r.Check(n <= MaxSites)
	for range n {
		h.readSite(r)
	}
	h.Instances.read(r)
	h.addresses.read(r)
	h.Messages.read(r)
	h.Durations.read(r)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: history of sites", err)
	}
	return h, nil
}

func (h *Sites) appendSite(b []byte, number int32) []byte {
	s, t := &h.sites[number], &h.targets[number]
	b = codec.AppendWords(b, uint64(s.Parent), uint64(s.Op), uint64(s.Base),
		uint64(t.step), uint64(h.Services.names[s.Service]))
	b = codec.AppendBools(b, s.Border, s.Client, t.direct, t.settled, t.settledDirect)
	return h.series[number].appendTo(b)
}

func (h *Sites) readSite(r *codec.Reader) {
	s := tallySite{
		tallyKey: tallyKey{SiteKey: SiteKey{Parent: trace.Op(r.Word()), Op: trace.Op(r.Word())}},
		base:     trace.Op(r.Word()), target: trace.Op(r.Word()), service: trace.Symbol(r.Word()),
	}
	s.Border, s.client = r.Bool(), r.Bool()
	known := knownTarget{direct: r.Bool(), settled: r.Bool(), settledDirect: r.Bool()}
	if r.Bad() {
		return
	}
	_, twice := h.numbers[s.SiteKey]
	r.Check(!twice)
	number := h.number(&s)
	h.targets[number].knownTarget = known
	h.series[number].read(r)
	h.shapes += len(h.series[number].Shapes)
}

// appendTo appends the cells of c, with the contents selected by flags.
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

// readCells reads cells. If rest is not nil, readCells calls it for each cell to read the contents after the number of
// calls.
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
