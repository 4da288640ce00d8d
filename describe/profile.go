package describe

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Profile is the critical path of a request type, aggregated by calling context: a tree in pre-order; the subtree of
// frame i is Frames[i:Frames[i].End]. Frame 0 is the entry.
type Profile struct {
	Name   string // name of the request type
	Count  uint64 // number of requests
	Frames []Frame
}

// Frame is one calling context of a profile.
type Frame struct {
	Name     string
	Parent   int     // -1 for the entry
	Depth    int     // 0 for the entry
	End      int     // index after the last frame below this one
	Own      float64 // ns per request in the context itself
	Total    float64 // ns per request, including the frames below
	Variance float64 // share of the variance that is due to its own time; NaN if unknown or if it has no own time
	key      trace.Context
	children []int
}

// NewProfile returns the profile of a request type.
func NewProfile(n *Names, s *group.Summary) Profile {
	b := builder{names: n, index: make(map[trace.Context]int)}
	name := n.RequestType(s.ID, s.Entry)
	b.add(-1, name, trace.Context(0).Child(s.Entry))
	for i := range s.Edges {
		b.edge(&s.Edges[i])
	}
	return Profile{Name: name, Count: s.Count, Frames: b.preorder()}
}

// builder builds the tree of a profile. Its frames are in order of first use, so parents come before their children.
type builder struct {
	names  *Names
	frames []Frame
	index  map[trace.Context]int
}

func (b *builder) add(parent int, name string, key trace.Context) int {
	i := len(b.frames)
	b.frames = append(b.frames, Frame{
		Name:     name,
		Parent:   parent,
		Variance: math.NaN(),
		key:      key,
	})
	b.index[key] = i
	if parent >= 0 {
		b.frames[parent].children = append(b.frames[parent].children, i)
	}
	return i
}

// edge adds the time of one edge. Time on the wire and the remainder get frames of their own.
func (b *builder) edge(e *group.EdgeShare) {
	var at int
	switch {
	case e.Edge == 0:
		at = b.add(0, OtherPlaces, 0)
	case b.names.onWire(b.names.Last(e.Context)):
		// not a context, so distinct from the keys of other frames
		at = b.add(b.context(e.Context), b.names.Edge(e), trace.Context(trace.EdgeOf(e.Context, wireFrame, wireFrame)))
	default:
		at = b.context(e.Context)
	}
	f := &b.frames[at]
	f.Own, f.Variance = e.Mean, e.ShareVariance
}

// context returns the frame of c, creating the frame and its ancestors on first use. A context missing from the
// dictionary becomes a child of the entry.
func (b *builder) context(c trace.Context) int {
	var missing []trace.Context
	at, known := b.index[c]
	for !known {
		missing = append(missing, c)
		if c = b.names.Table.Context(c).Parent; c == 0 || len(missing) > maxDepth {
			at = 0
			break
		}
		at, known = b.index[c]
	}
	for _, m := range slices.Backward(missing) {
		at = b.add(at, b.names.Op(b.names.Last(m)), m)
	}
	return at
}

// wireFrame takes the place of the target in the keys of frames for time on the wire.
const wireFrame = 1

// maxDepth limits the depth of a profile.
const maxDepth = 1 << 12

// preorder computes the total times and returns the frames depth first, with siblings sorted by decreasing total time,
// then by name.
func (b *builder) preorder() []Frame {
	for i := len(b.frames) - 1; i >= 0; i-- { // children come after their parents
		f := &b.frames[i]
		f.Total += f.Own
		if f.Parent >= 0 {
			b.frames[f.Parent].Total += f.Total
		}
	}
	out := make([]Frame, 0, len(b.frames))
	type visit struct{ old, parent int }
	for stack := []visit{{0, -1}}; len(stack) > 0; {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		f := b.frames[v.old]
		f.Parent = v.parent
		if v.parent >= 0 {
			f.Depth = out[v.parent].Depth + 1
		}
		b.sortChildren(f.children)
		for _, child := range slices.Backward(f.children) {
			stack = append(stack, visit{child, len(out)})
		}
		f.children = nil
		out = append(out, f)
	}
	for i := len(out) - 1; i >= 0; i-- {
		out[i].End = max(out[i].End, i+1)
		if p := out[i].Parent; p >= 0 {
			out[p].End = max(out[p].End, out[i].End)
		}
	}
	return out
}

func (b *builder) sortChildren(children []int) {
	sorting.Slice(children, func(i, j int) int {
		f, g := &b.frames[i], &b.frames[j]
		return cmp.Or(cmp.Compare(g.Total, f.Total), cmp.Compare(f.Name, g.Name), cmp.Compare(f.key, g.key))
	})
}

// Stack returns the names of the frames from the entry down to frame i.
func (p *Profile) Stack(i int) []string {
	path := make([]string, p.Frames[i].Depth+1)
	for ; i >= 0; i = p.Frames[i].Parent {
		path[p.Frames[i].Depth] = p.Frames[i].Name
	}
	return path
}

// Nanos returns the own time of frame i, summed over all requests.
func (p *Profile) Nanos(i int) int64 {
	return int64(math.Round(p.Frames[i].Own * float64(p.Count)))
}
