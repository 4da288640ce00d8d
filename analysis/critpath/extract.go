package critpath

import (
	"github.com/sibyl-trace/sibyl/trace"
)

// Extractor extracts the critical paths of traces. It reuses its buffers from trace to trace: once they have grown,
// Extract allocates nothing. An Extractor is not safe for concurrent use.
type Extractor struct {
	options Options
	path    Path

	ids     spanIDs
	parents parents
	skew    skew
	forest  forest
	callees callees
	layout  layout
	settle  settling
	gaps    gaps
	joins   joins
	walk    walk
	refine  refinement
}

// maxKept is the maximum size, in spans, of a trace whose buffers are kept for the next trace. The buffers take about
// 300 bytes per span. Larger traces are rare, so we release their memory.
const maxKept = 1 << 18

// NewExtractor returns an extractor with options o.
func NewExtractor(o Options) *Extractor {
	return &Extractor{
		options: o,
		callees: callees{seeThrough: o.SeeThrough},
		layout:  layout{ignoreAsync: o.IgnoreAsync, latestStart: o.LatestStart},
		joins:   joins{latestStart: o.LatestStart},
		walk: walk{
			overlapTolerance: o.OverlapTolerance, latestStart: o.LatestStart, strictTouching: o.StrictTouching,
		},
		refine: refinement{strictTouching: o.StrictTouching},
	}
}

// Extract returns the critical paths of t. The result is valid until the next call or until t changes. It does not
// depend on the order of the spans, attributes and joins of t, except for the order of [Path.Nodes]. Extract takes time
// O(n log n) in their number.
//
//  1. IDs: if several spans have the same ID, select one of them, a CLIENT and a SERVER span, or the attempts of a
//     call.
//  2. Parents: find the parent of each span, and its caller. The caller of a baseline span is its nearest baseline
//     ancestor.
//  3. Skew: estimate how far clocks differ.
//  4. Forest: link spans into trees of callers, and CLIENT spans to the spans that answer them; detach messaging.
//  5. Layout: lay the trees out as nodes, shifted and clamped, siblings in order of preference.
//  6. Cycles: spans that are in no tree are on cycles or below them. Break the cycles and repeat steps 3 to 5.
//  7. Settle: place spans that are outside their parent below a further ancestor, or detach them, and repeat steps 4
//     and 5.
//  8. Gaps: find the calls of missing hops, above the roots whose parent is missing.
//  9. Joins: find the nodes that other nodes wait for without calling them.
//  10. Walk: find the critical path of each root over baseline spans, and refine it by tracepoint spans.
func (x *Extractor) Extract(t *trace.Trace) *Path {
	if cap(x.parents.caller) > maxKept && len(t.Spans) <= maxKept {
		*x = *NewExtractor(x.options)
	}
	x.ids.resolve(t)
	x.parents.find(t.Spans, &x.ids)
	x.settle.reset()
	x.estimateSkew(t)
	x.layOut(t)
	if len(x.layout.nodes) < x.ids.kept() {
		x.parents.breakCycles(x.layout.nodes)
		x.estimateSkew(t)
		x.layOut(t)
	}
	if x.layout.unsettled {
		x.settle.run(&x.layout, &x.parents)
		x.layOut(t)
	}
	x.gaps.find(&x.layout)
	if x.parents.tracepoints() {
		x.layout.setParents(x.parents.parent)
	}
	x.joins.resolve(t, &x.layout, &x.ids)
	x.walkRoots()
	return x.result(t)
}

func (x *Extractor) estimateSkew(t *trace.Trace) { x.skew.estimate(t.Spans, x.parents.caller) }

// layOut converts spans to nodes.
func (x *Extractor) layOut(t *trace.Trace) {
	x.forest.link(t.Spans, x.parents.caller, x.settle.loose, &x.ids)
	x.callees.find(t.Spans, &x.ids, &x.forest, x.parents.caller, x.parents.parent)
	x.callees.add(x.settle.answers)
	x.layout.run(t.Spans, &x.ids, &x.forest, &x.callees, x.skew.shifts)
}

// walkRoots finds the critical path of each root.
func (x *Extractor) walkRoots() {
	refine := x.parents.tracepoints()
	x.walk.begin(&x.layout, &x.joins)
	if refine {
		x.refine.begin(&x.layout)
	}
	for i := range x.layout.roots {
		r := &x.layout.roots[i]
		x.walk.run(int32(i), r)
		if refine {
			x.refine.run(int32(i), r)
		}
	}
}

// result returns the path, filled in with the results of all steps.
func (x *Extractor) result(t *trace.Trace) *Path {
	p := &x.path
	p.Trace, p.Nodes, p.Roots, p.children = t, x.layout.nodes, x.layout.roots, x.layout.children
	p.tracepoints, p.copies = x.parents.tracepoints(), x.ids.dropped
	p.attrs.fill(t)
	p.Counts = x.layout.counts
	p.Counts.Duplicates, p.Counts.Conflicts = x.ids.duplicates, x.ids.conflicts
	p.Counts.Orphans, p.Counts.Cycles, p.Counts.Moved = x.parents.orphans, x.parents.cycles, x.settle.moved
	p.Flags = x.flags()
	return p
}

// flags returns the flags of the path.
func (x *Extractor) flags() (f Flags) {
	p := &x.path
	f.set(FlagDuplicates, p.Counts.Duplicates > 0)
	f.set(FlagConflicts, p.Counts.Conflicts > 0)
	f.set(FlagSharedID, x.ids.shared())
	remote := x.callerNotCollected()
	f.set(FlagRemoteParent, remote)
	f.set(FlagIncomplete, p.Counts.Orphans > 0 && !remote)
	f.set(FlagCycle, p.Counts.Cycles > 0)
	f.set(FlagSkewCorrected, len(x.skew.shifts) > 0)
	f.set(FlagDetached, x.forest.detached)
	f.set(FlagNoRoot, len(p.Roots) == 0 || !x.forest.parentless && !remote)
	f.set(FlagSeveralRoots, len(p.Roots) > 1)
	f.set(FlagClamped, p.Counts.Clamped > 0)
	f.set(FlagMoved, p.Counts.Moved > 0)
	f.set(FlagOutside, p.Counts.Outside > 0)
	f.set(FlagNegative, p.Counts.Negative > 0)
	for i := range p.Roots {
		r := &p.Roots[i]
		f.set(FlagAsyncTail, r.AsyncTail > 0)
		f.set(FlagTooLong, p.Duration(r) >= trace.MaxDuration)
	}
	return f
}

// callerNotCollected reports whether the trace consists of a single component that was called from outside, and nothing
// else is missing: its top span is a SERVER or CONSUMER span, or a flag marks the parent as remote.
func (x *Extractor) callerNotCollected() bool {
	p, f := &x.parents, &x.forest
	if p.orphans != 1 || f.components != 1 || p.caller[f.top] != missing {
		return false
	}
	spans := x.path.Trace.Spans
	top, orphan := &spans[f.top], &spans[p.lastOrphan]
	return top.Kind == trace.Server || top.Kind == trace.Consumer || (top.Flags|orphan.Flags)&trace.RemoteParent != 0
}

// addUp replaces each element with the sum of the elements up to and including it.
func addUp(counts []int32) {
	sum := int32(0)
	for i := range counts {
		sum += counts[i]
		counts[i] = sum
	}
}
