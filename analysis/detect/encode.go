package detect

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// AppendBinary appends the state of d and of its groups to b, without request types, table, splits and options.
// Detectors with the same requests in the same epochs have equal encodings, whatever the order within an epoch.
// AppendBinary takes time and memory proportional to the number of groups, and must not run concurrently with Observe.
func (d *Detector) AppendBinary(b []byte) []byte {
	return d.Groups.AppendBinary(b, func(b []byte, g *group.Group) []byte {
		w := codec.NewWriter(b)
		if g == nil {
			writeHashes(w, d.chronic)
		} else {
			c := d.changes[g]
			if c == nil {
				c = &changeDetector{asOf: d.epochs}
			}
			writeWatch(w, g, c, d.epochs)
		}
		return w.B
	})
}

func writeHashes(w *codec.Writer, hashes map[analysis.Hash]bool) {
	w.Uvarints(uint64(len(hashes)))
	for _, id := range sorting.Sorted(maps.Keys(hashes), analysis.Hash.Compare) {
		w.Hash(id)
	}
}

// writeWatch writes the expectation of g and the evidence against it at the end of epoch.
func writeWatch(w *codec.Writer, g *group.Group, c *changeDetector, epoch uint64) {
	e := &g.Expectation
	w.Bools(e.Learned, g.AnyOpenProblem, g.OpenProblem)
	w.Uvarints(uint64(c.kind), uint64(e.Number))
	w.B = e.Reference.AppendBinary(w.B)
	w.B = group.AppendSizeModel(w.B, e.Size)
	writeCounts(w, e.Counts)
	w.Uvarints(uint64(len(c.recent)))
	for _, counts := range c.recent {
		writeCounts(w, counts)
	}
	w.B = c.change.AppendBinary(w.B)
	w.Uvarints(uint64(len(e.Blocks)))
	for _, m := range e.Blocks {
		w.B = m.AppendBinary(w.B)
	}
	w.Uvarints(uint64(e.Healthy), uint64(c.rising), uint64(c.judged), uint64(c.idleUntil(epoch)))
	w.Floats(c.evidence)
	w.Times(c.since)
	w.Bools(e.Mix != nil)
	if e.Mix != nil {
		writeMix(w, e.Mix, c)
	}
}

// writeMix writes the expected mix of a request type and the evidence against it.
func writeMix(w *codec.Writer, m *group.Mix, c *changeDetector) {
	w.B = m.Reference.AppendBinary(w.B)
	w.B = c.mix.AppendBinary(w.B)
	w.Uvarints(m.Expected...)
	w.Uvarints(m.Open...)
	w.Uvarints(uint64(len(c.recentMixes)))
	for _, mix := range c.recentMixes {
		w.Uvarints(mix...)
	}
	w.Uvarints(uint64(len(m.Numbers)))
	for _, id := range sorting.Sorted(maps.Keys(m.Numbers), analysis.Hash.Compare) {
		w.Hash(id)
		w.Uvarints(uint64(m.Numbers[id]))
	}
}

func writeCounts(w *codec.Writer, c stats.Counts) {
	w.Uvarints(c.N)
	w.Uvarints(c.Events[:]...)
}

// Decode returns the Detector that AppendBinary encoded, with the given request types, table and options for its
// groups, and the bytes after it; see [group.DecodeGrouper]. Errors wrap [codec.ErrCorrupt].
func Decode(b []byte, types *group.RequestTypes, table *trace.Table, options group.Options) (*Detector, []byte, error) {
	d := New(nil)
	groups, rest, err := group.DecodeGrouper(b, types, table, options, func(b []byte, g *group.Group) ([]byte, error) {
		r := codec.NewReader(b)
		if g == nil {
			for range r.Count(16) {
				d.chronic[r.Hash()] = true
			}
		} else if c := readWatch(r, g); g.Expectation.Learned {
			d.changes[g] = c
		}
		if r.Bad() {
			return nil, codec.ErrCorrupt
		}
		return r.Rest(), nil
	})
	if err != nil {
		return nil, nil, err
	}
	d.Groups = groups
	return d, rest, nil
}

// Limits on encoded state: the number of recent epochs, and counters of epochs.
const (
	maxRecent = 1 << 12
	maxInt    = math.MaxInt32
)

func readWatch(r *codec.Reader, g *group.Group) *changeDetector {
	e, c := &g.Expectation, &changeDetector{}
	e.Learned, g.AnyOpenProblem, g.OpenProblem = r.Bool(), r.Bool(), r.Bool()
	c.kind, e.Number = ProblemKind(r.Below(uint64(len(problemKindNames)))), int(r.Below(group.MaxMixNumbers))
	e.Reference = codec.Decode(r, stats.DecodeReference)
	e.Size = codec.Decode(r, group.DecodeSizeModel)
	e.Counts = readCounts(r)
	for range r.Below(maxRecent) {
		c.recent = append(c.recent, readCounts(r))
		if r.Bad() {
			return c
		}
	}
	c.change = codec.Decode(r, stats.DecodeChange)
	for range r.Below(group.MaxBlocks + 1) {
		e.Blocks = append(e.Blocks, codec.Decode(r, stats.DecodeMoments))
		if r.Bad() {
			return c
		}
	}
	for _, count := range []*int{&e.Healthy, &c.rising, &c.judged, &c.idle} {
		*count = int(r.Below(maxInt))
	}
	c.evidence = r.Float()
	c.since = r.Time()
	if r.Bool() {
		e.Mix = readMix(r, c)
	}
	if g.OpenProblem && (!e.Learned || c.kind == KindShifted && e.Mix == nil) {
		r.Fail()
	}
	return c
}

func readMix(r *codec.Reader, c *changeDetector) *group.Mix {
	m := &group.Mix{Reference: codec.Decode(r, stats.DecodeMixReference), Numbers: make(map[analysis.Hash]int)}
	c.mix = codec.Decode(r, stats.DecodeMix)
	n := m.Reference.Groups()
	if n < group.MinMixNumbers || n > group.MaxMixNumbers {
		r.Fail()
		return m
	}
	m.Expected, m.Open = readCountsOf(r, n), readCountsOf(r, n)
	for range r.Below(maxRecent) {
		c.recentMixes = append(c.recentMixes, readCountsOf(r, n))
		if r.Bad() {
			return m
		}
	}
	var before analysis.Hash
	for i := range r.Below(group.MaxMixNumbers) {
		id := r.Hash()
		r.Ascending(int(i), id.Compare(before) > 0)
		before = id
		m.Numbers[id] = int(r.Below(uint64(n)))
		if r.Bad() {
			return m
		}
	}
	return m
}

func readCounts(r *codec.Reader) (c stats.Counts) {
	c.N = r.Below(stats.MaxCount)
	for i := range c.Events {
		c.Events[i] = r.Below(c.N + 1)
	}
	return c
}

// readCountsOf reads n numbers of requests.
func readCountsOf(r *codec.Reader, n int) []uint64 {
	counts := make([]uint64, n)
	for i := range counts {
		counts[i] = r.Below(stats.MaxCount)
	}
	return counts
}

const refinementVersion = 1

// AppendBinary appends r to b. The same requests in any order give the same bytes.
func (r *Refinement) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, refinementVersion))
	e.Words(uint64(r.arm))
	e.Uvarints(uint64(len(r.on)))
	for _, tp := range r.on {
		e.Words(uint64(tp))
	}
	for i := range r.totals {
		e.B = r.totals[i].AppendBinary(e.B)
	}
	e.Uvarints(uint64(len(r.edges)))
	for _, x := range slices.Sorted(maps.Keys(r.edges)) {
		e.Words(uint64(x))
		writeSums(e, r.edges[x])
	}
	e.Uvarints(uint64(len(r.places)))
	for _, at := range sorting.Sorted(maps.Keys(r.places), place.compare) {
		p := r.places[at]
		e.Words(uint64(at.within), uint64(at.context), uint64(p.parent), uint64(p.step), uint64(p.tracepoint))
		e.Uvarints(p.hits)
		writeSums(e, &p.inclusive)
		writeSums(e, &p.exclusive)
	}
	return e.B
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.within, q.within), cmp.Compare(p.context, q.context))
}

func writeSums(e *codec.Writer, sums *[blocks]stats.CoMoments) {
	for i := range sums {
		e.B = sums[i].AppendBinary(e.B)
	}
}

func readSums(d *codec.Reader) *[blocks]stats.CoMoments {
	var sums [blocks]stats.CoMoments
	for i := range sums {
		sums[i] = codec.Decode(d, stats.DecodeCoMoments)
	}
	return &sums
}

// DecodeRefinement returns the Refinement that AppendBinary encoded, and the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeRefinement(b []byte) (*Refinement, []byte, error) {
	d := codec.NewReader(b)
	d.Version(refinementVersion)
	r := NewRefinement(trace.Symbol(d.Word()), nil)
	for range d.Count(8) {
		r.on = append(r.on, trace.Symbol(d.Word()))
	}
	for i := range r.totals {
		r.totals[i] = codec.Decode(d, stats.DecodeMoments)
	}
	var edge trace.Edge
	for i := range d.Count(8 + 3*blocks) {
		x := trace.Edge(d.Word())
		d.Ascending(i, x > edge)
		sums := readSums(d)
		if d.Bad() {
			break
		}
		edge, r.edges[x] = x, sums
	}
	var before place
	for i := range d.Count(5*8 + 6*blocks) {
		at := place{trace.Edge(d.Word()), trace.Context(d.Word())}
		d.Ascending(i, at.compare(before) > 0)
		p := &placed{
			parent:     trace.Context(d.Word()),
			step:       trace.Op(d.Word()),
			tracepoint: trace.Symbol(d.Word()),
			hits:       d.Uvarint(),
		}
		p.inclusive, p.exclusive = *readSums(d), *readSums(d)
		if d.Bad() {
			break
		}
		before, r.places[at] = at, p
	}
	if d.Bad() {
		return nil, nil, codec.ErrCorrupt
	}
	return r, d.Rest(), nil
}
