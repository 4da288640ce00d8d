package analysis

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// encoder writes hashes and floats as fixed words and everything else as varints.
type encoder struct{ b []byte }

func (e *encoder) words(words ...uint64) { e.b = appendWords(e.b, words...) }

func (e *encoder) floats(floats ...float64) {
	for _, f := range floats {
		e.words(math.Float64bits(f))
	}
}

func (e *encoder) hash(h Hash) { e.words(h.Hi, h.Lo) }

func (e *encoder) numbers(numbers ...uint64) {
	for _, n := range numbers {
		e.b = binary.AppendUvarint(e.b, n)
	}
}

func (e *encoder) times(times ...trace.Nanos) {
	for _, t := range times {
		e.b = binary.AppendVarint(e.b, int64(t))
	}
}

func (e *encoder) flags(flags ...bool) {
	for _, f := range flags {
		e.b = append(e.b, flag(f))
	}
}

func (e *encoder) text(s string) {
	e.numbers(uint64(len(s)))
	e.b = append(e.b, s...)
}

// decoder reads what encoder wrote from untrusted bytes. After the first fault it is bad and reads zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) fail() { d.rest, d.bad = nil, true }

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail()
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) version(want byte) {
	if d.take(1)[0] != want {
		d.fail()
	}
}

func (d *decoder) word() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) float() float64 { return math.Float64frombits(d.word()) }

// finite reads a float that is neither NaN nor infinite.
func (d *decoder) finite() float64 {
	f := d.float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.fail()
		return 0
	}
	return f
}

func (d *decoder) hash() Hash { return Hash{d.word(), d.word()} }

func (d *decoder) flag() bool {
	b := d.take(1)[0]
	if b > 1 {
		d.fail()
	}
	return b == 1
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 { // a longer form of the same number
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) below(limit uint64) uint64 {
	n := d.number()
	if n >= limit {
		d.fail()
		return 0
	}
	return n
}

// count reads the number of things that follow, each of which takes at least size bytes.
func (d *decoder) count(size int) int { return int(d.below(uint64(len(d.rest)/size) + 1)) }

func (d *decoder) time() trace.Nanos {
	u := d.number()
	return trace.Nanos(int64(u>>1) ^ -int64(u&1))
}

func (d *decoder) text() string { return string(d.take(d.count(1))) }

// decoded reads what a decoder of package stats, or one like it, reads.
func decoded[T any](d *decoder, decode func([]byte) (T, []byte, error)) T {
	v, rest, err := decode(d.rest)
	if err != nil || d.bad {
		d.fail()
		return v
	}
	d.rest = rest
	return v
}

// ascending reports, for the i-th of a list, whether it comes after the one before.
func (d *decoder) ascending(i int, above bool) {
	if i > 0 && !above {
		d.fail()
	}
}

func (e *encoder) tally(t *Tally) {
	e.b = t.Total.AppendBinary(e.b)
	e.numbers(uint64(len(t.Edges)))
	for i := range t.Edges {
		x := &t.Edges[i]
		e.words(uint64(x.Edge))
		e.numbers(x.Requests)
		e.b = x.CoMoments.AppendBinary(e.b)
	}
}

func (d *decoder) tally() (t Tally) {
	t.Total = decoded(d, stats.DecodeMoments)
	for i := range d.count(12) {
		x := EdgeTally{Edge: trace.Edge(d.word()), Requests: d.number(), CoMoments: decoded(d, stats.DecodeCoMoments)}
		d.ascending(i, i > 0 && x.Edge > t.Edges[max(0, i-1)].Edge)
		if d.bad {
			break
		}
		t.Edges = append(t.Edges, x)
	}
	return t
}

// rowDecoder is [stats.DecodeRow], or the one of what was written before.
type rowDecoder func([]byte) (stats.Row, []byte, error)

func appendRow(b []byte, r stats.Row) []byte { return r.AppendBinary(b) }

func appendTransfer(b []byte, t Transfer) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, t.Bytes), uint64(t.Nanos))
}

func decodeTransfer(b []byte) (Transfer, []byte, error) {
	d := decoder{rest: b}
	t := Transfer{Bytes: d.below(maxBytes), Nanos: int64(d.below(stats.MaxNanos))}
	if d.bad {
		return Transfer{}, nil, codec.ErrCorrupt
	}
	return t, d.rest, nil
}

func (e *encoder) window(w *Window) {
	e.tally(&w.Tally)
	e.b = w.Latency.AppendBinary(e.b)
	e.b = w.Sample.AppendBinary(e.b, appendRow)
	e.b = w.Transfers.AppendBinary(e.b, appendTransfer)
	e.numbers(w.Failed)
	e.times(w.First, w.Last)
}

// window reads a window whose rows, each read by decodeRow, have edges below the given number.
func (d *decoder) window(edges int, decodeRow rowDecoder) (w Window) {
	w.Tally = d.tally()
	w.Latency = decoded(d, stats.DecodeSketch)
	w.Sample = decoded(d, func(b []byte) (stats.Sample[stats.Row], []byte, error) { return stats.DecodeSample(b, decodeRow) })
	w.Transfers = decoded(d, func(b []byte) (stats.Sample[Transfer], []byte, error) { return stats.DecodeSample(b, decodeTransfer) })
	w.Failed, w.First, w.Last = d.number(), d.time(), d.time()
	for _, row := range w.Sample.All() {
		for n := range row.Edges() {
			if int(n) >= edges {
				d.fail()
			}
		}
	}
	return w
}

// AppendBinary appends p to b.
func (p *Past) AppendBinary(b []byte) []byte {
	e := encoder{p.Total.AppendBinary(b)}
	e.numbers(p.Failed, uint64(len(p.Edges)))
	for _, x := range p.Edges {
		e.words(uint64(x.Edge))
		e.numbers(x.Nanos)
	}
	e.latencies(&p.Latency)
	return e.b
}

// DecodePast reads what AppendBinary wrote and returns the bytes behind it. An error wraps [codec.ErrCorrupt].
func DecodePast(b []byte) (Past, []byte, error) {
	d := decoder{rest: b}
	p := Past{Total: decoded(&d, stats.DecodeMoments), Failed: d.number()}
	for i := range d.below(pastEdges + 2) {
		x := PastEdge{trace.Edge(d.word()), d.number()}
		d.ascending(int(i), i > 0 && x.Edge > p.Edges[len(p.Edges)-1].Edge)
		if d.bad {
			break
		}
		p.Edges = append(p.Edges, x)
	}
	p.Latency = d.latencies()
	if d.bad || len(p.Edges) > pastEdges && p.Edges[0].Edge != 0 {
		return Past{}, nil, codec.ErrCorrupt
	}
	return p, d.rest, nil
}

func (e *encoder) sizeModel(m *SizeModel) {
	e.flags(m != nil)
	if m == nil {
		return
	}
	e.floats(m.Base, m.PerByte, m.PerSegment, m.Noise, m.Relative, m.SizeModel.Timeout)
	e.numbers(uint64(m.Segment), m.Requests)
	e.floats(m.Delayed, m.TimedOut, m.BadLow, m.BadHigh, m.MeanExpected, m.Typical, m.CoV, m.CoVLow, m.CoVHigh, m.CoVTotal)
}

func (d *decoder) sizeModel() *SizeModel {
	if !d.flag() {
		return nil
	}
	var m SizeModel
	for _, f := range []*float64{&m.Base, &m.PerByte, &m.PerSegment, &m.Noise, &m.Relative, &m.SizeModel.Timeout} {
		*f = d.finite()
	}
	m.Segment, m.Requests = int(d.below(1<<30)), d.number()
	for _, f := range []*float64{&m.Delayed, &m.TimedOut, &m.BadLow, &m.BadHigh, &m.MeanExpected, &m.Typical} {
		*f = d.finite()
	}
	m.CoV, m.CoVLow, m.CoVHigh, m.CoVTotal = d.float(), d.float(), d.float(), d.float() // NaN where durations do not vary
	if m.Segment == 0 {
		d.fail()
	}
	return &m
}

func (e *encoder) counts(c stats.Counts) {
	e.numbers(c.N)
	e.numbers(c.Events[:]...)
}

func (d *decoder) counts() (c stats.Counts) {
	c.N = d.below(stats.MaxCount)
	for i := range c.Events {
		c.Events[i] = d.below(c.N + 1)
	}
	return c
}

// mixOf reads how many requests each of n groups had.
func (d *decoder) mixOf(n int) []uint64 {
	mix := make([]uint64, n)
	for i := range mix {
		mix[i] = d.below(stats.MaxCount)
	}
	return mix
}

func (e *encoder) watch(w *watch) {
	e.flags(w.learned, w.troubled, w.open)
	e.numbers(uint64(w.kind), uint64(w.number))
	e.b = w.reference.AppendBinary(e.b)
	e.sizeModel(w.size)
	e.counts(w.counts)
	e.numbers(uint64(len(w.recent)))
	for _, c := range w.recent {
		e.counts(c)
	}
	e.b = w.change.AppendBinary(e.b)
	e.numbers(uint64(len(w.blocks)))
	for _, m := range w.blocks {
		e.b = m.AppendBinary(e.b)
	}
	e.numbers(uint64(w.healthy), uint64(w.rising), uint64(w.judged), uint64(w.silent))
	e.floats(w.last)
	e.times(w.since)
	e.flags(w.mixed != nil)
	if w.mixed != nil {
		e.mix(w)
	}
}

// mix writes what is known of the mix of a request type.
func (e *encoder) mix(w *watch) {
	e.b = w.mixReference.AppendBinary(e.b)
	e.b = w.mix.AppendBinary(e.b)
	e.numbers(w.expectedMix...)
	e.numbers(w.mixed...)
	e.numbers(uint64(len(w.recentMixes)))
	for _, m := range w.recentMixes {
		e.numbers(m...)
	}
	numbered := make([]Hash, 0, len(w.numbers))
	for id := range w.numbers {
		numbered = append(numbered, id)
	}
	slices.SortFunc(numbered, Hash.Compare)
	e.numbers(uint64(len(numbered)))
	for _, id := range numbered {
		e.hash(id)
		e.numbers(uint64(w.numbers[id]))
	}
}

// maxRecent bounds the epochs that are remembered when decoding, and maxInt small numbers.
const (
	maxRecent = 1 << 12
	maxInt    = math.MaxInt32
)

func (d *decoder) watch() (w watch) {
	w.learned, w.troubled, w.open = d.flag(), d.flag(), d.flag()
	w.kind, w.number = ProblemKind(d.below(uint64(len(problemKindNames)))), int(d.below(mixGroups))
	w.reference = decoded(d, stats.DecodeReference)
	w.size = d.sizeModel()
	w.counts = d.counts()
	for range d.below(maxRecent) {
		w.recent = append(w.recent, d.counts())
		if d.bad {
			return w
		}
	}
	w.change = decoded(d, stats.DecodeChange)
	for range d.below(maxBlocks + 1) {
		w.blocks = append(w.blocks, decoded(d, stats.DecodeMoments))
		if d.bad {
			return w
		}
	}
	w.healthy, w.rising, w.judged, w.silent = int(d.below(maxInt)), int(d.below(maxInt)), int(d.below(maxInt)), int(d.below(maxInt))
	w.last = d.float()
	w.since = d.time()
	if d.flag() {
		d.mix(&w)
	}
	return w
}

func (d *decoder) mix(w *watch) {
	w.mixReference = decoded(d, stats.DecodeMixReference)
	w.mix = decoded(d, stats.DecodeMix)
	n := w.mixReference.Groups()
	if n < mixFailed+1 || n > mixGroups {
		d.fail()
		return
	}
	w.expectedMix, w.mixed = d.mixOf(n), d.mixOf(n)
	for range d.below(maxRecent) {
		w.recentMixes = append(w.recentMixes, d.mixOf(n))
		if d.bad {
			return
		}
	}
	w.numbers = make(map[Hash]int)
	var before Hash
	for i := range d.below(mixGroups) {
		id := d.hash()
		d.ascending(int(i), id.Compare(before) > 0)
		before = id
		w.numbers[id] = int(d.below(uint64(n)))
		if d.bad {
			return
		}
	}
}

// The versions of groupers that are read, and the one that is written.
const (
	unstampedVersion = 2 // requests sampled do not say when they came
	grouperVersion   = 3
)

// AppendBinary appends the state of g to b, without request types, table, splits and options, which are others'. Groupers that saw the
// same requests in the same epochs give the same bytes, whatever their order within an epoch. It takes time and memory for all groups:
// nothing may observe meanwhile.
func (g *Grouper) AppendBinary(b []byte) []byte {
	e := &encoder{append(b, grouperVersion)}
	e.numbers(g.Refused, g.Evicted)
	e.times(g.closed)
	open := make([]Hash, 0, len(g.chronic))
	for id := range g.chronic {
		open = append(open, id)
	}
	slices.SortFunc(open, Hash.Compare)
	e.numbers(uint64(len(open)))
	for _, id := range open {
		e.hash(id)
	}
	e.numbers(uint64(len(g.groups)))
	for _, group := range g.all() {
		g.renumber(group)
		e.group(group)
	}
	return e.b
}

func (e *encoder) group(group *Group) {
	for _, h := range []Hash{group.ID, group.RequestType, group.Skeleton, group.Whole} {
		e.hash(h)
	}
	e.numbers(uint64(group.Level))
	e.words(uint64(group.Entry), uint64(group.beyond))
	e.numbers(uint64(len(group.Edges)))
	for _, x := range group.Edges {
		e.words(uint64(x))
	}
	e.numbers(uint64(len(group.keyed)))
	for _, v := range group.keyed {
		e.text(v.Variable)
		e.text(v.Value)
		e.words(uint64(v.Where))
	}
	e.window(&group.Open)
	e.window(&group.Current)
	e.window(&group.Reference)
	e.window(&group.next)
	e.flags(group.younger != nil)
	if group.younger != nil {
		e.window(group.younger)
	}
	e.b = group.history.AppendBinary(e.b, func(b []byte, p *Past) []byte { return p.AppendBinary(b) })
	e.times(group.Since, group.Seen)
	e.watch(&group.watch)
}

// group reads a group, without what others know of it.
func (d *decoder) group(decodeRow rowDecoder) *Group {
	group := &Group{ID: d.hash(), RequestType: d.hash(), Skeleton: d.hash(), Whole: d.hash()}
	group.Level = Level(d.below(uint64(len(levelNames))))
	group.Entry, group.beyond = trace.Op(d.word()), trace.Edge(d.word())
	for i := range d.count(8) {
		x := trace.Edge(d.word())
		d.ascending(i, i > 0 && x > group.Edges[max(0, i-1)])
		group.Edges, group.ascending = append(group.Edges, x), append(group.ascending, int32(i))
	}
	for range d.count(10) {
		group.keyed = append(group.keyed, VariableBin{Variable: d.text(), Value: d.text(), Where: trace.Context(d.word())})
	}
	window := func() Window { return d.window(len(group.Edges), decodeRow) }
	group.Open, group.Current, group.Reference, group.next = window(), window(), window(), window()
	if d.flag() {
		younger := window()
		group.younger = &younger
	}
	group.history = decoded(d, func(b []byte) (stats.Series[Past, *Past], []byte, error) {
		return stats.DecodeSeries[Past, *Past](b, DecodePast)
	})
	group.Since, group.Seen = d.time(), d.time()
	group.watch = d.watch()
	return group
}

// DecodeGrouper returns the Grouper that AppendBinary wrote, with the given request types, table and options, which should be those that
// it had: it goes on where that one stopped. Of what an older one wrote, requests sampled do not say when they came. It returns the bytes
// behind it. An error wraps [codec.ErrCorrupt]. It keeps nothing of b.
func DecodeGrouper(b []byte, types *RequestTypes, table *trace.Table, options GroupOptions) (*Grouper, []byte, error) {
	g := NewGrouper(types, table, options)
	d := &decoder{rest: b}
	version, decodeRow := byte(grouperVersion), rowDecoder(stats.DecodeRow)
	if len(b) > 0 && b[0] == unstampedVersion {
		version, decodeRow = unstampedVersion, stats.DecodeUnstampedRow
	}
	d.version(version)
	g.Refused, g.Evicted, g.closed = d.number(), d.number(), d.time()
	for range d.count(16) {
		g.chronic[d.hash()] = true
	}
	var before *Group
	for range d.count(200) {
		group := d.group(decodeRow)
		if d.bad || !g.adopt(group, before) {
			d.fail()
			break
		}
		before = group
	}
	if d.bad {
		return nil, nil, codec.ErrCorrupt
	}
	return g, d.rest, nil
}

// adopt adds a decoded group, which must follow the one before in the order of [Grouper.all]. It reports whether it fits.
func (g *Grouper) adopt(group, before *Group) bool {
	if before != nil && compareGroups(before, group) >= 0 {
		return false
	}
	if group.parent = group; group.Level == GroupLevel {
		group.parent = g.groups[group.RequestType]
	}
	p := group.parent
	if p == nil || p.RequestType != group.RequestType || p.Level != RequestTypeLevel || g.groups[group.ID] != nil ||
		group.Level == RequestTypeLevel && group.ID != group.RequestType || p.watch.mixed != nil && group.watch.number >= len(p.watch.mixed) {
		return false
	}
	for _, w := range []*Window{&group.Open, &group.Current, &group.Reference, &group.next} {
		if w.Sample.Cap() == 0 {
			return false
		}
	}
	group.sizing = g.Types.Rules.sizing(group.RequestType, group.Entry)
	g.groups[group.ID] = group
	return true
}
