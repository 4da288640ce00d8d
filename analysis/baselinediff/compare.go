// Package baselinediff ranks the services of an application by their additional cost in some traces, the window, over
// a history: traces → [Recording] → [Traces] → [Normal], the history → [Suspect]s. The choice of the traces is its only
// hint. A single trace has no such variation to judge by: [Profile] summarizes normal traces, and [Profile.Explain]
// ranks the calls of a trace that differ from them. The package is pure, like package analysis, and uses critical paths
// only.
package baselinediff

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Suspect is a service with its additional cost in a window.
type Suspect struct {
	Service trace.Symbol
	// Score is the equivalent of requests lost per request: critical-path time above the variation of the history, in
	// mean durations of normal requests, plus the fraction of requests with a changed shape above the variation of the
	// history. 0 means noise only.
	Score float64
	// Soft orders suspects without a score. It is the largest distance, over the sites charged to it, of the mean in
	// the window above the median of the history, in units of the distance between median and fence.
	Soft float64
	// The parts of Score. Own: time spent in the service. In, Out: time by which it is late for all of its callers, or
	// with all of its callees. Errors, Unanswered, Shape: requests with a changed shape, because a span failed, because
	// a call to the service was not answered, or for another reason. Silent: requests that came steadily before, and do
	// not come any more; only in histories of a running service. Rest: unexplained time on the wire to the service.
	// If the service emits no spans, Rest is also counted as Own of its callers: an alternative explanation, not an
	// additional loss.
	Own, In, Out, Errors, Unanswered, Silent, Shape, Rest float64
	// Calls is the number of calls to the service by others per request of the window, at most 1. It is 1 for a service
	// that no other one calls.
	Calls float64
	// Failures is the number of requests of the window in Errors and Unanswered.
	Failures float64
	// Opaque marks a service that emits no spans: CLIENT spans name it.
	Opaque bool
	// Shared has the parts of Score that may be those of a neighbour, in the order of their names: they come from calls
	// between both services, or from own time and changed shapes of operations that call it. The parts of several
	// neighbours overlap.
	Shared []SharedPart
	// Operations are those with evidence, in descending order of Score.
	Operations []SuspectOperation
	// Whole has the number of all calls of the service and the growth of their typical own time, each relative to the
	// calls at its site. Only comparisons of a running service, other than Plain, set it.
	Whole SuspectOperation
	// Young tells that most calls in Whole are at sites that have been known for less than a day.
	Young bool
	// Instances are the instances, hosts, zones and versions that carry most of the cost, in descending order of Part.
	// Only histories of a running service tell instances apart.
	Instances []InstancePart
}

// AddedTime returns the part of the score that is time.
func (s *Suspect) AddedTime() float64 { return s.Own + s.In + s.Out + s.Rest }

// AddedTime returns the time that all suspects add, of which the first one adds a part. The Rest of a service that
// emits no spans is also the Own of its callers.
func AddedTime(suspects []Suspect) (total float64) {
	for i := range suspects {
		x := &suspects[i]
		total += x.AddedTime()
		if x.Opaque {
			total -= x.Rest
		}
	}
	if len(suspects) > 0 {
		total = max(total, suspects[0].AddedTime())
	}
	return total
}

// LostShare returns the share of the first suspect in the time that all of them add, 0–1; 0 if none adds time.
func LostShare(suspects []Suspect) float64 {
	total := AddedTime(suspects)
	if total <= 0 {
		return 0
	}
	return min(1, suspects[0].AddedTime()/total)
}

// SharedPart is the part of the score of a service that it shares with a neighbour in the call graph.
type SharedPart struct {
	Service trace.Symbol
	Score   float64
}

// InstancePart is the part of the additional cost of a service that calls with one value of an attribute carry, in
// [0, 1].
type InstancePart struct {
	Key, Value trace.Symbol
	Calls      uint64 // in the window
	Part       float64
	Of         int // number of values of Key with calls in the window
}

// SuspectOperation is an operation of a suspect, with its calls by themselves: unlike Score, they do not depend on its
// part in all requests.
type SuspectOperation struct {
	Op    trace.Op
	Score float64 // like Suspect.Score; may exceed it, because it includes wire times that other services explain
	// Calls is the number of calls in the window; 0 if the operation cannot be judged by itself, because its history is
	// too short or its evidence is time on the wire. For an operation of a service that emits no spans, they are the
	// calls to it.
	Calls float64
	// Usual and Excess are own times of a call in ns, means over sites: what the history explains at most, and what a
	// call takes beyond that; if the mean is compared, as in Plain, the mean of the history and the time added to it.
	Excess, Usual float64
	// Rise is the growth of the typical own time of the calls, in octaves: 1 is twice as long. It is 0 within the
	// variation of the history. It shows small changes of most calls earlier than Excess does.
	Rise float64
	// RiseCalls is the number of calls that show Rise, and Risen the time of a call in ns that it makes up.
	RiseCalls, Risen float64
	Failed           float64 // number of calls that failed or got no answer, above the variation of the history
}

// Compare ranks all services by their additional cost in the window relative to h: by Score, then Soft, then name. The
// result is empty if the window has no trace. The window belongs to the recording of h and should not overlap with h.
//
// Traces are compared site by site; a site is an operation together with its caller.
//
//  1. Slow. The mean own time in the window is compared with the means over pieces of the history with as many
//     occurrences, see [pieces]. The excess is the time above their fence, and above the mean of the history: less
//     than the whole change, but free of noise. Own time is charged to the service itself, except on the wire. The own
//     time of a CLIENT span is on the wire to its callee. If a call has no CLIENT span, so is the caller's time
//     immediately before and after it, see [pathReader.share].
//  2. Shifted. The shape of a span is the set of operations it called, about how often, and whether it failed. The
//     share of each shape is compared in the same way; all shapes absent from the history count as one. Only shapes
//     that become more frequent count: if one vanishes, another appears. In a trace the deepest span with such a shape
//     is charged, because a failure below is a sufficient cause for its callers. A CLIENT span without an answer is
//     charged to the callee, as is a span without CLIENT spans that fails before its only callee has a span. For
//     CLIENT spans that fail although the callee does not see [ledger.chargeFailures].
//  3. Wire times are attributed to services, see [wires].
//
// It takes time linear in the number of spans of the window, and of the history at the same sites.
func (h *Normal) Compare(window Traces) []Suspect {
	traces := window.list
	if len(traces) == 0 {
		return nil
	}
	g := graph{table: h.rec.table, sites: h.rec.sites, names: h.rec.names, opaque: h.opaque, callee: h.callee}
	g.setBehind(func(i int32) uint64 { return uint64(h.series[i].len()) })
	c := comparison{
		h: h, traces: traces, ledger: newLedger(g, float64(len(traces)), h.duration, fence),
		surplus: make(map[siteShape]float64), seen: make([]int32, len(h.rec.shapeNumbers)+2),
	}
	for _, g := range c.groups() {
		c.shifted(&g)
		c.slow(&g)
	}
	c.chargeShapes()
	return c.rank()
}

// comparison is the state of one call of Compare.
type comparison struct {
	*ledger
	h       *Normal
	traces  []recordedTrace
	surplus map[siteShape]float64 // probability that a span of this site and shape is in excess of the history; above 0

	values []float64
	seen   []int32 // by number of the shape: scratch
	order  []int32
}

// siteShape is a shape at a site.
type siteShape struct{ site, shape int32 }

// siteCalls holds the calls of the window at a site, in the order of time.
type siteCalls struct {
	site   int32
	shapes []int32
	nanos  []int64
}

// groups groups the calls of the window by site, each group in the order of time. Sites are in the order of their keys.
func (c *comparison) groups() []siteCalls {
	count := make(map[int32]int)
	for _, t := range c.traces {
		for i := range c.h.rec.calls[t.first:t.last] {
			count[c.h.rec.calls[t.first+i].site]++
		}
	}
	delete(count, overflow)
	sites := c.h.rec.sites
	order := slices.SortedFunc(maps.Keys(count), func(a, b int32) int {
		return sites[a].siteKey.compare(sites[b].siteKey)
	})
	groups := make([]siteCalls, len(order))
	at := make(map[int32]*siteCalls, len(order))
	for i, p := range order {
		groups[i] = siteCalls{p, make([]int32, 0, count[p]), make([]int64, 0, count[p])}
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

// slow charges the excess of own time at a site.
func (c *comparison) slow(g *siteCalls) {
	history := c.h.series[g.site]
	if history.len() < minHistory {
		return
	}
	past := c.h.nanos[history.first:history.last]
	c.values = pieceMeans(c.values[:0], past, len(g.nanos))
	leaves := false
	for _, s := range []uint64{leaf, failedLeaf} {
		leaves = leaves || c.surplus[siteShape{g.site, c.h.rec.shapeNumbers[s]}] > 0
	}
	c.chargeTime(&siteTime{
		number: g.site, calls: float64(len(g.nanos)), mean: meanOf(g.nanos), usual: meanOf(past), means: c.values, leaves: leaves,
	})
}

// meanOf returns the mean. Its sum is exact for up to 2^16 times of nearly 2^47 ns, or more of shorter ones.
func meanOf(nanos []int64) float64 {
	sum := int64(0)
	for _, x := range nanos {
		sum += x
	}
	return float64(sum) / float64(len(nanos))
}

// shifted finds the shapes of a site that are more frequent in the window than in the history, and sets their surplus.
func (c *comparison) shifted(g *siteCalls) {
	history := c.h.series[g.site]
	if history.len() < minHistory {
		return
	}
	known, total := c.number(g, history)
	b := piecesOf(history.len(), len(g.shapes))
	shares, unique := c.shares(history, b, known, total)
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
	novelSurplus := 0.0
	if novel > 0 {
		_, limit := fence(unique)
		novelSurplus = max(0, novel/n-limit) * n / novel
	}
	for i, s := range c.order[:known] {
		surplus := novelSurplus
		if total[i] > 0 {
			_, limit := fence(shares[i*b.number : (i+1)*b.number])
			surplus = max(0, inWindow[i]/n-limit) * n / inWindow[i]
		}
		if surplus > 0 && s != overflow {
			c.surplus[siteShape{g.site, s}] = surplus
		}
	}
	for _, s := range c.order {
		c.seen[s] = 0
	}
}

// number numbers the shapes at a site from 1, in c.seen, and lists them in c.order: first the known shapes of the
// window, then the others of the history. total holds the number of occurrences in the history by number − 1.
func (c *comparison) number(g *siteCalls, history series) (known int, total []int) {
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
	for _, s := range c.h.shape[history.first:history.last] {
		add(s)
	}
	total = make([]int, len(c.order))
	for _, s := range c.h.shape[history.first:history.last] {
		total[c.seen[s]-1]++
	}
	return known, total
}

// shares returns the share of each of the known shapes in each piece, at shape·pieces + piece, and the share of shapes
// in each piece that occur in no other: the novelty of the piece.
func (c *comparison) shares(history series, b pieces, known int, total []int) (shares, unique []float64) {
	shares = make([]float64, known*b.number)
	unique = make([]float64, b.number)
	count := make([]int, len(total))
	for i := range b.number {
		from, to := b.bounds(i)
		shapes := c.h.shape[history.first+from : history.first+to]
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

// chargeShapes charges the shapes in surplus, the deepest first. A caller is charged only beyond the surplus of its
// callees.
func (c *comparison) chargeShapes() {
	if len(c.surplus) == 0 {
		return
	}
	var explained []float64
	for _, t := range c.traces {
		calls := c.h.rec.calls[t.first:t.last]
		explained = scratch.Filled(explained, len(calls), 0)
		for i, x := range slices.Backward(calls) {
			if surplus := c.surplus[siteShape{x.site, x.shape}]; surplus > explained[i] {
				c.chargeShape(&x, (surplus-explained[i])/c.requests)
				explained[i] = surplus
			}
			if x.parent >= 0 {
				explained[x.parent] = max(explained[x.parent], explained[i])
			}
		}
	}
}

// chargeShape charges part of a request to a call.
func (c *comparison) chargeShape(x *call, part float64) {
	answered := x.shape != c.h.rec.shapeNumbers[failedLeaf]
	if c.h.rec.sites[x.site].client {
		answered = x.callee != 0 && c.h.rec.callees[x.callee].op != 0
	}
	c.ledger.chargeShape(x.site, c.h.rec.shapeFailed[x.shape], answered, part)
}
