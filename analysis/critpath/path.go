package critpath

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure the extraction of critical paths. All are off in the zero value.
type Options struct {
	// IgnoreAsync excludes children that outlive their parent from the path, instead of clamping them to their parent.
	IgnoreAsync bool
	// OverlapTolerance is the fraction (0–1) of the parent's duration that two critical children may overlap. If it is
	// above 0, sections of different spans may overlap, so they don't add up to the duration of the root (see
	// [Root.Overlaps]).
	OverlapTolerance float64
	// LatestStart selects the child with the latest start, instead of the earliest, among children that end together.
	LatestStart bool
	// StrictTouching requires a child to end before the cursor, unless it is the last child of its parent: if two
	// children touch, only the later one is on the path.
	StrictTouching bool
	// SeeThrough lists services, such as sidecars, whose spans never count as answers to calls. The spans below them
	// answer in their place.
	SeeThrough []trace.Symbol
}

// DefaultOptions returns the zero options.
func DefaultOptions() Options { return Options{} }

// MaxDepth is the maximum depth of calling contexts. Deeper spans have the context of their ancestor at this depth.
// Real call trees are far shallower. Without a limit, the contexts of a long chain of spans would take quadratic space.
const MaxDepth = 512

// Node is a prepared span: its parent is resolved, and its times are corrected for clock skew and clamped.
type Node struct {
	ID     trace.SpanID // as sent; for the server half of a shared ID, an ID derived from it
	Span   int32        // index in Path.Trace.Spans
	Parent int32        // node of the parent, which may be a tracepoint span, or -1
	// Anchor is the nearest baseline node at or above this one. It is the node itself for a baseline span, and -1 for a
	// tracepoint span without a baseline ancestor.
	Anchor int32
	// Root is the index in Path.Roots of the root at or above the node. It is -1 if the node was dropped because it is
	// outside its parent, or if it is a tracepoint span that is not below any root.
	Root       int32
	Start, End trace.Nanos // Start <= End
	// Context is the calling context over baseline ancestors, so it does not depend on enabled tracepoints. A
	// tracepoint span has the Context of its anchor.
	Context trace.Context
	// Full is, for a tracepoint span, Context extended by the tracepoint spans from its anchor down to the span. It
	// does not depend on tracepoints above the anchor. For a baseline span it equals Context.
	Full trace.Context
	// Step is the operation of the span with its target (see [Path.Target]). The Step of a baseline span depends only
	// on its own attributes and on baseline spans.
	Step trace.Op
	// Callee is, for a CLIENT span, the index in Path.Trace.Spans of the span that answers it: a child that is a SERVER
	// span or belongs to another service. If there are several, it is the earliest, and the one with the smallest ID if
	// several start together. It is [CalleeMissing] if the callee emitted no spans but spans below it arrived.
	// Otherwise, and for all other spans, it is -1.
	Callee int32
	caller int32 // see [Path.Caller]
}

// preference returns the preference of a baseline node that can be critical.
func (n *Node) preference() preference { return preference{candidate, n.End, n.Start, n.ID} }

// Section is a half-open interval [Start, End) of a critical path: own time of one span between two of its critical
// children. It is never empty.
type Section struct {
	Node          int32 // the span
	Before, After int32 // nodes of the critical children before and after; -1 at the start and the end of the span
	Within        int32 // index in Root.Sections of the section that a refined section is part of; -1 if not refined
	Start, End    trace.Nanos
}

// Overlap is the time between the start of a section and the end of the critical child of Node before it, as permitted
// by [Options.OverlapTolerance]. The exclusive time of Node is the sum of its sections minus its overlaps.
type Overlap struct {
	Node int32
	By   time.Duration
}

// Origin is the reason why a span is a root.
type Origin uint8

// Origins of roots, in the order of Path.Roots.
const (
	Parentless   Origin = iota // it was sent without a parent, or was on a cycle of parents
	BelowMissing               // its parent did not arrive
	Detached                   // its parent does not wait for it: see package critpath
)

// String returns the snake_case name of o.
func (o Origin) String() string { return [...]string{"parentless", "below_missing", "detached"}[o] }

// Root is a root span with its critical path.
type Root struct {
	Node int32
	// From is, for a detached root, the index in Path.Trace.Spans of its caller, a span of another root. It is -1 for
	// other roots. See [Path.Wait].
	From   int32
	Origin Origin
	// Gap is, for a root whose parent is missing, the node of the CLIENT span that called the missing hop, or -1 if it
	// is unknown. See [Path.Gap].
	Gap int32
	// Path.Nodes[First:Last] are the root and all nodes below it, including dropped ones.
	First, Last int32
	// Sections is the critical path over baseline spans, in order of time. The sections have no gaps and add up to the
	// root's duration.
	Sections []Section
	// Critical holds the baseline nodes on the critical path, including nodes that only wait, in the order of the walk:
	// the root comes first, and each other node comes after the node that waited for it. Among nodes that the same node
	// waited for, the latest comes first.
	Critical []int32
	// Refined holds the parts that tracepoint spans divide Sections into. The first part of a section has its Before,
	// and the last part has its After. Refined is empty if the root has no tracepoint spans.
	Refined []Section
	// Overlaps is empty unless Options.OverlapTolerance is set.
	Overlaps []Overlap
	// AsyncTail is the time that baseline spans below the root continued after the end of the root.
	AsyncTail time.Duration
}

// Counts counts the irregularities found while preparing a trace.
type Counts struct {
	Duplicates int // identical copies dropped
	Conflicts  int // spans dropped in favour of a different span with the same ID
	Orphans    int // spans whose parent is missing
	Cycles     int // cycles of parents broken, including spans that are their own parent
	Clamped    int // spans clamped to their parent's interval
	Moved      int // spans placed below a further ancestor, because their parent had ended
	Outside    int // tracepoint spans dropped because they, or an ancestor, are outside their parent
	Negative   int // spans that end before they start; they are treated as empty
	ZeroLength int // spans that end when they start
}

// Path is the result of [Extractor.Extract] for one trace: the critical path of each root.
type Path struct {
	Trace  *trace.Trace
	Flags  Flags
	Counts Counts
	// Nodes holds the prepared spans. The nodes of a root are adjacent, and a node comes after its nearest baseline
	// ancestor. Only the order of the nodes depends on the order of the spans in the trace.
	Nodes []Node
	Roots []Root // by origin, then the earliest start, the longest, the smallest ID; the first is the primary root

	tracepoints bool
	children    []children // by node
	copies      []copied   // by span; empty unless spans have the same ID
	attrs       spanAttrs
}

// Complete reports whether the trace is complete: every parent has arrived, or is known not to be collected. Incomplete
// traces are judged by the parts that arrived.
func (p *Path) Complete() bool { return p.Flags&FlagIncomplete == 0 }

// Duration returns the duration of root r.
func (p *Path) Duration(r *Root) time.Duration {
	n := &p.Nodes[r.Node]
	return n.End.Sub(n.Start)
}

// Wait is the time between two requests that do not wait for each other: a message in a queue, or background work that
// has not started yet.
type Wait struct {
	Caller trace.Op // operation of the span that sent the message or started the work
	// Queue is the queue or other destination named by the attributes of the caller or, if they name no destination, by
	// the attributes of the root. It is 0 if neither names a destination.
	Queue trace.Op
	Own   trace.Op      // operation of the root
	Time  time.Duration // from the end of the caller to the start of the root, by their own clocks; at least 0
}

// Wait returns the wait before root number root. It returns false if the root was not detached from a span of the
// trace. It doesn't cover messages from other traces (see [trace.Join]), because those traces may be closed, on another
// shard, or not sampled.
func (p *Path) Wait(root int) (w Wait, ok bool) {
	r := &p.Roots[root]
	if r.From < 0 {
		return Wait{}, false
	}
	from, s := &p.Trace.Spans[r.From], p.Span(r.Node)
	queue := from.Peer
	if queue == 0 {
		queue = s.Peer
	}
	return Wait{from.Op, queue, s.Op, max(0, s.Start.Sub(max(from.Start, from.End)))}, true
}

// Unusable returns the reason why root number root yields no observation: its duration is outside (0,
// trace.MaxDuration). It returns "" if the root is usable.
func (p *Path) Unusable(root int) trace.Reason {
	switch d := p.Duration(&p.Roots[root]); {
	case d >= trace.MaxDuration:
		return trace.TooLong
	case d <= 0:
		return trace.NoDuration
	}
	return ""
}

// Span returns the span of node i.
func (p *Path) Span(i int32) *trace.Span { return &p.Trace.Spans[p.Nodes[i].Span] }

// Target returns the operation that node i calls: the operation that answers it or, if there is no answer, the
// operation that its attributes name. It is 0 if they name no operation.
func (p *Path) Target(i int32) trace.Op {
	n := &p.Nodes[i]
	return target(p.Trace.Spans, n.Span, n.Callee)
}

// Caller returns the caller of node i, or -1: the nearest baseline ancestor of a baseline node, or the parent of a
// tracepoint node.
func (p *Path) Caller(i int32) int32 { return p.Nodes[i].caller }

// Children returns the range of the nodes whose caller is node i, without dropped ones: p.Nodes[first:last].
func (p *Path) Children(i int32) (first, last int32) {
	return p.children[i].first, p.children[i].outside
}

// Candidates returns the range of the nodes that node i may have waited for, in the order that a walk considers them:
// the node that ends last comes first.
func (p *Path) Candidates(i int32) (first, last int32) {
	return p.children[i].candidates, p.children[i].tracepoints
}

// HasTracepointSpans reports whether the trace has tracepoint spans.
func (p *Path) HasTracepointSpans() bool { return p.tracepoints }

// Attrs returns the indices in p.Trace.Attrs of the attributes of node i. The slice belongs to p.
func (p *Path) Attrs(i int32) []int32 { return p.attrs.of(p.Nodes[i].Span) }

// spanAttrs groups the attributes of a trace by span.
type spanAttrs struct {
	at    []int32 // attributes of span i: attrs[at[i]:at[i+1]]; may be empty
	attrs []int32 // indices in trace.Trace.Attrs, ascending for each span
}

func (a *spanAttrs) fill(t *trace.Trace) {
	a.at, a.attrs = a.at[:0], a.attrs[:0]
	if len(t.Attrs) == 0 {
		return
	}
	a.at = scratch.Filled(a.at, len(t.Spans)+1, 0)
	for i := range t.Attrs {
		a.at[t.Attrs[i].Span]++
	}
	addUp(a.at)
	a.attrs = scratch.Sized(a.attrs, len(t.Attrs))
	for i := range slices.Backward(t.Attrs) { // at[s] moves from the end of the part of span s to its start
		s := t.Attrs[i].Span
		a.at[s]--
		a.attrs[a.at[s]] = int32(i)
	}
}

func (a *spanAttrs) of(span int32) []int32 {
	if len(a.at) == 0 {
		return nil
	}
	return a.attrs[a.at[span]:a.at[span+1]]
}
