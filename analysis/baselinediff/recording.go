package baselinediff

import (
	"cmp"
	"iter"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recording keeps the data of many traces that comparisons need: 24 bytes per span, besides names. It is not safe
// for concurrent use.
//
// Both sides of a comparison are [Traces] of the same recording, selected by time or by [Set].
//
// Results do not depend on the order in which traces were added, unless the bound on sites, callees or shapes was
// reached.
type Recording struct {
	table  *trace.Table
	traces []recordedTrace
	calls  []call // of all traces; the calls of a trace are contiguous

	siteNumbers    map[siteKey]int32
	sites          []site                 // by number
	serviceNumbers map[trace.Symbol]int32 // including names from attributes
	names          []trace.Symbol         // by number of the service
	calleeNumbers  map[calleeKey]int32
	callees        []callee // by number of the callee
	shapeNumbers   map[uint64]int32
	shapeFailed    []bool // by number of the shape: whether the span has an error status

	reader    pathReader
	callIndex []int32 // scratch of Add, by node of the path: index among the calls of the trace; -1: none
}

// NewRecording returns an empty recording. The names of a trace must be in table before the trace is added; the
// recording adds the steps.
func NewRecording(table *trace.Table) *Recording {
	return &Recording{
		table: table, siteNumbers: make(map[siteKey]int32), sites: make([]site, 1),
		serviceNumbers: make(map[trace.Symbol]int32), names: make([]trace.Symbol, 1), shapeNumbers: make(map[uint64]int32),
		shapeFailed: make([]bool, 1), calleeNumbers: make(map[calleeKey]int32), callees: make([]callee, 1),
	}
}

// Bounds of the distinct sites, callees and shapes of a recording: far more than occur with normalised names, and at
// about 100 bytes each less than 1 GiB.
const (
	maxSites   = 1 << 20
	maxCallees = 1 << 20
	maxShapes  = 1 << 22
)

// recordedTrace is one trace.
type recordedTrace struct {
	id          trace.ID
	start       trace.Nanos // of its primary root
	duration    int64       // of its primary root
	first, last int         // its calls are Recording.calls[first:last]
	set         Set
}

func (t recordedTrace) compare(u recordedTrace) int {
	return cmp.Or(cmp.Compare(t.start, u.start), t.id.Compare(u.id), cmp.Compare(t.duration, u.duration), cmp.Compare(t.set, u.set))
}

// call is one span, or a border, which stands for a missing CLIENT span.
type call struct {
	nanos  int64 // own time on the critical path of its root
	site   int32 // number of its site
	shape  int32 // number of its shape
	parent int32 // index within its trace, less than its own; -1: none
	callee int32 // number of its callee, if the span is a CLIENT or a border; 0: unknown
}

// siteKey identifies a site: a step and its caller. Callers are distinguished because the same operation may do
// different work for them. Whole calling contexts are not: there may be too many for each to have enough history.
type siteKey struct {
	parent, op trace.Op // steps; parent is 0 for a root
	border     bool     // the site of the borders of op, see [Recording.border]
}

// anyCaller returns the key that all sites of the same step share.
func (k siteKey) anyCaller() siteKey {
	return siteKey{op: k.op, border: k.border, parent: ^trace.Op(0)}
}

func (k siteKey) compare(l siteKey) int {
	if c := cmp.Or(cmp.Compare(k.op, l.op), cmp.Compare(k.parent, l.parent)); c != 0 || k.border == l.border {
		return c
	}
	if l.border {
		return -1
	}
	return 1
}

// site is a place of spans in the call graph.
type site struct {
	siteKey
	base    trace.Op // operation of the step
	service int32    // number of the service
	client  bool     // whether its spans are CLIENT spans or borders
	peer    int32    // number of the callee that its attributes name, of calls without an answer; 0: none
}

// wider returns the keys under which a site is pooled with others: with the same step under other callers and, if the
// step has a target, with the same operation whatever it calls. The second is the history of calls without an answer.
func (s *site) wider() []siteKey {
	keys := []siteKey{s.anyCaller()}
	if s.base != s.op {
		base := keys[0]
		base.op = s.base
		keys = append(keys, base)
	}
	return keys
}

type calleeKey struct {
	service trace.Symbol
	op      trace.Op
}

// callee is the target of a CLIENT span.
type callee struct {
	service int32    // number of the service
	op      trace.Op // 0: only the name of the service is known, from an attribute of the CLIENT span
}

func (c callee) compare(d callee) int {
	return cmp.Or(cmp.Compare(c.op, d.op), cmp.Compare(c.service, d.service))
}

// Set is a label of traces, such as those of one version of an application. Its values have no meaning here.
type Set uint8

// Add adds the trace of p with all of its roots to a set. It ignores traces without a root and those whose primary root
// takes [trace.MaxDuration] or more. Incomplete traces count with the spans that they have.
func (r *Recording) Add(p *critpath.Path, set Set) {
	if len(p.Roots) == 0 || p.Duration(&p.Roots[0]) >= trace.MaxDuration {
		return
	}
	r.reader.measure(p)
	r.callIndex = scratch.Filled(r.callIndex, len(p.Nodes), -1)
	primary := &p.Roots[0]
	first := len(r.calls)
	for i := range p.Roots {
		for k := p.Roots[i].First; k < p.Roots[i].Last; k++ {
			if n := &p.Nodes[k]; n.Root >= 0 && n.Anchor == k {
				r.callIndex[k] = int32(len(r.calls) - first)
				r.calls = append(r.calls, r.call(p, k))
				if crosses(p, k) {
					r.calls = append(r.calls, r.border(p, k))
				}
			}
		}
	}
	r.traces = append(r.traces, recordedTrace{
		id: p.Trace.ID, start: p.Nodes[primary.Node].Start, duration: int64(max(0, p.Duration(primary))),
		first: first, last: len(r.calls), set: set,
	})
}

// border returns the call that stands for the missing CLIENT span of node i.
func (r *Recording) border(p *critpath.Path, i int32) call {
	s, caller := p.Span(i), p.Span(p.Caller(i))
	key := siteKey{parent: caller.Op, op: s.Op, border: true}
	return call{
		nanos: r.reader.borders[i], parent: -1, callee: r.calleeOf(s.Service, s.Op),
		site: r.site(key, s.Op, 0, caller.Service, true),
	}
}

func (r *Recording) call(p *critpath.Path, i int32) call {
	s := p.Span(i)
	key := siteKey{op: p.Nodes[i].Step}
	c := call{nanos: r.reader.nanos[i], parent: -1}
	if up := p.Caller(i); up >= 0 {
		c.parent = r.callIndex[up]
		key.parent = p.Nodes[up].Step
	}
	if s.Kind == trace.Client {
		c.callee = r.calledBy(p, i)
	}
	c.site = r.site(key, s.Op, p.Target(i), s.Service, s.Kind == trace.Client)
	c.shape = r.shape(p, i, s.Flags&trace.Error != 0)
	return c
}

// calledBy returns the number of the callee of node i, a CLIENT: the span that answers it or, if there is none, the
// name in its attributes; 0 if there is neither.
func (r *Recording) calledBy(p *critpath.Path, i int32) int32 {
	if callee := p.Nodes[i].Callee; callee >= 0 {
		s := &p.Trace.Spans[callee]
		return r.calleeOf(s.Service, s.Op)
	}
	return r.namedPeer(p.Span(i).Peer)
}

// namedPeer returns the number of the callee with the name of peer; 0 if it has none.
func (r *Recording) namedPeer(peer trace.Op) int32 {
	if service := r.table.Operation(peer).Service; service != 0 {
		return r.calleeOf(service, 0)
	}
	return 0
}

// overflow is the number of all sites and shapes beyond the bounds of a recording. They are not compared.
const overflow = 0

// site returns the number of a site, whose step has the given operation and target.
func (r *Recording) site(key siteKey, base, target trace.Op, service trace.Symbol, client bool) int32 {
	if i, ok := r.siteNumbers[key]; ok {
		return i
	}
	if len(r.sites) >= maxSites {
		return overflow
	}
	i := int32(len(r.sites))
	r.siteNumbers[key] = i
	r.table.Step(base, target)
	s := site{siteKey: key, base: base, service: r.numberOf(service), client: client}
	if client && r.table.Operation(target).Kind == trace.External {
		s.peer = r.namedPeer(target)
	}
	r.sites = append(r.sites, s)
	return i
}

// calleeOf returns the number of a callee, from 1, or 0 if there are too many. op is 0 if the service is named by an
// attribute.
func (r *Recording) calleeOf(service trace.Symbol, op trace.Op) int32 {
	key := calleeKey{service, op}
	if i, ok := r.calleeNumbers[key]; ok {
		return i
	}
	if len(r.callees) >= maxCallees {
		return 0
	}
	i := int32(len(r.callees))
	r.calleeNumbers[key] = i
	r.callees = append(r.callees, callee{r.numberOf(service), op})
	return i
}

// numberOf returns the number of a service, from 1. The bounds of sites and callees bound the services as well.
func (r *Recording) numberOf(service trace.Symbol) int32 {
	if i, ok := r.serviceNumbers[service]; ok {
		return i
	}
	i := int32(len(r.names))
	r.serviceNumbers[service] = i
	r.names = append(r.names, service)
	return i
}

// shape returns the number of the shape of node i.
func (r *Recording) shape(p *critpath.Path, i int32, failed bool) int32 {
	h := r.reader.shape(p, i, failed)
	if number, ok := r.shapeNumbers[h]; ok {
		return number
	}
	number := int32(len(r.shapeNumbers) + 1)
	if number >= maxShapes {
		return overflow
	}
	r.shapeNumbers[h] = number
	r.shapeFailed = append(r.shapeFailed, failed)
	return number
}

// all returns the calls of traces in order.
func (r *Recording) all(traces []recordedTrace) iter.Seq[*call] {
	return func(yield func(*call) bool) {
		for _, t := range traces {
			for i := t.first; i < t.last; i++ {
				if !yield(&r.calls[i]) {
					return
				}
			}
		}
	}
}
