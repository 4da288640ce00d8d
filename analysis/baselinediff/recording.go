package baselinediff

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recording keeps of many traces what [Normal.Compare] needs: 24 bytes a span, names apart. It belongs to one goroutine.
//
// What is computed from it does not depend on the order in which traces were added, unless a bound was reached (see
// [Recording.Refused]).
type Recording struct {
	table  *trace.Table
	traces []recorded
	calls  []call // of all traces, those of one together
	sorted bool   // whether traces are in the order of their beginning

	sites    map[siteKey]int32
	of       []site                 // by number
	services map[trace.Symbol]int32 // with what attributes name
	names    []trace.Symbol         // by number of the service
	callees  map[calleeKey]int32
	called   []callee // by number of the callee
	shapes   map[uint64]int32
	refused  int

	nanos   []int64 // of each node of the path that is being added
	borders []int64 // of each of its nodes that crosses
	at      []int32 // its index among the calls of its trace
	ops     []trace.Op
}

// NewRecording returns an empty recording of traces whose names are, or will be, in table.
func NewRecording(table *trace.Table) *Recording {
	return &Recording{
		table: table, sites: make(map[siteKey]int32), of: make([]site, 1),
		services: make(map[trace.Symbol]int32), names: make([]trace.Symbol, 1), shapes: make(map[uint64]int32),
		callees: make(map[calleeKey]int32), called: make([]callee, 1),
	}
}

// Bounds on what a recording tells apart: far more than there is where names are normalised, and at about 100 bytes each less
// than 1 GiB.
const (
	maxSites   = 1 << 20
	maxCallees = 1 << 20
	maxShapes  = 1 << 22
)

// recorded is one trace.
type recorded struct {
	id          trace.ID
	start       trace.Nanos // of its primary root
	duration    int64       // of its primary root
	first, last int         // its calls are Recording.calls[first:last]
}

// call is one span.
type call struct {
	nanos  int64 // own time on the critical path of its root
	site   int32 // number of its site
	shape  int32 // number of its shape
	parent int32 // index within its trace, less than its own; -1: none
	callee int32 // number of the service of its SERVER child, if the span is a CLIENT; 0: none
}

// siteKey says where a span is: by whom what is called. It tells callers apart, because the same operation may do different
// work for them, but not whole calling contexts, of which there may be so many that each has too little history.
type siteKey struct {
	parent, op trace.Op // parent is 0 for a root
	border     bool     // of what op cost its caller, see [Recording.border]
}

// anyCaller returns the key that sites of the same operation share.
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

// site is where spans are.
type site struct {
	siteKey
	service int32 // its number
	client  bool  // calls of other services
}

type calleeKey struct {
	service trace.Symbol
	op      trace.Op
}

// callee is what a CLIENT span calls.
type callee struct {
	service int32    // its number
	op      trace.Op // 0: only the service's name is known, by an attribute of the CLIENT span
}

func (c callee) compare(d callee) int {
	return cmp.Or(cmp.Compare(c.op, d.op), cmp.Compare(c.service, d.service))
}

// Add adds the trace of p, all of its roots. A trace without a root, and one of [trace.MaxDuration] or more, is left out. Incomplete
// traces count with what is there.
func (r *Recording) Add(p *critpath.Path) {
	if len(p.Roots) == 0 || p.Duration(&p.Roots[0]) >= trace.MaxDuration {
		return
	}
	r.measure(p)
	primary := &p.Roots[0]
	first := len(r.calls)
	for i := range p.Roots {
		for k := p.Roots[i].First; k < p.Roots[i].Last; k++ {
			if n := &p.Nodes[k]; n.Root >= 0 && n.Anchor == k {
				r.at[k] = int32(len(r.calls) - first)
				r.calls = append(r.calls, r.call(p, k))
				if r.crosses(p, k) {
					r.calls = append(r.calls, r.border(p, k))
				}
			}
		}
	}
	r.sorted = false
	r.traces = append(r.traces, recorded{
		id: p.Trace.ID, start: p.Nodes[primary.Node].Start, duration: int64(max(0, p.Duration(primary))),
		first: first, last: len(r.calls),
	})
}

// measure fills r.nanos.
func (r *Recording) measure(p *critpath.Path) {
	r.nanos = filled(r.nanos, len(p.Nodes), 0)
	r.borders = filled(r.borders, len(p.Nodes), 0)
	r.at = filled(r.at, len(p.Nodes), -1)
	for i := range p.Roots {
		for _, s := range p.Roots[i].Sections {
			r.share(p, &s)
		}
		for _, v := range p.Roots[i].Overlaps {
			r.nanos[v.Node] -= int64(v.By)
		}
	}
}

// share adds the time of a section to its span, or to its borders: what lies beside a call of another service that has no CLIENT
// span of its own is, as far as can be seen, the time of that call; between two calls half of it.
func (r *Recording) share(p *critpath.Path, s *critpath.Section) {
	d := int64(s.End - s.Start)
	before, after := s.Before >= 0 && r.crosses(p, s.Before), s.After >= 0 && r.crosses(p, s.After)
	switch {
	case before && after:
		r.borders[s.Before] += d / 2
		r.borders[s.After] += d - d/2
	case before:
		r.borders[s.Before] += d
	case after:
		r.borders[s.After] += d
	default:
		r.nanos[s.Node] += d
	}
}

// crosses reports whether node i is called by a span of another service that is no CLIENT.
func (r *Recording) crosses(p *critpath.Path, i int32) bool {
	up := p.Caller(i)
	if up < 0 {
		return false
	}
	caller := p.Span(up)
	return caller.Kind != trace.Client && caller.Service != p.Span(i).Service
}

// border returns what stands for the CLIENT span that node i should have.
func (r *Recording) border(p *critpath.Path, i int32) call {
	s, caller := p.Span(i), p.Span(p.Caller(i))
	key := siteKey{parent: caller.Op, op: s.Op, border: true}
	return call{
		nanos: r.borders[i], parent: -1, callee: r.calleeOf(s.Service, s.Op),
		site: r.site(key, caller.Service, true),
	}
}

func (r *Recording) call(p *critpath.Path, i int32) call {
	s := p.Span(i)
	key := siteKey{op: s.Op}
	c := call{nanos: r.nanos[i], parent: -1}
	if up := p.Caller(i); up >= 0 {
		c.parent = r.at[up]
		key.parent = p.Span(up).Op
	}
	if s.Kind == trace.Client {
		c.callee = r.calledBy(p, i)
	}
	c.site = r.site(key, s.Service, s.Kind == trace.Client)
	c.shape = r.shape(p, i, s.Flags&trace.Error != 0)
	return c
}

// peerKeys are the attributes of CLIENT spans that name what is called, best first: a service, an address, a sort of database.
var peerKeys = [...]trace.Symbol{
	trace.SymbolOf([]byte("peer.service")), trace.SymbolOf([]byte("server.address")), trace.SymbolOf([]byte("net.peer.name")),
	trace.SymbolOf([]byte("db.system.name")), trace.SymbolOf([]byte("db.system")),
}

// PeerKeys returns the attributes that a recording makes use of: names of what CLIENT spans call, where that emits no spans.
func PeerKeys() []string {
	return []string{"peer.service", "server.address", "net.peer.name", "db.system.name", "db.system"}
}

// calledBy returns the number of the callee of node i, a CLIENT: its SERVER child, else any child of another service, else what an
// attribute says; 0 if nothing does.
func (r *Recording) calledBy(p *critpath.Path, i int32) int32 {
	child := p.Nodes[i].Callee
	first, last := p.Children(i)
	for k := first; k < last && child < 0; k++ {
		if p.Nodes[k].Anchor == k && p.Span(k).Service != p.Span(i).Service {
			child = k
		}
	}
	if child >= 0 {
		s := p.Span(child)
		return r.calleeOf(s.Service, s.Op)
	}
	peer, best := trace.Symbol(0), len(peerKeys)
	for _, k := range p.Attrs(i) {
		a := &p.Trace.Attrs[k]
		rank := slices.Index(peerKeys[:best], a.Key)
		if rank >= 0 && !a.Numeric && a.Text != 0 {
			peer, best = a.Text, rank
		}
	}
	if peer == 0 {
		return 0
	}
	return r.calleeOf(peer, 0)
}

// nowhere is the number of the site, and of the shape, of what a full recording could not tell apart. It is not judged.
const nowhere = 0

func (r *Recording) site(key siteKey, service trace.Symbol, client bool) int32 {
	if i, ok := r.sites[key]; ok {
		return i
	}
	if len(r.of) >= maxSites {
		r.refused++
		return nowhere
	}
	i := int32(len(r.of))
	r.sites[key] = i
	r.of = append(r.of, site{siteKey: key, service: r.numberOf(service), client: client})
	return i
}

// calleeOf returns the number of a callee, from 1; 0 if there are too many. Op is 0 where an attribute names the service.
func (r *Recording) calleeOf(service trace.Symbol, op trace.Op) int32 {
	key := calleeKey{service, op}
	if i, ok := r.callees[key]; ok {
		return i
	}
	if len(r.called) >= maxCallees {
		r.refused++
		return 0
	}
	i := int32(len(r.called))
	r.callees[key] = i
	r.called = append(r.called, callee{r.numberOf(service), op})
	return i
}

// numberOf returns the number of a service, from 1. There are no more than sites and callees.
func (r *Recording) numberOf(service trace.Symbol) int32 {
	if i, ok := r.services[service]; ok {
		return i
	}
	i := int32(len(r.names))
	r.services[service] = i
	r.names = append(r.names, service)
	return i
}

// shape returns the number of the set of operations that node i calls, with whether it failed.
func (r *Recording) shape(p *critpath.Path, i int32, failed bool) int32 {
	first, last := p.Children(i)
	r.ops = r.ops[:0]
	for k := first; k < last; k++ {
		if p.Nodes[k].Anchor == k {
			r.ops = append(r.ops, p.Span(k).Op)
		}
	}
	slices.Sort(r.ops)
	h := uint64(1)
	if failed {
		h = 2
	}
	for i := 0; i < len(r.ops); {
		first := i
		for i < len(r.ops) && r.ops[i] == r.ops[first] {
			i++
		}
		h = trace.Mix(trace.Mix(h, uint64(r.ops[first])), uint64(bits.Len(uint(i-first))))
	}
	if number, ok := r.shapes[h]; ok {
		return number
	}
	number := int32(len(r.shapes) + 1)
	if number >= maxShapes {
		r.refused++
		return nowhere
	}
	r.shapes[h] = number
	return number
}

// Traces returns the number of traces.
func (r *Recording) Traces() int { return len(r.traces) }

// Spans returns the number of spans in them.
func (r *Recording) Spans() int { return len(r.calls) }

// Refused returns how many spans were not told apart because there were too many different ones. Which ones depends on the
// order in which traces were added.
func (r *Recording) Refused() int { return r.refused }

// sort puts the traces into the order of their beginning.
func (r *Recording) sort() {
	if !r.sorted {
		slices.SortFunc(r.traces, func(a, b recorded) int {
			return cmp.Or(cmp.Compare(a.start, b.start), a.id.Compare(b.id), cmp.Compare(a.duration, b.duration))
		})
		r.sorted = true
	}
}

// Interval is the time [From, To).
type Interval struct{ From, To trace.Nanos }

// Contains reports whether t lies within i.
func (i Interval) Contains(t trace.Nanos) bool { return i.From <= t && t < i.To }

// Duration returns the length of i.
func (i Interval) Duration() time.Duration { return i.To.Sub(i.From) }

// within returns the traces that begin within i.
func (r *Recording) within(i Interval) []recorded {
	r.sort()
	find := func(t trace.Nanos) int {
		k, _ := slices.BinarySearchFunc(r.traces, t, func(x recorded, t trace.Nanos) int { return cmp.Compare(x.start, t) })
		return k
	}
	from, to := find(i.From), find(i.To)
	return r.traces[from:max(from, to)]
}

// all returns the calls of traces in order.
func (r *Recording) all(traces []recorded) iter.Seq[*call] {
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

// filled returns a slice of n elements v, in s's memory if it suffices.
func filled[T any](s []T, n int, v T) []T {
	s = slices.Grow(s[:0], n)[:n]
	for i := range s {
		s[i] = v
	}
	return s
}
