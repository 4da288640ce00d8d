package analysis

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
	// path. Above 0 sections may overlap and the partition invariants do not hold.
	OverlapTolerance float64
	// LatestStart breaks ties between children that end together by the latest start, instead of the earliest.
	LatestStart bool
	// StrictTouching takes a child only if it ends strictly before the cursor, so that of two children that touch only
	// the later is on the path.
	StrictTouching bool
}

// DefaultOptions returns the options of design: skew up to one second corrected, everything else off.
func DefaultOptions() Options { return Options{MaxSkew: time.Second} }

// Flags say what was unusual about a trace.
type Flags uint32

// What may be unusual about a trace. FlagNames gives their names.
const (
	FlagIncomplete    Flags = 1 << iota // a span's parent is missing
	FlagRemoteParent                    // the only component's caller was not collected; complete all the same
	FlagNoRoot                          // no span without a parent: components stand in for roots
	FlagSeveralRoots                    // more than one root
	FlagCycle                           // a cycle of parents was broken
	FlagDuplicates                      // identical copies were dropped
	FlagConflicts                       // spans with the same ID but different content: the first was kept
	FlagSharedID                        // a CLIENT and a SERVER span shared an ID and were split
	FlagSkewCorrected                   // clock skew was corrected
	FlagSkewExcessive                   // a shift above MaxSkew was found and not applied
	FlagClamped                         // a child was cut to its parent's interval
	FlagOutside                         // a child lay wholly outside its parent and was dropped with its subtree
	FlagNegative                        // a span ends before it starts
	FlagAsyncTail                       // work went on after the root had ended
	FlagDetached                        // a messaging subtree was cut off
	FlagTooLong                         // a root's duration is trace.MaxDuration or more
)

// Node is one prepared span: duplicates removed, parents resolved, skew corrected, clamped.
type Node struct {
	ID     trace.SpanID // as sent, except the server half of a shared ID, which gets one derived from it
	Span   int32        // index in the trace's Spans
	Parent int32        // index of the parent's node; -1 for a root
	// Anchor is the nearest baseline node at or above this one: the node itself if it is baseline; -1 for a switched-on span
	// without a baseline ancestor.
	Anchor int32
	// Root is the index in Path.Roots of the root that the node belongs to; -1 if it was dropped (outside its parent).
	Root       int32
	Start, End trace.Nanos // Start <= End
	// Context is the calling context over baseline ancestors only, so that it is the same whatever is switched on; for a
	// switched-on span that of its Anchor.
	Context trace.Context
	// Full is the calling context over all ancestors that are present.
	Full trace.Context
}

// Section is a half-open interval [Start, End) of a critical path that belongs to one span, between two of its critical
// children. It is never empty.
type Section struct {
	Node          int32 // the span whose own time this is
	Before, After int32 // nodes of the critical children before and after; -1 at the span's start or end
	Within        int32 // for a refined section the index of the baseline section it lies in; else -1
	Start, End    trace.Nanos
}

// Root is one critical path: that of a root span.
type Root struct {
	Node int32
	// Sections is the critical path over baseline spans in time order. They leave no gap and add up to the root's
	// duration.
	Sections []Section
	// Refined is the same path with switched-on spans: its sections partition those of Sections. It is empty where the
	// root has no switched-on span.
	Refined []Section
	// AsyncTail is how long work below the root went on after the root's end.
	AsyncTail time.Duration
}

// Counts says how often what happened while a trace was prepared.
type Counts struct {
	Duplicates, Conflicts, Orphans, Cycles, Clamped, Outside, Negative, ZeroLength int
}

// Path is what [Extractor.Extract] finds in one trace: a critical path for each root, the primary root first.
type Path struct {
	Trace  *trace.Trace
	Flags  Flags
	Counts Counts
	Nodes  []Node // every parent before its children
	Roots  []Root
}

// Complete reports whether every span's parent arrived, or is known not to be collected. Only complete traces enter the
// statistics.
func (p *Path) Complete() bool { return p.Flags&FlagIncomplete == 0 }

// Duration returns the duration of root r.
func (p *Path) Duration(r *Root) time.Duration {
	n := &p.Nodes[r.Node]
	return n.End.Sub(n.Start)
}
