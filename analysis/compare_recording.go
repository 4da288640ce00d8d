package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Recording keeps of many traces what [History.Compare] needs: 24 bytes a span, names apart. It belongs to one goroutine.
//
// What is computed from it does not depend on the order in which traces were added, unless a bound was reached (see
// [Recording.Refused]).
type Recording struct {
	table  *trace.Table
	traces []recorded
	calls  []call // of all traces, those of one together
	sorted bool   // whether traces are in the order of their beginning

	sites    map[siteKey]int32
	of       []site // by number
	services map[trace.Symbol]int32
	names    []trace.Symbol // by number of the service
	shapes   map[uint64]int32
	refused  int

	nanos []int64 // of each node of the path that is being added
	at    []int32 // its index among the calls of its trace
	ops   []trace.Op
}

// NewRecording returns an empty recording of traces whose names are, or will be, in table.
func NewRecording(table *trace.Table) *Recording {
	return &Recording{
		table: table, sites: make(map[siteKey]int32), of: make([]site, 1),
		services: make(map[trace.Symbol]int32), names: make([]trace.Symbol, 1), shapes: make(map[uint64]int32),
	}
}

// Bounds on what a recording tells apart: at about 100 bytes each some 400 MiB, and far more than names that were normalised
// have.
const (
	maxSites  = 1 << 20
	maxShapes = 1 << 22
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
type siteKey struct{ parent, op trace.Op } // parent is 0 for a root

// site is where spans are.
type site struct {
	siteKey
	service int32 // its number
	kind    trace.Kind
}

// Add adds the trace of p, all of its roots. A trace without a root, and one of [trace.MaxDuration] or more, is left out. Incomplete
// traces count with what is there.
func (r *Recording) Add(p *Path) {
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
func (r *Recording) measure(p *Path) {
	r.nanos = filled(r.nanos, len(p.Nodes), 0)
	r.at = filled(r.at, len(p.Nodes), -1)
	for i := range p.Roots {
		for _, s := range p.Roots[i].Sections {
			r.nanos[s.Node] += int64(s.End - s.Start)
		}
		for _, v := range p.Roots[i].Overlaps {
			r.nanos[v.Node] -= int64(v.By)
		}
	}
}

func (r *Recording) call(p *Path, i int32) call {
	n := &p.Nodes[i]
	s := p.span(i)
	key := siteKey{op: s.Op}
	c := call{nanos: r.nanos[i], parent: -1}
	if n.up >= 0 {
		c.parent = r.at[n.up]
		key.parent = p.span(n.up).Op
	}
	if n.Callee >= 0 {
		c.callee = r.numberOf(p.span(n.Callee).Service)
	}
	c.site = r.site(key, s)
	c.shape = r.shape(p, i, s.Flags&trace.Error != 0)
	return c
}

// nowhere is the number of the site, and of the shape, of what a full recording could not tell apart. It is not judged.
const nowhere = 0

func (r *Recording) site(key siteKey, s *trace.Span) int32 {
	if i, ok := r.sites[key]; ok {
		return i
	}
	if len(r.of) >= maxSites {
		r.refused++
		return nowhere
	}
	i := int32(len(r.of))
	r.sites[key] = i
	r.of = append(r.of, site{siteKey: key, service: r.numberOf(s.Service), kind: s.Kind})
	return i
}

// numberOf returns the number of a service, from 1.
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
func (r *Recording) shape(p *Path, i int32, failed bool) int32 {
	fam := &p.families[i]
	r.ops = r.ops[:0]
	for k := fam.first; k < fam.outside; k++ {
		if p.Nodes[k].Anchor == k {
			r.ops = append(r.ops, p.span(k).Op)
		}
	}
	slices.Sort(r.ops)
	h := uint64(1)
	if failed {
		h = 2
	}
	for _, op := range slices.Compact(r.ops) {
		h = trace.Mix(h, uint64(op))
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
