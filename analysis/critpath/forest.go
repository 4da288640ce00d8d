package critpath

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// forest links spans into trees of callers. A CONSUMER span starts a new tree if its caller is a PRODUCER span or
// belongs to another service, because the sender does not wait for it. Spans that [settling] detached start new trees,
// too.
type forest struct {
	trees      []tree  // by origin; then by their top spans: the earliest start, the latest end, the smallest ID
	firstChild []int32 // by span: its first child, or -1
	nextChild  []int32 // by span: the next child of its caller, or -1

	detached   bool // whether a span was detached from its caller
	parentless bool // whether a baseline span was sent without a parent

	components int   // number of trees with a baseline top span, not counting detached spans
	top        int32 // the top span of one of these trees
}

// tree is a tree of spans, represented by its top span.
type tree struct {
	start, end trace.Nanos // end >= start
	id         trace.SpanID
	top        int32
	from       int32 // the caller that top was detached from, or -1
	origin     Origin
}

// link builds the trees of spans from their callers. A span on a cycle of callers is in no tree, and neither are the
// spans below it. loose marks the detached spans; it may be empty.
func (f *forest) link(spans []trace.Span, caller []int32, loose []bool, ids *spanIDs) {
	f.reset(len(spans))
	for i := int32(len(spans)) - 1; i >= 0; i-- { // descending, so that children are in the order of spans
		s, c, from, origin := &spans[i], caller[i], int32(-1), Parentless
		switch {
		case c == dropped:
			continue
		case c < 0:
			if s.Tracepoint == 0 {
				f.components++
				f.top = i
				f.parentless = f.parentless || c == noParent
			}
			if c == missing {
				origin = BelowMissing
			}
		case s.Kind == trace.Consumer && (spans[c].Kind == trace.Producer || spans[c].Service != s.Service),
			len(loose) > 0 && loose[i]:
			f.detached, from, origin = true, c, Detached
		default:
			f.nextChild[i] = f.firstChild[c]
			f.firstChild[c] = i
			continue
		}
		f.trees = append(f.trees, tree{s.Start, max(s.Start, s.End), ids.id(i), i, from, origin})
	}
	slices.SortFunc(f.trees, func(a, b tree) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.start, b.start),
			cmp.Compare(b.end, a.end), cmp.Compare(a.id, b.id))
	})
}

func (f *forest) reset(spans int) {
	*f = forest{
		trees:      f.trees[:0],
		firstChild: scratch.Filled(f.firstChild, spans, -1),
		nextChild:  scratch.Sized(f.nextChild, spans),
	}
}
