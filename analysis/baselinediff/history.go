package baselinediff

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Normal is what is normal in a [Recording]: the times and shapes of all spans outside some intervals, by site and in the
// order of time.
type Normal struct {
	rec      *Recording
	traces   int
	duration float64 // mean of the requests, ns; at least 1
	span     []series
	nanos    []int64 // of all sites, one after another
	shape    []int32
	service  []int32  // of each number the service that it stands for: itself, or the one that an address names
	opaque   []bool   // of each service whether it emits no spans
	callee   []callee // of each site what is called from there; service 0: not known
}

// series says what belongs to a site: nanos[first:last] and shape[first:last].
type series struct{ first, last int }

func (s series) len() int { return s.last - s.first }

// Without returns the history of r that lies outside all of the given intervals, before and after them. It must not be used any
// more once a trace was added to r. It takes time linear in the number of spans, and 12 bytes for each.
func (r *Recording) Without(intervals []Interval) *Normal {
	r.sort()
	h := &Normal{rec: r}
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
func (h *Normal) resolve() {
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
// equals the ones with the smallest symbols. Sites without history get what others call by the same operation.
func (h *Normal) callees(traces []recorded) {
	type pair struct {
		site   siteKey
		callee callee
	}
	count := make(map[[2]int32]int)
	for c := range h.rec.all(traces) {
		if c.callee != 0 {
			count[[2]int32{c.site, c.callee}]++
		}
	}
	services, ops := make(map[pair]int), make(map[pair]int) // calls of a service, with op 0, and of an operation
	for k, n := range count {
		c := h.rec.called[k[1]]
		c.service = h.service[c.service]
		for _, key := range []siteKey{h.rec.of[k[0]].siteKey, h.rec.of[k[0]].anyCaller()} {
			services[pair{key, callee{service: c.service}}] += n
			ops[pair{key, c}] += n
		}
	}
	best := make(map[siteKey]callee)
	for p, n := range ops {
		b, ok := best[p.site]
		if of := services[pair{p.site, callee{service: b.service}}]; !ok || cmp.Or(
			cmp.Compare(of, services[pair{p.site, callee{service: p.callee.service}}]),
			cmp.Compare(h.rec.names[p.callee.service], h.rec.names[b.service]),
			cmp.Compare(ops[pair{p.site, b}], n),
			cmp.Compare(p.callee.op, b.op),
		) < 0 {
			best[p.site] = p.callee
		}
	}
	h.callee = make([]callee, len(h.rec.of))
	for i := 1; i < len(h.callee); i++ {
		b, ok := best[h.rec.of[i].siteKey]
		if !ok {
			b = best[h.rec.of[i].anyCaller()]
		}
		if s := &h.rec.of[i]; s.client {
			h.callee[i] = callee{b.service, cmp.Or(b.op, s.op)}
		}
	}
}

// group sorts the calls of traces by site, those of each in the order of time. A site with too little history, because the
// caller is new or rare, gets what the history holds of its operation, whoever calls that.
func (h *Normal) group(traces []recorded) {
	sites := h.rec.of
	h.span = make([]series, len(sites))
	for c := range h.rec.all(traces) {
		h.span[c.site].last++
	}
	of := make(map[siteKey]int) // which of wide belongs to an operation
	wide := make([]series, 1)   // the first is nobody's
	for i := 1; i < len(sites); i++ {
		if key := sites[i].anyCaller(); h.span[i].len() < leastHistory && of[key] == 0 {
			of[key] = len(wide)
			wide = append(wide, series{})
		}
	}
	wideOf := make([]int, len(sites))
	for i := 1; i < len(sites); i++ {
		wideOf[i] = of[sites[i].anyCaller()]
		wide[wideOf[i]].last += h.span[i].len()
	}
	wide[0] = series{}
	n := layOut(wide, layOut(h.span, 0))
	h.nanos, h.shape = make([]int64, n), make([]int32, n)
	for c := range h.rec.all(traces) {
		h.put(&h.span[c.site], c)
		if w := wideOf[c.site]; w > 0 {
			h.put(&wide[w], c)
		}
	}
	for i := 1; i < len(sites); i++ {
		if h.span[i].len() < leastHistory {
			h.span[i] = wide[wideOf[i]]
		}
	}
}

// layOut gives each series its room, one after another from a place on, empties it, and returns where the last ends.
func layOut(all []series, from int) int {
	for i := range all {
		n := all[i].len()
		all[i] = series{from, from}
		from += n
	}
	return from
}

func (h *Normal) put(s *series, c *call) {
	h.nanos[s.last], h.shape[s.last] = c.nanos, c.shape
	s.last++
}

// Traces returns the number of traces in h.
func (h *Normal) Traces() int { return h.traces }

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
