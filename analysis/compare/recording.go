package compare

import (
	"cmp"
	"iter"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recording keeps the data of many traces that comparisons need: 32 bytes per span, plus names. It is not safe for
// concurrent use.
//
// Both sides of a comparison are [Traces] from the same recording, selected by time or by [Set].
//
// Results don't depend on the order of the traces, unless a limit on sites, callees or shapes is reached.
type Recording struct {
	Table  *trace.Table
	Traces []recordedTrace
	Calls  []Call // of all traces; the calls of a trace are contiguous

	siteNumbers    map[history.SiteKey]int32
	Sites          []history.Site         // by number
	ServiceNumbers map[trace.Symbol]int32 // including names from attributes
	Names          []trace.Symbol         // by number of the service
	calleeNumbers  map[calleeKey]int32
	Callees        []history.Callee // by number of the callee
	shapeNumbers   map[uint64]int32
	shapeFailed    []bool // by number of the shape: whether the span has an error status

	reader    callgraph.Reader
	CallIndex []int32 // scratch of Add, by node of the path: index among the calls of the trace, or -1
}

// NewRecording returns an empty recording. table must contain the names of a trace before the trace is added. The
// recording itself adds the steps.
func NewRecording(table *trace.Table) *Recording {
	return &Recording{
		Table:          table,
		siteNumbers:    make(map[history.SiteKey]int32),
		Sites:          make([]history.Site, 1),
		ServiceNumbers: make(map[trace.Symbol]int32),
		Names:          make([]trace.Symbol, 1),
		shapeNumbers:   make(map[uint64]int32),
		shapeFailed:    make([]bool, 1),
		calleeNumbers:  make(map[calleeKey]int32),
		Callees:        make([]history.Callee, 1),
	}
}

// Limits on the distinct sites, callees and shapes of a recording. Recordings with normalised names stay far below the
// limits. At the limits, with about 100 bytes each, they take less than 1 GiB.
const (
	maxSites   = 1 << 20
	maxCallees = 1 << 20
	maxShapes  = 1 << 22
)

// recordedTrace locates the calls of a trace in its [Recording].
type recordedTrace struct {
	id          trace.ID
	start       trace.Nanos // of its primary root
	Duration    int64       // of its primary root
	first, last int         // its calls are Recording.Calls[first:last]
	set         Set
}

func (t recordedTrace) compare(u recordedTrace) int {
	return cmp.Or(cmp.Compare(t.start, u.start), t.id.Compare(u.id),
		cmp.Compare(t.Duration, u.Duration), cmp.Compare(t.set, u.set))
}

// Call is one span, or a border, which stands for a missing CLIENT span.
type Call struct {
	Nanos  int64 // own time on the critical path of its root
	Beside int64 // own time off the path, see [history.Cell]
	Site   int32 // number of its site
	shape  int32 // number of its shape
	Parent int32 // index within its trace, less than its own; -1 without a parent
	Callee int32 // number of its callee, if the span is a CLIENT or a border; 0 if unknown
}

// Own returns the own time of c.
func (c *Call) Own() int64 { return c.Nanos + c.Beside }

type calleeKey struct {
	service trace.Symbol
	op      trace.Op
}

// Set is a label of traces. For example, all traces of one version of an application may form a set. The values have no
// meaning to this package.
type Set uint8

// Add adds the trace of p, with all of its roots, to a set. It ignores traces without a root, and traces whose primary
// root takes [trace.MaxDuration] or more. Incomplete traces count with the spans that they have.
func (r *Recording) Add(p *critpath.Path, set Set) {
	if len(p.Roots) == 0 || p.Duration(&p.Roots[0]) >= trace.MaxDuration {
		return
	}
	r.reader.Measure(p)
	r.CallIndex = scratch.Filled(r.CallIndex, len(p.Nodes), -1)
	primary := &p.Roots[0]
	first := len(r.Calls)
	for i := range p.Roots {
		for k := p.Roots[i].First; k < p.Roots[i].Last; k++ {
			if n := &p.Nodes[k]; n.Root >= 0 && n.Anchor == k {
				r.CallIndex[k] = int32(len(r.Calls) - first)
				r.Calls = append(r.Calls, r.call(p, k))
				if callgraph.Crosses(p, k) {
					r.Calls = append(r.Calls, r.border(p, k))
				}
			}
		}
	}
	r.Traces = append(r.Traces, recordedTrace{
		id: p.Trace.ID, start: p.Nodes[primary.Node].Start, Duration: int64(max(0, p.Duration(primary))),
		first: first, last: len(r.Calls), set: set,
	})
}

// border returns the call that stands for the missing CLIENT span of node i.
func (r *Recording) border(p *critpath.Path, i int32) Call {
	s, caller := p.Span(i), p.Span(p.Caller(i))
	key := history.SiteKey{Parent: caller.Op, Op: s.Op, Border: true}
	return Call{
		Nanos: r.reader.Borders[i], Beside: r.reader.Off.Borders[i], Parent: -1, Callee: r.calleeOf(s.Service, s.Op),
		Site: r.site(key, s.Op, 0, caller.Service, true),
	}
}

func (r *Recording) call(p *critpath.Path, i int32) Call {
	s := p.Span(i)
	key := history.SiteKey{Op: callgraph.Step(p, i)}
	c := Call{Nanos: r.reader.Nanos[i], Beside: r.reader.Off.Nanos[i], Parent: -1}
	if up := callgraph.Caller(p, i); up >= 0 {
		c.Parent = r.CallIndex[up] // -1 if it is in a later root, above a hop without spans
		key.Parent = callgraph.Step(p, up)
	}
	if s.Kind == trace.Client {
		c.Callee = r.calledBy(p, i)
	}
	c.Site = r.site(key, s.Op, callgraph.Called(p, i), s.Service, s.Kind == trace.Client)
	c.shape = r.shape(p, i, s.Flags&trace.Error != 0)
	return c
}

// calledBy returns the number of the callee of node i, a CLIENT span: the operation of the span that answers it or, if
// there is no answer, the service that its attributes name. It returns 0 if they name no service.
func (r *Recording) calledBy(p *critpath.Path, i int32) int32 {
	if callee := callgraph.Answering(p, i); callee >= 0 {
		s := &p.Trace.Spans[callee]
		return r.calleeOf(s.Service, s.Op)
	}
	return r.namedPeer(p.Span(i).Peer)
}

// namedPeer returns the number of the callee that peer names, or 0 if peer names no service.
func (r *Recording) namedPeer(peer trace.Op) int32 {
	if service := r.Table.Operation(peer).Service; service != 0 {
		return r.calleeOf(service, 0)
	}
	return 0
}

// site returns the number of the site of key, creating it if necessary, or history.Overflow if there are too many. The
// step of the site has operation base and the given target.
func (r *Recording) site(key history.SiteKey, base, target trace.Op, service trace.Symbol, client bool) int32 {
	if i, ok := r.siteNumbers[key]; ok {
		return i
	}
	if len(r.Sites) >= maxSites {
		return history.Overflow
	}
	i := int32(len(r.Sites))
	r.siteNumbers[key] = i
	r.Table.Step(base, target)
	s := history.Site{SiteKey: key, Base: base, Service: r.numberOf(service), Client: client}
	if client && r.Table.Operation(target).Kind == trace.External {
		s.Peer = r.namedPeer(target)
	}
	r.Sites = append(r.Sites, s)
	return i
}

// calleeOf returns the number of a callee, from 1, or 0 if there are too many. op is 0 if only an attribute names the
// service.
func (r *Recording) calleeOf(service trace.Symbol, op trace.Op) int32 {
	key := calleeKey{service, op}
	if i, ok := r.calleeNumbers[key]; ok {
		return i
	}
	if len(r.Callees) >= maxCallees {
		return 0
	}
	i := int32(len(r.Callees))
	r.calleeNumbers[key] = i
	r.Callees = append(r.Callees, history.Callee{Service: r.numberOf(service), Op: op})
	return i
}

// numberOf returns the number of a service, from 1, adding it if needed. The limits on sites and callees bound the
// number of services as well.
func (r *Recording) numberOf(service trace.Symbol) int32 {
	if i, ok := r.ServiceNumbers[service]; ok {
		return i
	}
	i := int32(len(r.Names))
	r.ServiceNumbers[service] = i
	r.Names = append(r.Names, service)
	return i
}

// shape returns the number of the shape of node i, or history.Overflow if there are too many.
func (r *Recording) shape(p *critpath.Path, i int32, failed bool) int32 {
	h := r.reader.Shape(p, i, failed)
	if number, ok := r.shapeNumbers[h]; ok {
		return number
	}
	number := int32(len(r.shapeNumbers) + 1)
	if number >= maxShapes {
		return history.Overflow
	}
	r.shapeNumbers[h] = number
	r.shapeFailed = append(r.shapeFailed, failed)
	return number
}

// all returns the calls of traces in order.
func (r *Recording) all(traces []recordedTrace) iter.Seq[*Call] {
	return func(yield func(*Call) bool) {
		for _, t := range traces {
			for i := t.first; i < t.last; i++ {
				if !yield(&r.Calls[i]) {
					return
				}
			}
		}
	}
}
