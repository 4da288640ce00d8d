package baselinediff

import (
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// pathReader reads from a path the time that each of its spans, and each border, spends on it.
type pathReader struct {
	nanos   []int64 // by node: own time
	borders []int64 // by node: time on the wire, for nodes that cross
	ops     []trace.Op
}

// measure fills r.nanos and r.borders.
func (r *pathReader) measure(p *critpath.Path) {
	r.nanos = scratch.Filled(r.nanos, len(p.Nodes), 0)
	r.borders = scratch.Filled(r.borders, len(p.Nodes), 0)
	for i := range p.Roots {
		for _, s := range p.Roots[i].Sections {
			r.share(p, &s)
		}
		for _, v := range p.Roots[i].Overlaps {
			r.nanos[v.Node] -= int64(v.By)
		}
	}
}

// round rounds all times to multiples of [timeUnit].
func (r *pathReader) round() {
	for _, times := range [][]int64{r.nanos, r.borders} {
		for i, x := range times {
			if x != 0 {
				times[i] = (x + timeUnit/2) / timeUnit * timeUnit
			}
		}
	}
}

// share adds the time of a section to its span or to borders. Time next to a call of another service without a CLIENT
// span cannot be distinguished from the time of that call, so it belongs to the border. Between two such calls each
// gets half.
func (r *pathReader) share(p *critpath.Path, s *critpath.Section) {
	d := int64(s.End - s.Start)
	before, after := s.Before >= 0 && crosses(p, s.Before), s.After >= 0 && crosses(p, s.After)
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

// crosses reports whether node i is called by a span of another service that is not a CLIENT span.
func crosses(p *critpath.Path, i int32) bool {
	up := p.Caller(i)
	if up < 0 {
		return false
	}
	caller := p.Span(up)
	return caller.Kind != trace.Client && caller.Service != p.Span(i).Service
}

// Shapes of calls that made no calls.
const (
	leaf       uint64 = 1
	failedLeaf uint64 = 2
)

// shape returns the shape of node i, a hash of the operations it calls, the order of magnitude of their counts, and
// whether it failed.
func (r *pathReader) shape(p *critpath.Path, i int32, failed bool) uint64 {
	first, last := p.Children(i)
	r.ops = r.ops[:0]
	for k := first; k < last; k++ {
		if p.Nodes[k].Anchor == k {
			r.ops = append(r.ops, p.Nodes[k].Step)
		}
	}
	slices.Sort(r.ops)
	h := leaf
	if failed {
		h = failedLeaf
	}
	for i := 0; i < len(r.ops); {
		first := i
		for i < len(r.ops) && r.ops[i] == r.ops[first] {
			i++
		}
		h = trace.Mix(trace.Mix(h, uint64(r.ops[first])), uint64(bits.Len(uint(i-first))))
	}
	return h
}
