package history

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Tally counts the calls of closed traces by site and slice. Each shard fills its own tally, and [Sites.Merge] merges
// the tallies. A trace, with all of its roots, counts in the slice where its primary root starts. Incomplete traces
// count with the spans that they have.
type Tally struct {
	numbers map[tallyKey]int32
	sites   []tallySite
	recent  [4096]int32 // number+1 of a recently seen site, by its hash; 0 means no site
	slices  map[Slice]*tallySlice
	within  int64    // logarithm of the duration of the request being observed
	lasting entryKey // of the request being observed if it takes at least lastingFrom, otherwise the zero value
	places  places
	answers answers
	unknown int // sites with an address

	durations map[tickPlace]*stats.Ranks

	messages Messages

	reader callgraph.Reader
}

// tallyKey is a site together with the facts that [Sites] needs to determine its callee: the address of unanswered
// calls, and the operation that calls with spans below a missing one have reached.
type tallyKey struct {
	SiteKey
	address trace.Address // 0 if answered, or without an address
	reached trace.Op      // first operation with spans from below a missing one; 0 if no span is missing
}

// tallySite describes a site without the numbers that the tally assigns.
type tallySite struct {
	tallyKey
	base, target trace.Op // of the step
	service      trace.Symbol
	client       bool
	named        trace.Op // the callee named by the attributes of calls with spans below a missing one, or 0
}

// inner reports whether the spans of s are INTERNAL spans inside the work of their callers, as in [callgraph.Times].
func (s *tallySite) inner(table *trace.Table) bool {
	caller := table.Operation(s.Parent)
	return s.Parent != 0 && caller.Service == s.service && caller.Kind != trace.Client &&
		table.Operation(s.base).Kind == trace.Internal
}

// tallySlice holds the calls of the traces that started in one slice.
type tallySlice struct {
	requests map[entryKey]*tallyCell // with their durations
	cells    []tallyCell
	places   []placeCell                 // by number of the place
	lasting  map[lastingPlace]*placeCell // instead of places, for requests that take at least lastingFrom
}

// tallyCell counts the calls of one site.
type tallyCell struct {
	calls  uint64
	nanos  int64 // own time on the critical path
	beside int64 // own time off it
	logs   int64 // of own times, see [logOf]
	within int64 // logarithms of the durations of the requests with these calls
	shapes []shapeCount

	// inner, innerBeside and innerLogs are the amounts by which local times exceed nanos, beside and logs; see
	// [callgraph.Times].
	inner, innerBeside, innerLogs int64
}

// shapeCount counts the calls of one shape.
type shapeCount struct {
	Shape
	calls uint64
}

// Shape identifies the set of operations called by a call, with the order of magnitude of their counts. It also records
// whether the call failed and whether it was answered.
type Shape struct {
	Hash             uint64
	Failed, answered bool
}

// ShowsAnswer reports whether the callee of a call may have answered. The call must be a CLIENT span, or a span with a
// callee behind it (see graph.behind in package compare).
func (x Shape) ShowsAnswer() bool { return x.answered && x.Hash != callgraph.FailedLeaf }

func (x Shape) compare(y Shape) int {
	return cmp.Or(cmp.Compare(x.Hash, y.Hash), trace.CompareBools(x.Failed, y.Failed),
		trace.CompareBools(x.answered, y.answered))
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{
		numbers:   make(map[tallyKey]int32),
		slices:    make(map[Slice]*tallySlice),
		places:    newPlaces(),
		answers:   newAnswers(),
		durations: make(map[tickPlace]*stats.Ranks),
	}
}

// Observe counts the trace of p. Like compare.Recording.Add, it ignores traces without a root, and traces of
// [trace.MaxDuration] or more.
func (t *Tally) Observe(p *critpath.Path) {
	if len(p.Roots) == 0 || p.Duration(&p.Roots[0]) >= trace.MaxDuration {
		return
	}
	t.reader.Measure(p)
	t.reader.MeasureLocal(p)
	t.roundTimes()
	t.places.read(p.Trace)
	at := SliceOf(p.Nodes[p.Roots[0].Node].Start)
	s := t.slice(at)
	for i := range p.Roots {
		duration := int64(min(max(0, p.Duration(&p.Roots[i])), trace.MaxDuration))
		if t.lasting = (entryKey{}); duration >= int64(lastingFrom) {
			t.lasting = entryOf(p, p.Roots[i].Node)
		}
		if t.within = logOf(duration); callgraph.Caller(p, p.Roots[i].Node) < 0 {
			s.entry(entryOf(p, p.Roots[i].Node)).add(spent{nanos: round(duration)})
		}
		if w, waited := p.Wait(i); waited && w.Queue != 0 && p.Span(p.Roots[i].Node).Kind == trace.Consumer {
			t.observeWait(s, p.Span(p.Roots[i].Node).Service, &w, 1)
			delete(t.messages.sent, trace.MessageID(p.Trace.ID, p.Trace.Spans[p.Roots[i].From].ID))
		}
		for k := p.Roots[i].First; k < p.Roots[i].Last; k++ {
			if n := &p.Nodes[k]; n.Root >= 0 && n.Anchor == k {
				t.observe(s, p, k)
				t.observePlace(at, s, p, k)
			}
		}
	}
	t.take(p, at)
}

// roundTimes rounds the times of all calls of a trace to multiples of [timeUnit].
func (t *Tally) roundTimes() {
	on, off := &t.reader.Times, &t.reader.Off
	for _, times := range [][]int64{on.Nanos, on.Local, on.Borders, off.Nanos, off.Local, off.Borders} {
		for i, x := range times {
			if x != 0 { // most are 0
				times[i] = round(x)
			}
		}
	}
}

// observeWait counts the time that a message waited in a queue, as `calls` calls at a separate site. That site is an
// operation of the service that takes messages from the queue, because messages wait until that service takes them.
func (t *Tally) observeWait(into *tallySlice, service trace.Symbol, w *critpath.Wait, calls uint64) {
	key := tallyKey{SiteKey: SiteKey{Op: w.Queue, Parent: w.Own}}
	number, ok := t.numbers[key]
	if !ok {
		number = t.add(tallySite{tallyKey: key, base: w.Queue, service: service})
	}
	c, n, wait := into.cell(number), int64(calls), round(int64(w.Time))
	c.calls, c.nanos, c.logs = c.calls+calls, c.nanos+n*wait, c.logs+n*logOf(wait)
	c.within += n * t.within
	c.count(Shape{Hash: callgraph.Leaf, answered: true}, calls)
}

func (t *Tally) slice(number Slice) *tallySlice {
	s := t.slices[number]
	if s == nil {
		s = &tallySlice{requests: make(map[entryKey]*tallyCell)}
		t.slices[number] = s
	}
	return s
}

// entry returns the cell of the requests of key, creating it if necessary.
func (s *tallySlice) entry(key entryKey) *tallyCell {
	c := s.requests[key]
	if c == nil {
		c = &tallyCell{}
		s.requests[key] = c
	}
	return c
}

// observe counts the call of node i and, if it crosses to another service, its border.
func (t *Tally) observe(into *tallySlice, p *critpath.Path, i int32) {
	s := p.Span(i)
	key := tallyKey{SiteKey{Op: callgraph.Step(p, i)}, t.address(p, i), callgraph.Reached(p, i)}
	if up := callgraph.Caller(p, i); up >= 0 {
		key.Parent = callgraph.Step(p, up)
	}
	number, ok := t.number(key)
	if !ok {
		added := tallySite{key, s.Op, callgraph.Called(p, i), s.Service, s.Kind == trace.Client, 0}
		if key.reached != 0 {
			added.named = p.Target(i)
		}
		number = t.add(added)
	}
	c := into.cell(number)
	own := spent{t.reader.Nanos[i], t.reader.Off.Nanos[i]}
	c.add(own)
	c.addLocal(own, spent{t.reader.Local[i], t.reader.Off.Local[i]})
	c.within += t.within
	failed := s.Flags&trace.Error != 0
	c.count(Shape{t.reader.Shape(p, i, failed), failed, !p.Unanswered(i)}, 1)
	if s.Kind == trace.Producer && s.Peer != 0 {
		t.send(p.Trace.ID, s)
	}
	if !callgraph.Crosses(p, i) {
		return
	}
	caller := p.Span(p.Caller(i))
	key = tallyKey{SiteKey: SiteKey{Parent: caller.Op, Op: s.Op, Border: true}}
	if number, ok = t.number(key); !ok {
		number = t.add(tallySite{tallyKey: key, base: s.Op, service: caller.Service, client: true})
	}
	into.cell(number).add(spent{t.reader.Borders[i], t.reader.Off.Borders[i]})
}

// address returns the address of node i if it is a call that no span answers directly, and otherwise 0. It also counts
// which service answers at which address.
func (t *Tally) address(p *critpath.Path, i int32) trace.Address {
	s, callee := p.Span(i), callgraph.Answering(p, i)
	missing := p.Nodes[i].Callee == critpath.CalleeMissing
	switch {
	case s.Address == 0:
		return 0
	case s.Kind == trace.Server:
		t.answers.count(answer{s.Address, s.Service, false})
		return 0
	case callee >= 0:
		t.answers.count(answer{s.Address, p.Trace.Spans[callee].Service, missing})
	}
	if (callee < 0 || missing) && s.Kind == trace.Client && s.Peer != 0 && t.unknown < maxAddresses {
		return s.Address
	}
	return 0
}

// spent is the own time of a call in ns, on and off the critical path.
type spent struct{ nanos, beside int64 }

func (s spent) sum() int64 { return s.nanos + s.beside }

// add adds a call with an own time.
func (c *tallyCell) add(own spent) {
	c.calls++
	c.nanos += own.nanos
	c.beside += own.beside
	c.logs += logOf(own.sum())
}

// addLocal adds the amount by which the local time of a call exceeds its own time. The local time of an inner span is
// smaller, because it is part of the local time of another call.
func (c *tallyCell) addLocal(own, local spent) {
	if local != own {
		c.inner += local.nanos - own.nanos
		c.innerBeside += local.beside - own.beside
		c.innerLogs += logOf(local.sum()) - logOf(own.sum())
	}
}

// number returns the number of a site, and reports whether the tally contains the site.
func (t *Tally) number(of tallyKey) (number int32, known bool) {
	recent := &t.recent[(uint64(of.Op)^uint64(of.Parent)>>8)%uint64(len(t.recent))]
	if number = *recent - 1; number >= 0 && t.sites[number].tallyKey == of {
		return number, true
	}
	if number, known = t.numbers[of]; known {
		*recent = number + 1
	}
	return number, known
}

func (t *Tally) add(s tallySite) int32 {
	number := int32(len(t.sites))
	t.numbers[s.tallyKey] = number
	if s.address != 0 {
		t.unknown++
	}
	t.sites = append(t.sites, s)
	return number
}

func (s *tallySlice) cell(number int32) *tallyCell {
	for int(number) >= len(s.cells) {
		s.cells = append(s.cells, tallyCell{})
	}
	return &s.cells[number]
}

// tallyShapes is the maximum number of shapes of a site in a slice. Calls of other shapes count as one shape of hash 0.
const tallyShapes = 32

func (c *tallyCell) count(x Shape, calls uint64) {
	for i := range c.shapes {
		if c.shapes[i].Shape == x {
			c.shapes[i].calls += calls
			return
		}
	}
	if len(c.shapes) >= tallyShapes && x.Hash != 0 {
		x.Hash = 0
		c.count(x, calls)
		return
	}
	c.shapes = append(c.shapes, shapeCount{x, calls})
}
