package compare

import (
	"cmp"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Normal is the history that a window is compared with: own times and shapes of the spans of some [Traces], by site and
// in order of time.
type Normal struct {
	ResolvedNames
	list     []recordedTrace
	sums     []callSum // by number of the site
	duration float64   // mean duration of a request that is not long, in ns and at least 1
	long     longRequests
	series   []series         // by number of the site
	nanos    []int64          // own times, site after site
	shape    []int32          // shapes, parallel to nanos
	callee   []history.Callee // by number of the site: the usual callee of a CLIENT span; service 0 if unknown
}

// series is the history of a site: nanos[first:last] and shape[first:last].
type series struct{ first, last int }

func (s series) len() int { return s.last - s.first }

// Normal returns the history that consists of t. It becomes invalid if a trace is added to the recording. Normal takes
// time linear in the number of spans, and 12 bytes of memory per span.
func (t Traces) Normal() *Normal {
	h := &Normal{ResolvedNames: ResolveNames(t.rec), list: t.list, sums: sumsOf(t.rec, t.list)}
	h.long = longRequestsOf(t)
	requests, total := h.long.others(t.list)
	h.duration = max(1, total/max(1, requests))
	h.group(t.list)
	h.resolveCallees(t.list)
	return h
}

// resolveCallees sets h.callee to the usual callee of the CLIENT spans of each site in traces: the most frequently
// called service, and its most frequently called operation. Ties are resolved in favour of the smallest symbols. A site
// without history gets the service that its attributes name, or the callee of the same step under other callers, or of
// the same operation.
func (h *Normal) resolveCallees(traces []recordedTrace) {
	type pair struct {
		site   history.SiteKey
		callee history.Callee
	}
	count := make(map[[2]int32]int)
	for c := range h.rec.all(traces) {
		if c.Callee != 0 {
			count[[2]int32{c.Site, c.Callee}]++
		}
	}
	services, ops := make(map[pair]int), make(map[pair]int) // numbers of calls, by service (Op 0) and by operation
	for k, n := range count {
		c := h.rec.Callees[k[1]]
		c.Service = h.Service[c.Service]
		at := &h.rec.Sites[k[0]]
		for _, key := range append(at.Wider(), at.SiteKey) {
			services[pair{key, history.Callee{Service: c.Service}}] += n
			ops[pair{key, c}] += n
		}
	}
	best := make(map[history.SiteKey]history.Callee)
	for p, n := range ops {
		b, ok := best[p.site]
		if of := services[pair{p.site, history.Callee{Service: b.Service}}]; !ok || cmp.Or(
			cmp.Compare(of, services[pair{p.site, history.Callee{Service: p.callee.Service}}]),
			cmp.Compare(h.rec.Names[p.callee.Service], h.rec.Names[b.Service]),
			cmp.Compare(ops[pair{p.site, b}], n),
			cmp.Compare(p.callee.Op, b.Op),
		) < 0 {
			best[p.site] = p.callee
		}
	}
	h.callee = make([]history.Callee, len(h.rec.Sites))
	for i := 1; i < len(h.callee); i++ {
		s := &h.rec.Sites[i]
		if !s.Client {
			continue
		}
		b, ok := best[s.SiteKey]
		if peer := h.Peer(s); !ok && peer != 0 {
			b, ok = history.Callee{Service: peer}, true
		}
		for _, key := range s.Wider() {
			if !ok {
				b, ok = best[key]
			}
		}
		h.callee[i] = history.Callee{Service: b.Service, Op: cmp.Or(b.Op, s.Op)}
	}
}

// group groups the calls of traces by site, each group in order of time. A site with too little history, because its
// caller is new or rare, gets the history of its step under all callers. If that is still too little, as for calls that
// are no longer answered, it gets the history of its operation with any target.
func (h *Normal) group(traces []recordedTrace) {
	sites := h.rec.Sites
	h.series = make([]series, len(sites))
	for c := range h.rec.all(traces) {
		h.series[c.Site].last++
	}
	of := make(map[history.SiteKey]int) // index in wide
	wide := make([]series, 1)           // the first is unused
	for i := 1; i < len(sites); i++ {
		for _, key := range sites[i].Wider() {
			if h.series[i].len() < history.MinHistory && of[key] == 0 {
				of[key] = len(wide)
				wide = append(wide, series{})
			}
		}
	}
	wideOf := make([][]int, len(sites))
	for i := 1; i < len(sites); i++ {
		for _, key := range sites[i].Wider() {
			if w := of[key]; w > 0 {
				wideOf[i] = append(wideOf[i], w)
				wide[w].last += h.series[i].len()
			}
		}
	}
	n := allocate(wide, allocate(h.series, 0))
	h.nanos, h.shape = make([]int64, n), make([]int32, n)
	for c := range h.rec.all(traces) {
		h.put(&h.series[c.Site], c)
		for _, w := range wideOf[c.Site] {
			h.put(&wide[w], c)
		}
	}
	for i := 1; i < len(sites); i++ {
		if h.series[i].len() >= history.MinHistory {
			continue
		}
		for _, key := range sites[i].Wider() {
			if h.series[i] = wide[of[key]]; h.series[i].len() >= history.MinHistory {
				break
			}
		}
	}
}

// allocate places the series one after another, starting at index `from`, with room for their present lengths, and
// empties them. It returns the end of the last.
func allocate(all []series, from int) int {
	for i := range all {
		n := all[i].len()
		all[i] = series{from, from}
		from += n
	}
	return from
}

func (h *Normal) put(s *series, c *Call) {
	h.nanos[s.last], h.shape[s.last] = c.Own(), c.shape
	s.last++
}

// Traces returns the number of traces in h.
func (h *Normal) Traces() int { return len(h.list) }

// Duration returns the mean duration of a trace in h, without the long ones, in ns and at least 1. It is the unit of
// the times in [Suspect].
func (h *Normal) Duration() float64 { return h.duration }

// The constants of a comparison. They contain no times and no names, so they hold for any application.
const (
	// minPieces is the minimum number of pieces of a history with enough occurrences. The third quartile of 16 pieces
	// is robust against up to 3 faulty ones. A history contains faults of its own if labels start late.
	minPieces = 16
	// whisker is Tukey's factor: values more than 1.5 interquartile ranges above the third quartile are outliers. In
	// normally distributed data, these are 0.35 % of all values.
	whisker = 1.5
	// rare is a quantile of the pieces. Values up to it are usual, even if they exceed the fence: where requests come
	// in bursts, some pieces differ by more than the quartiles show.
	rare = 0.95
)

// pieces divides the history of a site into contiguous pieces. Each has about as many occurrences as the window, but
// there are at least min(minPieces, occurrences) pieces. The pieces differ in every way that history and window may
// differ without a fault: noise, correlation between neighbours, drift. A window with a single occurrence is compared
// with single occurrences.
type pieces struct{ occurrences, number int }

func piecesOf(past, window int) pieces {
	return pieces{past, max(1, past/window, min(minPieces, past))}
}

// bounds returns the range [from, to) of piece i.
func (b pieces) bounds(i int) (from, to int) {
	return i * b.occurrences / b.number, (i + 1) * b.occurrences / b.number
}

// pieceMeans appends the mean of each piece of the past to means. window is the number of values in the window.
func pieceMeans(means []float64, past []int64, window int) []float64 {
	b := piecesOf(len(past), window)
	for i := range b.number {
		from, to := b.bounds(i)
		means = append(means, meanOf(past[from:to]))
	}
	return means
}

// Rise returns the excess of the mean duration in a window, in ns, over the fence of the means over pieces of the past,
// or over the mean of the whole past if that is larger. It is 0 if the mean is within the variation of the past. Both
// slices must be in order of time. Rise returns NaN if either has fewer than four durations, which are too few to
// judge.
func Rise(past, window []int64) float64 {
	if min(len(past), len(window)) < history.MinHistory {
		return math.NaN()
	}
	_, limit := Fence(pieceMeans(nil, past, len(window)))
	return max(0, meanOf(window)-max(limit, meanOf(past)))
}

// The quartiles as fractions.
const (
	middle        = 0.5
	upperQuartile = 0.75
)

// atMost reports whether x is at most the value at the rank below the q-quantile of values, and hence at most the
// quantile. Since the fence is at least the upper quartile, x is then within the fence. atMost is much faster than
// computing the quantile.
func atMost(x float64, values []float64, q float64) bool {
	n := 0
	for _, v := range values {
		if v >= x {
			n++
		}
	}
	return n >= len(values)-int(q*float64(len(values)-1)) && n > 0
}

// Fence returns the median of values and Tukey's upper fence. It reorders values.
func Fence(values []float64) (median, limit float64) {
	q1, q3 := stats.Quantile(values, 0.25), stats.Quantile(values, 0.75)
	return stats.Median(values), q3 + whisker*(q3-q1)
}
