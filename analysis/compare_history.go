package analysis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// History is what is normal in a [Recording]: the times and shapes of all spans outside some intervals, by site and in the
// order of time.
type History struct {
	rec      *Recording
	traces   int
	duration float64 // mean of the requests, ns; at least 1
	span     []series
	nanos    []int64 // of all sites, one after another
	shape    []int32
	service  []int32 // of each number the service that it stands for: itself, or the one that an address names
	opaque   []bool  // of each service whether it emits no spans
	callee   []int32 // of each site what is called from there, 0: not known
}

// series says what belongs to a site: nanos[first:last] and shape[first:last].
type series struct{ first, last int }

func (s series) len() int { return s.last - s.first }

// Without returns the history of r that lies outside all of the given intervals, before and after them. It must not be used any
// more once a trace was added to r. It takes time linear in the number of spans, and 12 bytes for each.
func (r *Recording) Without(intervals []Interval) *History {
	r.sort()
	h := &History{rec: r, span: make([]series, len(r.of))}
	intervals = slices.Clone(intervals)
	slices.SortFunc(intervals, func(a, b Interval) int { return cmp.Compare(a.From, b.From) })
	var normal []recorded
	total := 0.0
	until := trace.Nanos(math.MinInt64) // the latest end of an interval that began
	for _, t := range r.traces {
		for len(intervals) > 0 && intervals[0].From <= t.start {
			until = max(until, intervals[0].To)
			intervals = intervals[1:]
		}
		if t.start >= until {
			normal = append(normal, t)
			total += float64(t.duration)
		}
	}
	h.traces = len(normal)
	h.duration = max(1, total/float64(max(1, h.traces)))
	h.resolve()
	h.group(normal)
	h.callees(normal)
	return h
}

// resolve finds out which of the names that attributes give to callees are services that emit spans: by the same name, or one
// that is the first label of an address, like cart in cart.default.svc:7070.
func (h *History) resolve() {
	r := h.rec
	h.service, h.opaque = make([]int32, len(r.names)), make([]bool, len(r.names))
	for i := range r.names {
		h.service[i], h.opaque[i] = int32(i), true
	}
	for i := 1; i < len(r.of); i++ {
		h.opaque[r.of[i].service] = false
	}
	for i, name := range r.names {
		if !h.opaque[i] {
			continue
		}
		text := r.table.Text(name)
		if end := strings.IndexAny(text, ".:"); end > 0 {
			if k, ok := r.services[trace.SymbolOf([]byte(text[:end]))]; ok && !h.opaque[k] {
				h.service[i] = k
			}
		}
	}
}

// callees finds out what the CLIENT spans of each site call: the service that most of them do, and of that the operation; of
// equals the ones with the smallest symbols.
func (h *History) callees(traces []recorded) {
	type pair struct{ site, callee int32 }
	count := make(map[pair]int)    // by service
	countOps := make(map[pair]int) // by operation
	of := h.rec.called
	for _, t := range traces {
		for i := range h.rec.calls[t.first:t.last] {
			if c := &h.rec.calls[t.first+i]; c.callee != 0 {
				count[pair{c.site, h.service[of[c.callee].service]}]++
				countOps[pair{c.site, c.callee}]++
			}
		}
	}
	h.callee = make([]int32, len(h.rec.of))
	for p := range countOps {
		best := &h.callee[p.site]
		a, b := of[p.callee], of[*best]
		a.service, b.service = h.service[a.service], h.service[b.service]
		if *best == 0 || cmp.Or(
			cmp.Compare(count[pair{p.site, b.service}], count[pair{p.site, a.service}]),
			cmp.Compare(h.rec.names[a.service], h.rec.names[b.service]),
			cmp.Compare(countOps[pair{p.site, *best}], countOps[p]),
			cmp.Compare(a.op, b.op),
		) < 0 {
			*best = p.callee
		}
	}
}

// group sorts the calls of traces by site, those of each in the order of time.
func (h *History) group(traces []recorded) {
	n := 0
	for _, t := range traces {
		for i := range h.rec.calls[t.first:t.last] {
			h.span[h.rec.calls[t.first+i].site].last++
			n++
		}
	}
	sum := 0
	for i := range h.span {
		count := h.span[i].last
		h.span[i] = series{sum, sum}
		sum += count
	}
	h.nanos, h.shape = make([]int64, n), make([]int32, n)
	for _, t := range traces {
		for i := range h.rec.calls[t.first:t.last] {
			c := &h.rec.calls[t.first+i]
			at := &h.span[c.site].last
			h.nanos[*at], h.shape[*at] = c.nanos, c.shape
			*at++
		}
	}
}

// Traces returns the number of traces in h.
func (h *History) Traces() int { return h.traces }

// The constants of comparing. None depends on what is compared: there are no times, no names.
const (
	// leastPieces is into how many pieces history is cut at least. The third quartile of 16 stands as long as fewer than 4 of
	// them are bad: history may hold trouble of its own in a quarter of its time, as it does where labels begin late.
	leastPieces = 16
	// whisker is Tukey's: what lies further above the third quartile than 1.5 times the distance of the quartiles is far out. Of
	// normal data 0.35 % is.
	whisker = 1.5
	// leastHistory is the least number of occurrences that has quartiles.
	leastHistory = 4
)

// pieces cuts the history of a site into contiguous pieces, each about as large as the number of occurrences in the window, but
// into at least leastPieces as far as there are as many. What changes from piece to piece is what may change from history to
// window without a cause: noise, correlation between neighbours, drift. If the window has one occurrence, it is compared with
// single ones.
type pieces struct{ occurrences, number int }

func piecesOf(history, window int) pieces {
	return pieces{history, max(1, history/window, min(leastPieces, history))}
}

// bounds returns where piece i begins and ends.
func (b pieces) bounds(i int) (from, to int) {
	return i * b.occurrences / b.number, (i + 1) * b.occurrences / b.number
}

// fence returns the median of values and what is far above them. It reorders values.
func fence(values []float64) (median, far float64) {
	q1, q3 := stats.Quantile(values, 0.25), stats.Quantile(values, 0.75)
	return stats.Median(values), q3 + whisker*(q3-q1)
}
