package critpath

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Options choose how critical paths are extracted. Use [DefaultOptions] and change what you need: the zero value differs
// from it only in correcting no clock skew.
type Options struct {
	// MaxSkew is the largest clock shift between two hosts that is corrected; larger ones are only flagged. 0 switches the
	// correction off.
	MaxSkew time.Duration
	// IgnoreAsync leaves a child that outlives its parent off the path, instead of clamping it to its parent.
	IgnoreAsync bool
	// OverlapTolerance is the fraction (0–1) of the parent's duration by which two children may overlap and both be on the
	// path. Above 0 sections of different spans may overlap and the partition invariants do not hold (see [Root.Overlaps]).
	OverlapTolerance float64
	// LatestStart breaks ties between children that end together by the latest start, instead of the earliest.
	LatestStart bool
	// StrictTouching takes a child, but for the last one of its parent, only if it ends strictly before the cursor, so that
	// of two children that touch only the later is on the path.
	StrictTouching bool
}

// DefaultOptions returns the options of design: skew up to one second corrected, everything else off.
func DefaultOptions() Options { return Options{MaxSkew: time.Second} }

// MaxDepth bounds calling contexts: what lies deeper counts for the place at this depth. Real call trees are far shallower; without a bound
// the contexts of one long chain of spans would take quadratic room wherever they are written out.
const MaxDepth = 512

// Node is one prepared span: duplicates removed, parents resolved, skew corrected, clamped.
type Node struct {
	ID     trace.SpanID // as sent, except the server half of a shared ID, which gets one derived from it
	Span   int32        // index in the trace's Spans
	Parent int32        // index of the parent's node, baseline or switched on; -1 for a root and where there is none
	// Anchor is the nearest baseline node at or above this one: the node itself if it is baseline; -1 for a switched-on span
	// without a baseline ancestor.
	Anchor int32
	// Root is the index in Path.Roots of the root that the node belongs to; -1 if it was dropped (outside its parent, or
	// switched on and below no root).
	Root       int32
	Start, End trace.Nanos // Start <= End
	// Context is the calling context over baseline ancestors only, so that it is the same whatever is switched on; for a
	// switched-on span that of its Anchor.
	Context trace.Context
	// Full is, for a switched-on span, the calling context from its anchor's Context down over the switched-on spans between.
	// It does not depend on what is switched on above the anchor. For a baseline span it equals Context.
	Full trace.Context
	// Callee is, for a baseline CLIENT span, the node of its SERVER child (the earliest, then smallest ID, of several, in
	// baseline); -1 where none is known.
	Callee int32
	depth  int32 // calling contexts above Full
	up     int32 // whose child the node is in the walks: for baseline the nearest baseline ancestor, else Parent
}

// Section is a half-open interval [Start, End) of a critical path that belongs to one span, between two of its critical
// children. It is never empty.
type Section struct {
	Node          int32 // the span whose own time this is
	Before, After int32 // nodes of the critical children before and after; -1 at the span's start or end
	Within        int32 // for a refined section the index of the baseline section it lies in; else -1
	Start, End    trace.Nanos
}

// Overlap says that a critical child of Node ended By after the section that follows it began, which
// [Options.OverlapTolerance] allows. The exclusive time of Node is the sum of its sections minus its overlaps.
type Overlap struct {
	Node int32
	By   time.Duration
}

// Root is one critical path: that of a root span.
type Root struct {
	Node int32
	// The nodes below the root (itself included, dropped ones too) are Path.Nodes[First:Last].
	First, Last int32
	// Sections is the critical path over baseline spans in time order. They leave no gap and add up to the root's
	// duration.
	Sections []Section
	// Critical holds the baseline nodes on the critical path, those too that only wait: the root first, every other one
	// after the one that waited for it, latest first.
	Critical []int32
	// Refined is the same path with switched-on spans: its sections partition those of Sections. At the ends of a section
	// of Sections, Before and After are that section's. It is empty where the root has no switched-on span.
	Refined []Section
	// Overlaps is empty unless Options.OverlapTolerance is set.
	Overlaps []Overlap
	// AsyncTail is how long baseline work below the root went on after the root's end.
	AsyncTail time.Duration
}

// Counts says how often what happened while a trace was prepared.
type Counts struct {
	Duplicates int // identical copies dropped
	Conflicts  int // spans dropped because another one with their ID was kept
	Orphans    int // spans whose parent is missing
	Cycles     int // cycles of parents broken, self-parents included
	Clamped    int // spans cut to their parent's interval
	Outside    int // spans dropped: wholly outside their parent, and all below them
	Negative   int // spans that end before they start, taken as of no length
	ZeroLength int // spans that end when they start
}

// Path is what [Extractor.Extract] finds in one trace: a critical path for each root, the primary root first.
type Path struct {
	Trace  *trace.Trace
	Flags  Flags
	Counts Counts
	// Nodes holds the prepared spans, those of each root together and every one after its nearest baseline ancestor. Their
	// order depends on the order of the trace's spans; nothing else does.
	Nodes []Node
	Roots []Root // by start, longest, ID

	switched bool     // whether there are switched-on spans
	families []family // of each node
	attrAt   []int32  // attributes of span i of the trace: attrs[attrAt[i]:attrAt[i+1]]; empty if the trace has none
	attrs    []int32
}

// family says where the children of a node are in Path.Nodes: first those that Options.IgnoreAsync leaves off the path, then
// baseline ones that may be critical, then switched-on ones, then, up to the next family, those that lie outside. In each part
// they are in the order in which a walk prefers them: by descending end, then as the options say. Baseline spans count as
// children of their nearest baseline ancestor.
type family struct{ first, candidates, switched, outside int32 }

// Complete reports whether every span's parent arrived, or is known not to be collected. Only complete traces enter the
// statistics.
func (p *Path) Complete() bool { return p.Flags&FlagIncomplete == 0 }

// Duration returns the duration of root r.
func (p *Path) Duration(r *Root) time.Duration {
	n := &p.Nodes[r.Node]
	return n.End.Sub(n.Start)
}

// Unusable returns why root number root yields no observation: the trace is incomplete, or the root's duration is not in
// (0, trace.MaxDuration). It returns "" if it yields one.
func (p *Path) Unusable(root int) trace.Reason {
	switch d := p.Duration(&p.Roots[root]); {
	case !p.Complete():
		return trace.Incomplete
	case d >= trace.MaxDuration:
		return trace.TooLong
	case d <= 0:
		return trace.NoDuration
	}
	return ""
}

// Span returns the span of node i.
func (p *Path) Span(i int32) *trace.Span { return &p.Trace.Spans[p.Nodes[i].Span] }

// Caller returns the node whose child node i is in the walks: for a baseline node its nearest baseline ancestor, else its parent; -1 if
// there is none.
func (p *Path) Caller(i int32) int32 { return p.Nodes[i].up }

// Children returns where the nodes are whose Caller is node i, but for those that were dropped: p.Nodes[first:last].
func (p *Path) Children(i int32) (first, last int32) {
	return p.families[i].first, p.families[i].outside
}

// HasSwitchedOn reports whether the trace has switched-on spans.
func (p *Path) HasSwitchedOn() bool { return p.switched }

// Attrs returns the indices, in the trace's Attrs, of the attributes of node i's span. The slice belongs to p.
func (p *Path) Attrs(i int32) []int32 {
	if len(p.attrAt) == 0 {
		return nil
	}
	span := p.Nodes[i].Span
	return p.attrs[p.attrAt[span]:p.attrAt[span+1]]
}
