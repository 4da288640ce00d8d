package compare

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// recordedWindow is a set of traces of a recording, to be compared with others.
type recordedWindow struct {
	*ledger
	h       *Normal
	traces  []recordedTrace
	surplus map[siteShape]float64 // fraction (above 0) of the spans with this site and shape that is beyond the history

	leaf, failedLeaf int32     // numbers of shapes
	site             siteCalls // the current one
	means            []float64
	seen             []int32   // by number of the shape: scratch
	all              []callSum // by number of the site
	order            []int32
}

// siteShape identifies a shape at a site.
type siteShape struct{ site, shape int32 }

// siteCalls holds the calls of the window at a site, in order of time.
type siteCalls struct {
	site   int32
	shapes []int32
	nanos  []int64 // own times
	onPath int64   // the part of their sum that is on critical paths
}

// groups groups the calls of the window by site, each group in order of time. Sites are ordered by their keys.
func (c *recordedWindow) groups() []siteCalls {
	count := make(map[int32]int)
	for _, t := range c.traces {
		for i := range c.h.rec.Calls[t.first:t.last] {
			count[c.h.rec.Calls[t.first+i].Site]++
		}
	}
	delete(count, history.Overflow)
	sites := c.h.rec.Sites
	order := sorting.Sorted(maps.Keys(count), func(a, b int32) int {
		return sites[a].SiteKey.Compare(sites[b].SiteKey)
	})
	groups := make([]siteCalls, len(order))
	at := make(map[int32]*siteCalls, len(order))
	for i, p := range order {
		groups[i] = siteCalls{p, make([]int32, 0, count[p]), make([]int64, 0, count[p]), 0}
		at[p] = &groups[i]
	}
	for _, t := range c.traces {
		for i := range c.h.rec.Calls[t.first:t.last] {
			x := &c.h.rec.Calls[t.first+i]
			if g := at[x.Site]; g != nil {
				g.shapes, g.nanos = append(g.shapes, x.shape), append(g.nanos, x.Own())
				g.onPath += x.Nanos
			}
		}
	}
	return groups
}

// each judges the sites with calls in the window, ordered by their keys.
func (c *recordedWindow) each(judge func(number int32)) {
	for _, g := range c.groups() {
		c.site = g
		judge(g.site)
	}
}

// sample returns the calls at site `number`, which must be the current one, or nil if the history has too few.
func (c *recordedWindow) sample(number int32) *sample {
	g, before := &c.site, c.h.series[number]
	if before.len() < history.MinHistory {
		return nil
	}
	past, n := c.h.nanos[before.first:before.last], float64(len(g.nanos))
	c.means = pieceMeans(c.means[:0], past, len(g.nanos))
	x := &sample{time: siteTime{
		number: number,
		calls:  n,
		onPath: 1,
		mean:   meanOf(g.nanos),
		usual:  meanOf(past),
		means:  c.means,
	}}
	if own := x.time.mean * n; own > 0 {
		x.time.onPath = float64(g.onPath) / own
	}
	known, total := c.number(g, before)
	b := piecesOf(before.len(), len(g.shapes))
	shares, unique := c.shares(before, b, known, total)
	x.unique, x.shapes = unique, make([]shapeSample, known)
	for _, s := range g.shapes {
		x.shapes[c.seen[s]-1].calls++
	}
	novel := 0.0
	for i, s := range c.order[:known] {
		shape := &x.shapes[i]
		shape.share = shape.calls / n
		shape.leaf = s != history.Overflow && (s == c.leaf || s == c.failedLeaf)
		shape.failed = c.h.rec.shapeFailed[s]
		if total[i] > 0 {
			shape.pieces = shares[i*b.number : (i+1)*b.number]
		} else {
			novel += shape.calls
		}
	}
	x.novel = novel / n
	for _, s := range c.order {
		c.seen[s] = 0
	}
	return x
}

// changed records the surplus of the shapes at site `number`, which must be the current one.
func (c *recordedWindow) changed(number int32, _ *sample, all []surplus, _ float64) {
	for i, x := range all {
		if s := c.order[i]; x.part > 0 && s != history.Overflow {
			c.surplus[siteShape{number, s}] = x.part
		}
	}
}

// meanOf returns the mean of nanos, which must not be empty. The sum is exact for up to 2^16 times of nearly 2^47 ns,
// or for more times if they are shorter.
func meanOf(nanos []int64) float64 {
	sum := int64(0)
	for _, x := range nanos {
		sum += x
	}
	return float64(sum) / float64(len(nanos))
}

// number numbers the shapes at a site from 1, in c.seen, and lists them in c.order: first the `known` shapes of the
// window, then the other shapes of the history. total[i] is the number of occurrences of c.order[i] in the history.
func (c *recordedWindow) number(g *siteCalls, before series) (known int, total []int) {
	c.order = c.order[:0]
	add := func(s int32) {
		if c.seen[s] == 0 {
			c.order = append(c.order, s)
			c.seen[s] = int32(len(c.order))
		}
	}
	for _, s := range g.shapes {
		add(s)
	}
	known = len(c.order)
	for _, s := range c.h.shape[before.first:before.last] {
		add(s)
	}
	total = make([]int, len(c.order))
	for _, s := range c.h.shape[before.first:before.last] {
		total[c.seen[s]-1]++
	}
	return known, total
}

// shares returns the share of each of the known shapes in each piece, at index shape·pieces + piece. It also returns,
// for each piece, the share of its shapes that occur in no other piece.
func (c *recordedWindow) shares(before series, b pieces, known int, total []int) (shares, unique []float64) {
	shares = make([]float64, known*b.number)
	unique = make([]float64, b.number)
	count := make([]int, len(total))
	for i := range b.number {
		from, to := b.bounds(i)
		shapes := c.h.shape[before.first+from : before.first+to]
		for _, s := range shapes {
			count[c.seen[s]-1]++
		}
		n := float64(to - from)
		for _, s := range shapes {
			k := c.seen[s] - 1
			if count[k] == 0 {
				continue // a repeated shape
			}
			if int(k) < known {
				shares[int(k)*b.number+i] = float64(count[k]) / n
			}
			if count[k] == total[k] {
				unique[i] += float64(count[k]) / n
			}
			count[k] = 0
		}
	}
	return shares, unique
}

// chargeShapes charges the surplus of shapes, the deepest spans first. A caller is charged only for its surplus beyond
// the surplus of its callees.
func (c *recordedWindow) chargeShapes() {
	if len(c.surplus) == 0 {
		return
	}
	var explained []float64
	for _, t := range c.traces {
		calls := c.h.rec.Calls[t.first:t.last]
		explained = scratch.Filled(explained, len(calls), 0)
		for i, x := range slices.Backward(calls) {
			surplus := c.surplus[siteShape{x.Site, x.shape}]
			if surplus > explained[i] && !c.insideFailure(calls, i) {
				c.chargeShape(&x, (surplus-explained[i])/c.requests)
				explained[i] = surplus
			}
			if x.Parent >= 0 {
				explained[x.Parent] = max(explained[x.Parent], explained[i])
			}
		}
	}
}

// insideFailure reports whether call i is an INTERNAL span that did not fail, inside a span whose failure is beyond the
// history. Its changed shape is then part of that failure, as in [shapeWalk].
func (c *recordedWindow) insideFailure(calls []Call, i int) bool {
	for x := &calls[i]; !c.h.rec.shapeFailed[x.shape] && c.h.rec.Sites[x.Site].Inner && x.Parent >= 0; {
		x = &calls[x.Parent]
		if c.h.rec.shapeFailed[x.shape] {
			return c.surplus[siteShape{x.Site, x.shape}] > 0
		}
	}
	return false
}

// chargeShape charges part of a request to a call.
func (c *recordedWindow) chargeShape(x *Call, part float64) {
	answered := x.shape != c.h.rec.shapeNumbers[callgraph.FailedLeaf]
	if c.h.rec.Sites[x.Site].Client {
		answered = x.Callee != 0 && c.h.rec.Callees[x.Callee].Op != 0
	}
	c.ledger.chargeShape(x.Site, c.h.rec.shapeFailed[x.shape], answered, part)
}

// sumsOf sums up the calls of traces by number of the site.
func sumsOf(r *Recording, traces []recordedTrace) []callSum {
	sums := make([]callSum, len(r.Sites))
	for c := range r.all(traces) {
		sums[c.Site].add(callSum{1, float64(c.Nanos)})
	}
	return sums
}

// counts returns the numbers of calls at site `number` in the window and in the history.
func (c *recordedWindow) counts(number int32) (now, before float64) {
	return c.all[number].calls, c.h.sums[number].calls
}

// sums returns the calls at site `number` in the window and in the history.
func (c *recordedWindow) sums(number int32) (now, before callSum) {
	return c.all[number], c.h.sums[number]
}

// perCall returns the number of calls at a site per call of its caller's step: in the window, in the history, and in
// each piece of the history. It returns 0, 0 and nil if the step has too few calls in the history, or no calls in the
// window.
func (c *recordedWindow) perCall(number int32) (now, usual float64, pieces []float64) {
	before, within := c.h.rec.perCaller(c.h.list, number), c.h.rec.perCaller(c.traces, number)
	if len(before) < history.MinHistory || len(within) == 0 {
		return 0, 0, nil
	}
	return meanOf(within), meanOf(before), pieceMeans(nil, before, len(within))
}

// perCaller returns the number of calls at a site for each call of its caller's step, in order of time.
func (r *Recording) perCaller(traces []recordedTrace, number int32) (calls []int64) {
	caller := r.Sites[number].Parent
	var at []int // by call of the trace: index of a call of the step
	for _, t := range traces {
		at = scratch.Sized(at, t.last-t.first)
		for i, x := range r.Calls[t.first:t.last] {
			if s := &r.Sites[x.Site]; s.Op == caller && !s.Border {
				at[i] = len(calls)
				calls = append(calls, 0)
			}
			if x.Site != number {
				continue
			}
			if r.Sites[number].Border {
				x = r.Calls[t.first+i-1] // the call that it belongs to
			}
			if x.Parent >= 0 {
				calls[at[x.Parent]]++
			}
		}
	}
	return calls
}
