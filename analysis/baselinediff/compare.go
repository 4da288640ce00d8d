// Package baselinediff ranks the services of an application by what they cost more in a window of time than they used to: recorded traces →
// [Recording] → [Normal], its history → [Suspect]s. It is told nothing but when. It is pure, like package analysis, and draws on critical
// paths alone.
package baselinediff

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Suspect is a service with what it costs more in a window than it used to.
type Suspect struct {
	Service trace.Symbol
	// Score is the equivalent of requests lost per request: critical-path time beyond what pieces of the history show, in mean
	// durations of normal requests, plus the fraction of requests whose shape broke there, beyond what pieces of the history
	// show. 0: nothing but noise.
	Score float64
	// Soft orders what has no score: how far times are above their medians, in distances of median and fence.
	Soft float64
	// The parts of Score. Own: time spent in the service. In, Out: time by which it is late to all of its callers, with all of its
	// callees. Shape: requests. Rest: time on the wire to it that nothing explains; for a service that emits no spans, time that
	// is its callers' own as well: another explanation of the same, not one more loss.
	Own, In, Out, Shape, Rest float64
	// Operations of the service that carry evidence, most first.
	Operations []SuspectOperation
}

// SuspectOperation is what one operation contributes.
type SuspectOperation struct {
	Op    trace.Op
	Score float64 // as Suspect.Score; may exceed it, as it counts wire times that others explain
}

// Compare ranks all services by what they cost more in the window than in h: Score, then Soft, then name. It is empty if no
// trace begins in the window. It is told nothing but when; the window should not overlap with h.
//
// Traces are compared site by site (what is called by whom), as follows.
//
//  1. Slow. The mean own time in the window is compared with the means of pieces of the history that hold as many
//     occurrences, see [pieces]. What is above their fence is the excess: less than the whole change, but no noise. Own time is
//     the service's own. But that of a CLIENT span is on the wire to its callee; and so is, where a call has no CLIENT span, the
//     caller's time right before and after it, see [Recording.share].
//  2. Shifted. The share of each shape (which operations a span called and about how often, whether it failed) is compared in
//     the same way; all shapes that the history does not hold are one. Only what becomes more frequent counts: where something
//     vanishes, another shape appears. Of the spans of a trace with such a shape the deepest is charged, as a failure below is
//     reason enough for those above. A CLIENT span without an answer is charged to who should have given it.
//  3. Wire times are explained by services, see [wires].
//
// It takes time linear in the number of spans of the window, and of the history at the sites where they are.
func (h *Normal) Compare(window Interval) []Suspect {
	traces := h.rec.within(window)
	if len(traces) == 0 {
		return nil
	}
	c := comparison{
		h: h, traces: traces, evidence: make([]evidence, len(h.rec.names)), ops: make(map[callee]float64), late: make(map[callee]float64),
		wire: make(wires), bad: make(map[badKey]float64), seen: make([]int32, len(h.rec.shapes)+2),
	}
	for _, g := range c.groups() {
		c.slow(&g)
		c.shifted(&g)
	}
	c.chargeShapes()
	return c.rank()
}

// comparison is one run of Compare.
type comparison struct {
	h        *Normal
	traces   []recorded
	evidence []evidence         // by number of the service
	ops      map[callee]float64 // what speaks against each operation
	late     map[callee]float64 // excess of the calls that it makes, by which it may be what is late
	wire     wires
	bad      map[badKey]float64

	values []float64
	seen   []int32 // by number of the shape: scratch
	order  []int32
}

// evidence is what speaks against a service.
type evidence struct{ own, shape, soft float64 }

// badKey is a shape at a site.
type badKey struct{ site, shape int32 }

// visits is what the window holds at a site.
type visits struct {
	site   int32
	shapes []int32
	nanos  []int64
}

// groups sorts the calls of the window by site, those of each in the order of time. Places are in the order of their keys.
func (c *comparison) groups() []visits {
	count := make(map[int32]int)
	for _, t := range c.traces {
		for i := range c.h.rec.calls[t.first:t.last] {
			count[c.h.rec.calls[t.first+i].site]++
		}
	}
	delete(count, nowhere)
	of := c.h.rec.of
	sites := slices.SortedFunc(maps.Keys(count), func(a, b int32) int {
		return of[a].siteKey.compare(of[b].siteKey)
	})
	groups := make([]visits, len(sites))
	at := make(map[int32]*visits, len(sites))
	for i, p := range sites {
		groups[i] = visits{p, make([]int32, 0, count[p]), make([]int64, 0, count[p])}
		at[p] = &groups[i]
	}
	for _, t := range c.traces {
		for i := range c.h.rec.calls[t.first:t.last] {
			x := &c.h.rec.calls[t.first+i]
			if g := at[x.site]; g != nil {
				g.shapes, g.nanos = append(g.shapes, x.shape), append(g.nanos, x.nanos)
			}
		}
	}
	return groups
}

// requests returns the number of requests in the window.
func (c *comparison) requests() float64 { return float64(len(c.traces)) }

// slow charges the excess of own time at a site.
func (c *comparison) slow(g *visits) {
	span := c.h.span[g.site]
	if span.len() < leastHistory {
		return
	}
	n := float64(len(g.nanos))
	mean := meanOf(g.nanos)
	median, far := fence(c.pieceMeans(span, len(g.nanos)))
	excess := max(0, mean-far) * n / c.requests() / c.h.duration
	p := &c.h.rec.of[g.site]
	suspect := callee{p.service, p.op}
	if called := c.h.callee[g.site]; called.service != 0 {
		suspect = called
	}
	if e := &c.evidence[suspect.service]; mean > median {
		e.soft = max(e.soft, (mean-median)/max(far-median, 1))
	}
	c.ops[suspect] += excess
	if suspect.service != p.service {
		c.wire.add(wire{p.service, suspect.service, p.border}, n/c.requests(), excess)
		c.late[callee{p.service, cmp.Or(p.parent, p.op)}] += excess
	} else {
		c.evidence[suspect.service].own += excess
	}
}

// pieceMeans returns the means of the own times in the pieces of a series. They are valid until the next call.
func (c *comparison) pieceMeans(s series, window int) []float64 {
	b := piecesOf(s.len(), window)
	c.values = c.values[:0]
	for i := range b.number {
		from, to := b.bounds(i)
		c.values = append(c.values, meanOf(c.h.nanos[s.first+from:s.first+to]))
	}
	return c.values
}

// meanOf returns the mean. The sum is exact: at most 2^16 times of nearly 2^47 ns, or more shorter ones.
func meanOf(nanos []int64) float64 {
	sum := int64(0)
	for _, x := range nanos {
		sum += x
	}
	return float64(sum) / float64(len(nanos))
}

// shifted finds the shapes of a site that are more frequent in the window than in the history. It sets c.bad of each to the
// probability that a span with that shape in the window is one of those too many.
func (c *comparison) shifted(g *visits) {
	span := c.h.span[g.site]
	if span.len() < leastHistory {
		return
	}
	known, total := c.number(g, span)
	b := piecesOf(span.len(), len(g.shapes))
	shares, alone := c.shares(span, b, known, total)
	n := float64(len(g.shapes))
	novel := 0.0
	inWindow := make([]float64, known)
	for _, s := range g.shapes {
		if i := c.seen[s]; i > 0 && int(i) <= known && total[i-1] > 0 {
			inWindow[i-1]++
		} else {
			novel++
		}
	}
	badNovel := 0.0
	if novel > 0 {
		_, far := fence(alone)
		badNovel = max(0, novel/n-far) * n / novel
	}
	for i, s := range c.order[:known] {
		bad := badNovel
		if total[i] > 0 {
			_, far := fence(shares[i*b.number : (i+1)*b.number])
			bad = max(0, inWindow[i]/n-far) * n / inWindow[i]
		}
		if bad > 0 && s != nowhere {
			c.bad[badKey{g.site, s}] = bad
		}
	}
	for _, s := range c.order {
		c.seen[s] = 0
	}
}

// number numbers the shapes at a site from 1, in c.seen, and lists them in c.order, first those that the window holds, known
// of them. It returns how often the history holds each.
func (c *comparison) number(g *visits, span series) (known int, total []int) {
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
	for _, s := range c.h.shape[span.first:span.last] {
		add(s)
	}
	total = make([]int, len(c.order))
	for _, s := range c.h.shape[span.first:span.last] {
		total[c.seen[s]-1]++
	}
	return known, total
}

// shares returns, for each of the known shapes, its share in each piece; and for each piece the share of shapes that are in no
// other: what was novel then.
func (c *comparison) shares(span series, b pieces, known int, total []int) (shares, alone []float64) {
	shares = make([]float64, known*b.number)
	alone = make([]float64, b.number)
	count := make([]int, len(total))
	for i := range b.number {
		from, to := b.bounds(i)
		shapes := c.h.shape[span.first+from : span.first+to]
		for _, s := range shapes {
			count[c.seen[s]-1]++
		}
		n := float64(to - from)
		for _, s := range shapes {
			k := c.seen[s] - 1
			if count[k] == 0 {
				continue // counted before
			}
			if int(k) < known {
				shares[int(k)*b.number+i] = float64(count[k]) / n
			}
			if count[k] == total[k] {
				alone[i] += float64(count[k]) / n
			}
			count[k] = 0
		}
	}
	return shares, alone
}

// chargeShapes charges the shapes that are too frequent, the deepest first.
func (c *comparison) chargeShapes() {
	if len(c.bad) == 0 {
		return
	}
	var explained []float64
	for _, t := range c.traces {
		calls := c.h.rec.calls[t.first:t.last]
		explained = filled(explained, len(calls), 0)
		for i, x := range slices.Backward(calls) {
			if bad := c.bad[badKey{x.site, x.shape}]; bad > explained[i] {
				c.chargeShape(&x, (bad-explained[i])/c.requests())
				explained[i] = bad
			}
			if x.parent >= 0 {
				explained[x.parent] = max(explained[x.parent], explained[i])
			}
		}
	}
}

// chargeShape charges a part of a request. A CLIENT span without an answer is charged to the callee.
func (c *comparison) chargeShape(x *call, part float64) {
	p := &c.h.rec.of[x.site]
	suspect := callee{p.service, p.op}
	unanswered := x.callee == 0 || c.h.rec.called[x.callee].op == 0
	if called := c.h.callee[x.site]; unanswered && called.service != 0 && !c.h.opaque[called.service] {
		suspect = called
	}
	c.evidence[suspect.service].shape += part
	c.ops[suspect] += part
}

// rank explains the wire times and orders the services.
func (c *comparison) rank() []Suspect {
	numbers := c.h.rec.byName()
	services := make([]service, len(numbers))
	index := make(map[int32]int, len(numbers))
	for i, number := range numbers {
		e := &c.evidence[number]
		services[i].opaque = c.h.opaque[number]
		services[i].Suspect = Suspect{
			Service: c.h.rec.names[number], Soft: e.soft, Own: e.own, Shape: e.shape,
		}
		index[number] = i
	}
	c.wire.settle(services, index)
	c.operations(services, index)
	slices.SortStableFunc(services, func(a, b service) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), trace.CompareBools(a.opaque, b.opaque), cmp.Compare(b.Soft, a.Soft))
	})
	suspects := make([]Suspect, 0, len(services))
	for i := range services {
		if s := &services[i]; !s.opaque || s.Score > 0 {
			suspects = append(suspects, s.Suspect)
		}
	}
	return suspects
}

// byName returns the numbers of all services in the order of their names.
func (r *Recording) byName() []int32 {
	numbers := make([]int32, 0, len(r.names))
	for i := 1; i < len(r.names); i++ {
		numbers = append(numbers, int32(i))
	}
	slices.SortFunc(numbers, func(a, b int32) int {
		return cmp.Or(cmp.Compare(r.table.Text(r.names[a]), r.table.Text(r.names[b])), cmp.Compare(r.names[a], r.names[b]))
	})
	return numbers
}

// operations fills in the operations of services that carry evidence. Of what a service explains by being late with its calls,
// each of its operations gets as much as it has of their excess.
func (c *comparison) operations(services []service, index map[int32]int) {
	total := make(map[int32]float64)
	for _, k := range slices.SortedFunc(maps.Keys(c.late), callee.compare) {
		total[k.service] += c.late[k]
	}
	for k, excess := range c.late {
		if out := services[index[k.service]].Out; out > 0 && excess > 0 {
			c.ops[k] += out * excess / total[k.service]
		}
	}
	for k, score := range c.ops {
		if s := &services[index[k.service]]; score > 0 {
			s.Operations = append(s.Operations, SuspectOperation{k.op, score})
		}
	}
	for i := range services {
		slices.SortFunc(services[i].Operations, func(a, b SuspectOperation) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Op, b.Op))
		})
	}
}
