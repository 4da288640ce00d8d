package compare

import "github.com/sibyl-trace/sibyl/analysis/internal/scratch"

// shapeWalk visits the sites of a window, callees first, and charges each site for its bad calls beyond the bad calls
// of its callees.
//
// A span that fails skips calls, so INTERNAL spans inside it make fewer calls. That doesn't explain why the span
// failed. We therefore charge its failures beyond the failures of the spans inside, and count the changed shapes of
// those spans as part of its failures.
type shapeWalk struct {
	*liveWindow
	sameStep, calls []float64 // bad calls and all calls by step, under all callers

	inner []innerShape
	flow  map[int32]float64 // calls of inner, by service
	moved map[int32]float64 // the part of flow that belongs to failures
}

// explained counts the bad calls at or below a site. They explain bad calls of the callers of the site.
type explained struct {
	bad     float64
	failing float64 // the part that explains failures
}

// innerShape is a changed shape of an INTERNAL span that did not fail.
type innerShape struct {
	site  int32
	shape badShape // with the calls to charge
}

// States of sites in visited.
const (
	visiting = 1
	visited  = 2
)

func newShapeWalk(c *liveWindow) *shapeWalk {
	x := c.of.index()
	w := &shapeWalk{
		liveWindow: c,
		sameStep:   make([]float64, x.steps),
		calls:      make([]float64, x.steps),
		flow:       make(map[int32]float64),
		moved:      make(map[int32]float64),
	}
	for _, i := range c.judged {
		w.sameStep[x.step[i]] += c.bad[i].total
		w.calls[x.step[i]] += c.bad[i].calls
	}
	c.below, c.visited = scratch.Sized(c.below, len(c.sites)), scratch.Filled(c.visited, len(c.sites), 0)
	return w
}

// visit charges site i and all sites below it.
func (w *shapeWalk) visit(i int32) {
	if w.visited[i] != 0 {
		return
	}
	w.visited[i] = visiting
	b, by := &w.bad[i], w.explainedAt(i)
	if b.total > 0 {
		w.charge(i, max(0, b.total-by.bad)/b.total, max(0, b.total-by.failing)/b.total)
	}
	below := explained{bad: max(b.total, by.bad)}
	below.failing = below.bad
	if w.sites[i].Inner {
		below.failing = max(b.failed, by.failing)
	}
	w.below[i], w.visited[i] = below, visited
}

// explainedAt returns the bad calls at site i that are explained by its callees.
func (w *shapeWalk) explainedAt(i int32) (by explained) {
	x := w.of.index()
	b, step := &w.bad[i], x.step[i]
	for _, k := range x.below.of(step) {
		if w.bad[k].calls == 0 {
			continue // not judged
		}
		if w.visit(k); w.visited[k] == visited {
			by.bad += w.below[k].bad
			by.failing += w.below[k].failing
		}
	}
	// The same step may have sites under other callers, and they share its callees.
	part := b.calls / w.calls[step]
	if all := w.sameStep[step]; all > 0 {
		part = b.total / all
	}
	return explained{min(by.bad*part, b.calls), min(by.failing*part, b.calls)}
}

// charge charges site i for part of its bad calls: the fraction `failed` (0–1) of those that failed, and the fraction
// `others` of the others.
func (w *shapeWalk) charge(i int32, others, failed float64) {
	p := &w.sites[i]
	for _, x := range w.bad[i].shapes {
		part := others
		if x.Failed {
			part = failed
			w.moved[p.Service] += x.calls * (failed - others)
		}
		if x.calls *= part; x.calls == 0 {
			continue
		}
		if p.Inner && !x.Failed {
			w.inner = append(w.inner, innerShape{i, x})
			w.flow[p.Service] += x.calls
			continue
		}
		w.chargeShape(i, x.Failed, x.ShowsAnswer(), x.calls/w.requests)
	}
}

// chargeInner charges the changed shapes of inner spans that are not explained by failures.
func (w *shapeWalk) chargeInner() {
	for _, x := range w.inner {
		service := w.sites[x.site].Service
		part := max(0, 1-w.moved[service]/w.flow[service])
		if part > 0 {
			w.chargeShape(x.site, false, x.shape.ShowsAnswer(), x.shape.calls*part/w.requests)
		}
	}
}
