package baselinediff

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// Tally counts the calls of closed traces by site and slice. The shards of a service make one each; [Sites.Merge]
// joins them. A trace counts in the slice in which its primary root begins, with all of its roots, and, if it is
// incomplete, with the spans that it has.
type Tally struct {
	numbers map[siteKey]int32
	sites   []tallySite
	recent  [256]numberedSite
	slices  map[slice]*tallySlice
	places  places

	reader pathReader
}

// numberedSite is a site that was seen lately.
type numberedSite struct {
	siteKey
	number int32
	known  bool
}

// tallySite describes a site to another table.
type tallySite struct {
	siteKey
	base, target trace.Op // of the step
	service      trace.Symbol
	client       bool
}

// tallySlice is the content of one slice.
type tallySlice struct {
	requests uint64
	duration int64 // total of the primary roots, in ns
	cells    []tallyCell
	places   []placeCell // by number of the place
}

// tallyCell counts the calls of one site.
type tallyCell struct {
	calls  uint64
	nanos  int64 // own time on the critical path
	logs   int64 // of own times, see [logOf]
	shapes []shapeCount
}

// shapeCount counts the calls of one shape.
type shapeCount struct {
	shape
	calls uint64
}

// shape is the set of operations that a call makes, about how often, and whether it failed and was answered.
type shape struct {
	hash             uint64
	failed, answered bool
}

// showsAnswer reports whether the callee of a call, of a CLIENT span or [graph.behind] another, may have answered.
func (x shape) showsAnswer() bool { return x.answered && x.hash != failedLeaf }

func (x shape) compare(y shape) int {
	return cmp.Or(cmp.Compare(x.hash, y.hash), trace.CompareBools(x.failed, y.failed), trace.CompareBools(x.answered, y.answered))
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{numbers: make(map[siteKey]int32), slices: make(map[slice]*tallySlice), places: newPlaces()}
}

// Empty reports whether t has no traces.
func (t *Tally) Empty() bool { return len(t.slices) == 0 }

// Observe counts the trace of p. Like [Recording.Add] it ignores traces without a root, and those that take
// [trace.MaxDuration] or more.
func (t *Tally) Observe(p *critpath.Path) {
	if len(p.Roots) == 0 || p.Duration(&p.Roots[0]) >= trace.MaxDuration {
		return
	}
	t.reader.measure(p)
	t.reader.round()
	t.places.read(p.Trace)
	primary := &p.Roots[0]
	s := t.slice(sliceOf(p.Nodes[primary.Node].Start))
	s.requests++
	s.duration += int64(max(0, p.Duration(primary)))
	for i := range p.Roots {
		for k := p.Roots[i].First; k < p.Roots[i].Last; k++ {
			if n := &p.Nodes[k]; n.Root >= 0 && n.Anchor == k {
				t.observe(s, p, k)
				t.observePlace(s, p, k, p.Caller(k))
			}
		}
	}
}

func (t *Tally) slice(number slice) *tallySlice {
	s := t.slices[number]
	if s == nil {
		s = &tallySlice{}
		t.slices[number] = s
	}
	return s
}

// observe counts the call of node i and, if the node crosses, its border.
func (t *Tally) observe(into *tallySlice, p *critpath.Path, i int32) {
	s, step := p.Span(i), p.Nodes[i].Step
	key := siteKey{op: step}
	up := p.Caller(i)
	if up >= 0 {
		key.parent = p.Nodes[up].Step
	}
	recent := &t.recent[(uint64(key.op)^uint64(key.parent)>>8)%uint64(len(t.recent))]
	if !recent.known || recent.siteKey != key {
		number, ok := t.numbers[key]
		if !ok {
			number = t.add(tallySite{key, s.Op, p.Target(i), s.Service, s.Kind == trace.Client})
		}
		*recent = numberedSite{key, number, true}
	}
	c := into.cell(recent.number)
	c.add(t.reader.nanos[i])
	failed := s.Flags&trace.Error != 0
	c.count(shape{t.reader.shape(p, i, failed), failed, s.Kind != trace.Client || p.Nodes[i].Callee >= 0})
	if !crosses(p, i) {
		return
	}
	caller := p.Span(up)
	key = siteKey{parent: caller.Op, op: s.Op, border: true}
	number, ok := t.numbers[key]
	if !ok {
		number = t.add(tallySite{key, s.Op, 0, caller.Service, true})
	}
	into.cell(number).add(t.reader.borders[i])
}

// add adds a call with an own time in ns.
func (c *tallyCell) add(own int64) {
	c.calls++
	c.nanos += own
	c.logs += logOf(own)
}

func (t *Tally) add(s tallySite) int32 {
	number := int32(len(t.sites))
	t.numbers[s.siteKey] = number
	t.sites = append(t.sites, s)
	return number
}

func (s *tallySlice) cell(number int32) *tallyCell {
	for int(number) >= len(s.cells) {
		s.cells = append(s.cells, tallyCell{})
	}
	return &s.cells[number]
}

// tallyShapes bounds the shapes of a site in a slice; calls of others count as one shape of hash 0.
const tallyShapes = 32

func (c *tallyCell) count(x shape) {
	for i := range c.shapes {
		if c.shapes[i].shape == x {
			c.shapes[i].calls++
			return
		}
	}
	if len(c.shapes) >= tallyShapes && x.hash != 0 {
		x.hash = 0
		c.count(x)
		return
	}
	c.shapes = append(c.shapes, shapeCount{x, 1})
}
