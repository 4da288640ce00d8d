package group

import (
	"encoding/binary"
	"maps"
	"math"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

func writeTally(e *codec.Writer, t *Tally) {
	e.B = t.Total.AppendBinary(e.B)
	e.Uvarints(uint64(len(t.Edges)))
	for i := range t.Edges {
		x := &t.Edges[i]
		e.Words(uint64(x.Edge))
		e.Uvarints(x.Requests)
		e.B = x.CoMoments.AppendBinary(e.B)
	}
}

func readTally(d *codec.Reader) (t Tally) {
	t.Total = codec.Decode(d, stats.DecodeMoments)
	for i := range d.Count(12) {
		x := EdgeTally{
			Edge:      trace.Edge(d.Word()),
			Requests:  d.Uvarint(),
			CoMoments: codec.Decode(d, stats.DecodeCoMoments),
		}
		d.Ascending(i, i > 0 && x.Edge > t.Edges[max(0, i-1)].Edge)
		if d.Bad() {
			break
		}
		t.Edges = append(t.Edges, x)
	}
	return t
}

func appendRow(b []byte, r stats.Row) []byte { return r.AppendBinary(b) }

func appendTransfer(b []byte, t Transfer) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, t.Bytes), uint64(t.Nanos))
}

func decodeTransfer(b []byte) (Transfer, []byte, error) {
	d := codec.NewReader(b)
	t := Transfer{Bytes: d.Below(maxBytes), Nanos: int64(d.Below(stats.MaxNanos))}
	if d.Bad() {
		return Transfer{}, nil, codec.ErrCorrupt
	}
	return t, d.Rest(), nil
}

func writeWindow(e *codec.Writer, w *Window) {
	writeTally(e, &w.Tally)
	e.B = w.Latency.AppendBinary(e.B)
	e.B = w.Sample.AppendBinary(e.B, appendRow)
	e.B = w.Transfers.AppendBinary(e.B, appendTransfer)
	e.Uvarints(w.Failed)
	e.Times(w.First, w.Last)
}

// readWindow reads a window. It fails d if a row has an edge number of `edges` or more.
func readWindow(d *codec.Reader, edges int) (w Window) {
	w.Tally = readTally(d)
	w.Latency = codec.Decode(d, stats.DecodeSketch)
	w.Sample = codec.Decode(d,
		func(b []byte) (stats.Sample[stats.Row], []byte, error) { return stats.DecodeSample(b, stats.DecodeRow) })
	w.Transfers = codec.Decode(d,
		func(b []byte) (stats.Sample[Transfer], []byte, error) { return stats.DecodeSample(b, decodeTransfer) })
	w.Failed, w.First, w.Last = d.Uvarint(), d.Time(), d.Time()
	for _, row := range w.Sample.All() {
		for n := range row.Edges() {
			if int(n) >= edges {
				d.Fail()
			}
		}
	}
	return w
}

// AppendBinary appends p to b.
func (p *Past) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(p.Total.AppendBinary(b))
	e.Uvarints(p.Failed, uint64(len(p.Edges)))
	for _, x := range p.Edges {
		e.Words(uint64(x.Edge))
		e.Uvarints(x.Nanos)
	}
	writeLatencies(e, &p.Latency)
	return e.B
}

// decodePast returns the Past that AppendBinary encoded, and the bytes after it. Errors wrap [codec.ErrCorrupt].
func decodePast(b []byte) (Past, []byte, error) {
	d := codec.NewReader(b)
	p := Past{Total: codec.Decode(d, stats.DecodeMoments), Failed: d.Uvarint()}
	for i := range d.Below(pastEdges + 2) {
		x := PastEdge{trace.Edge(d.Word()), d.Uvarint()}
		d.Ascending(int(i), i > 0 && x.Edge > p.Edges[len(p.Edges)-1].Edge)
		if d.Bad() {
			break
		}
		p.Edges = append(p.Edges, x)
	}
	p.Latency = readLatencies(d)
	if d.Bad() || len(p.Edges) > pastEdges && p.Edges[0].Edge != 0 {
		return Past{}, nil, codec.ErrCorrupt
	}
	return p, d.Rest(), nil
}

// AppendSizeModel appends m, which may be nil, to b.
func AppendSizeModel(b []byte, m *SizeModel) []byte {
	w := codec.NewWriter(b)
	w.Bools(m != nil)
	if m == nil {
		return w.B
	}
	w.Floats(m.Base, m.PerByte, m.PerSegment, m.Noise, m.Relative, m.SizeModel.Timeout)
	w.Uvarints(uint64(m.Segment), m.Requests)
	w.Floats(m.Delayed, m.TimedOut, m.BadLow, m.BadHigh, m.MeanExpected, m.Typical, m.CoV, m.CoVLow, m.CoVHigh,
		m.CoVTotal)
	return w.B
}

// DecodeSizeModel returns the model that AppendSizeModel encoded, which may be nil, and the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeSizeModel(b []byte) (*SizeModel, []byte, error) {
	d := codec.NewReader(b)
	var m *SizeModel
	if d.Bool() {
		m = readSizeModel(d)
	}
	if d.Bad() {
		return nil, nil, codec.ErrCorrupt
	}
	return m, d.Rest(), nil
}

func readSizeModel(d *codec.Reader) *SizeModel {
	var m SizeModel
	for _, f := range []*float64{&m.Base, &m.PerByte, &m.PerSegment, &m.Noise, &m.Relative, &m.SizeModel.Timeout} {
		*f = d.Finite()
	}
	m.Segment, m.Requests = int(d.Below(1<<30)), d.Uvarint()
	for _, f := range []*float64{&m.Delayed, &m.TimedOut, &m.BadLow, &m.BadHigh, &m.MeanExpected, &m.Typical} {
		*f = d.Finite()
	}
	m.CoV, m.CoVLow, m.CoVHigh, m.CoVTotal = d.Float(), d.Float(), d.Float(), d.Float() // NaN if durations don't vary
	if m.Segment == 0 {
		d.Fail()
	}
	return &m
}

// grouperVersion is the first byte of an encoded [Grouper].
const grouperVersion = 1

// AppendBinary appends the encoded state of g to b. The encoding omits request types, the table, splits, options, open
// problems and expectations, except for the counts of the next mix. AppendBinary calls more to append the state of
// package detect, first with a nil group and then after each group. Groupers with the same requests in the same epochs
// have equal encodings, whatever the order within an epoch. AppendBinary takes time and memory proportional to the
// number of groups, and must not run concurrently with Observe.
func (g *Grouper) AppendBinary(b []byte, more func(b []byte, group *Group) []byte) []byte {
	w := codec.NewWriter(append(b, grouperVersion))
	w.Uvarints(g.Refused, g.Evicted)
	w.Times(g.closed)
	g.backlog.appendBinary(w)
	g.Aliases.appendBinary(w)
	w.Uvarints(g.Bare)
	g.targets.appendBinary(w)
	w.B = more(w.B, nil)
	w.Uvarints(uint64(len(g.groups)))
	for _, group := range g.all() {
		group.renumber(&g.rows)
		writeGroup(w, group)
		w.B = more(w.B, group)
		if m := group.Expectation.Mix; m != nil {
			writeMixCounts(w, &m.Next)
		}
	}
	return w.B
}

func writeMixCounts(w *codec.Writer, c *MixCounts) {
	w.Uvarints(uint64(c.Epochs), c.Failed, uint64(len(c.Groups)))
	for _, id := range sorting.Sorted(maps.Keys(c.Groups), analysis.Hash.Compare) {
		w.Hash(id)
		w.Uvarints(c.Groups[id])
	}
}

func readMixCounts(d *codec.Reader) MixCounts {
	c := MixCounts{
		Epochs: int(d.Below(math.MaxInt32)),
		Failed: d.Below(stats.MaxCount),
		Groups: make(map[analysis.Hash]uint64),
	}
	var before analysis.Hash
	for i := range d.Count(17) {
		id := d.Hash()
		d.Ascending(i, id.Compare(before) > 0)
		before = id
		c.Groups[id] = d.Below(stats.MaxCount)
	}
	return c
}

func writeGroup(w *codec.Writer, group *Group) {
	for _, h := range []analysis.Hash{group.ID, group.RequestType, group.Skeleton, group.Whole} {
		w.Hash(h)
	}
	w.Uvarints(uint64(group.Level))
	w.Words(uint64(group.Entry), uint64(group.numbers.beyond))
	w.Uvarints(uint64(len(group.numbers.edges)))
	for _, x := range group.numbers.edges {
		w.Words(uint64(x))
	}
	w.Uvarints(uint64(len(group.values)))
	for _, v := range group.values {
		w.Text(v.Variable)
		w.Text(v.Value)
		w.Words(uint64(v.Where))
	}
	writeWindow(w, &group.Open)
	writeWindow(w, &group.Current)
	writeWindow(w, &group.Reference)
	writeWindow(w, &group.nextReference)
	w.Bools(group.successor != nil)
	if group.successor != nil {
		writeWindow(w, group.successor)
	}
	w.B = group.history.AppendBinary(w.B, func(b []byte, p *Past) []byte { return p.AppendBinary(b) })
	w.Times(group.Since, group.Seen, group.halfway)
	writeWindow(w, &group.unproven[0])
	writeWindow(w, &group.unproven[1])
	w.Uvarints(uint64(len(group.recent)))
	for i := range group.recent {
		x := &group.recent[i]
		w.Times(x.from, x.to)
		writeRequests(w, x.total, x.failed, &x.latency)
	}
}

func writeRequests(w *codec.Writer, total stats.Moments, failed uint64, latency *Latencies) {
	w.B = total.AppendBinary(w.B)
	w.Uvarints(failed)
	writeLatencies(w, latency)
}

func readRequests(d *codec.Reader) (total stats.Moments, failed uint64, latency Latencies) {
	return codec.Decode(d, stats.DecodeMoments), d.Uvarint(), readLatencies(d)
}

// readGroup reads a group without the state of package detect.
func readGroup(d *codec.Reader) *Group {
	group := &Group{ID: d.Hash(), RequestType: d.Hash(), Skeleton: d.Hash(), Whole: d.Hash()}
	group.Level = Level(d.Below(uint64(len(levelNames))))
	group.Entry, group.numbers.beyond = trace.Op(d.Word()), trace.Edge(d.Word())
	n := &group.numbers
	for i := range d.Count(8) {
		x := trace.Edge(d.Word())
		d.Ascending(i, i > 0 && x > n.edges[max(0, i-1)])
		n.edges, n.ascending = append(n.edges, x), append(n.ascending, int32(i))
	}
	for range d.Count(10) {
		group.values = append(group.values,
			VariableBin{Variable: d.Text(), Value: d.Text(), Where: trace.Context(d.Word())})
	}
	window := func() Window { return readWindow(d, len(n.edges)) }
	group.Open, group.Current, group.Reference, group.nextReference = window(), window(), window(), window()
	if d.Bool() {
		successor := window()
		group.successor = &successor
	}
	group.history = codec.Decode(d, func(b []byte) (stats.Series[Past, *Past], []byte, error) {
		return stats.DecodeSeries[Past, *Past](b, decodePast)
	})
	group.Since, group.Seen, group.halfway = d.Time(), d.Time(), d.Time()
	group.unproven = [2]Window{window(), window()}
	for range d.Count(8) {
		x := recentWindow{from: d.Time(), to: d.Time()}
		x.total, x.failed, x.latency = readRequests(d)
		if d.Bad() {
			break
		}
		group.recent = append(group.recent, x)
	}
	return group
}

// DecodeGrouper returns the Grouper that AppendBinary encoded, and the bytes after it. The request types, the table and
// the options should be the same as those of the encoded Grouper. DecodeGrouper calls more to read the bytes that the
// function passed to AppendBinary appended; more returns the bytes after them. Errors wrap [codec.ErrCorrupt].
// DecodeGrouper does not retain b.
func DecodeGrouper(
	b []byte, types *RequestTypes, table *trace.Table, options Options,
	more func(b []byte, group *Group) ([]byte, error),
) (*Grouper, []byte, error) {
	g := NewGrouper(types, table, options)
	d := codec.NewReader(b)
	d.Version(grouperVersion)
	g.Refused, g.Evicted, g.closed = d.Uvarint(), d.Uvarint(), d.Time()
	g.backlog = readBacklog(d)
	g.Aliases, g.Bare, g.targets = readAliases(d), d.Uvarint(), readExternalTargets(d)
	readMore := func(group *Group) *Group {
		return codec.Decode(d, func(b []byte) (*Group, []byte, error) {
			rest, err := more(b, group)
			return group, rest, err
		})
	}
	readMore(nil)
	var before *Group
	for range d.Count(200) {
		group := readMore(readGroup(d))
		if !d.Bad() && group.Expectation.Mix != nil {
			group.Expectation.Mix.Next = readMixCounts(d)
		}
		if d.Bad() || !g.adopt(group, before) {
			d.Fail()
			break
		}
		before = group
	}
	if d.Bad() {
		return nil, nil, codec.ErrCorrupt
	}
	return g, d.Rest(), nil
}

// adopt adds a decoded group, which must follow `before` in the order of [Grouper.all]. It reports whether the group is
// consistent with the groups added so far.
func (g *Grouper) adopt(group, before *Group) bool {
	if before != nil && compareGroups(before, group) >= 0 {
		return false
	}
	if group.parent = group; group.Level == LevelGroup {
		group.parent = g.groups[group.RequestType]
	}
	p := group.parent
	if p == nil || p.RequestType != group.RequestType || p.Level != LevelRequestType || g.groups[group.ID] != nil ||
		group.Level == LevelRequestType && group.ID != group.RequestType {
		return false
	}
	if m := p.Expectation.Mix; m != nil && group.Expectation.Number >= len(m.Open) {
		return false
	}
	for _, w := range []*Window{&group.Open, &group.Current, &group.Reference, &group.nextReference} {
		if w.Sample.Cap() == 0 {
			return false
		}
	}
	group.options = &g.options
	group.sizeRule = g.Types.Rules.sizeRule(group.RequestType, group.Entry)
	g.add(group)
	return true
}
