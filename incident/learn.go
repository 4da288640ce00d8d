package incident

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// baseline describes healthy windows: the scores of services and the growth of their operations. Other windows are
// judged by it: scores and growth that exceed the records and the gates are unusual. It knows nothing about incidents.
type baseline struct {
	gates    Gates
	records  map[trace.Symbol]*record
	healthy  [ages]float64 // number of windows judged healthy, by age of records: the current one first
	requests [ages]float64 // number of requests in these windows, by age of records
	scales   [numScales]scale
	ageBegan trace.Nanos // start of the current age
	// end of the first window that was judged or reviewed, or 0
	firstJudged trace.Nanos
	pending     []window                     // not yet known to be healthy
	relearned   map[trace.Symbol]trace.Nanos // services that are being relearned, and when they were accepted
}

func newBaseline() baseline {
	b := baseline{
		gates:     DefaultGates(),
		records:   make(map[trace.Symbol]*record),
		relearned: make(map[trace.Symbol]trace.Nanos),
	}
	for i := range b.scales {
		b.scales[i].records = make(map[operation]*operationRecord)
	}
	return b
}

// learnWindow learns from the window of an epoch. The window belongs to the open incidents if there are any; otherwise
// it may be healthy.
func (t *Tracker) learnWindow(now trace.Nanos, c *compare.Comparison, open bool) {
	switch {
	case open:
		t.baseline.learnBefore(t.incidents.onset(now))
		t.baseline.pending = t.baseline.pending[:0]
		t.pendUnaffected(now, c)
	case c.Requests > 0 && !t.incidents.inWindow(now):
		t.baseline.pend(now, c)
	}
}

// review learns the scores of the windows before the first judged window. Such windows exist if a history arrives all
// at once, e.g. from a replayed recording, even if that takes several epochs. There must be no incidents yet.
func (b *baseline) review(now trace.Nanos, comparer *compare.Comparer) {
	first, last := now.Add(-comparer.Requests.Covered(now)).Add(leastHistory+Window), now.Add(-lengths[fine].proving)
	if b.firstJudged != 0 {
		last = min(last, b.firstJudged.Add(-Window))
	}
	if b.firstJudged == 0 || first < b.firstJudged {
		b.firstJudged = min(first, now)
	}
	for end := first; end <= last; end = end.Add(Window) {
		c := comparer.Compare(history.Interval{From: end.Add(-Window), To: end}, compare.Brief)
		ratio := b.ratio(comparer.Services.Len())
		unusual := func(s compare.Suspect) bool { return b.unusual(&s, c.Requests, ratio, 1) }
		if c.Requests > 0 && !slices.ContainsFunc(c.Suspects, unusual) {
			b.learn(&window{end, c.Requests, b.scores(end, &c)}, 1)
		}
	}
}

// relearning is the time for which a service raises no incident after a person has accepted its behaviour. Its scores
// are meaningless until its history is long enough, and must then be learned before they are judged.
const relearning = leastHistory + 3*Window

// relearn deletes the records of service and marks it as being relearned.
func (b *baseline) relearn(now trace.Nanos, service trace.Symbol) {
	b.relearned[service] = now
	delete(b.records, service)
	for i := range b.pending {
		b.pending[i].scores = slices.DeleteFunc(b.pending[i].scores, func(s score) bool { return s.service == service })
	}
	for i := range b.scales {
		b.scales[i].forget(func(s trace.Symbol) bool { return s == service })
		maps.DeleteFunc(b.scales[i].records, func(o operation, _ *operationRecord) bool { return o.service == service })
	}
}

// pend adds the scores of a window without an incident, and learns the scores of pending windows that have proved
// healthy.
func (b *baseline) pend(now trace.Nanos, c *compare.Comparison) {
	b.pending = append(b.pending, window{now, c.Requests, b.scores(now, c)})
	b.scales[fine].pend(now, c, b.isRelearned)
	b.learnBefore(now.Add(-lengths[fine].proving))
}

// pendUnaffected adds the growth of the operations that no incident affects. While an incident is new, it adds nothing
// and drops all pending growth, because we don't know yet which operations the incident affects.
func (t *Tracker) pendUnaffected(now trace.Nanos, c *compare.Comparison) {
	x := &t.baseline.scales[fine]
	if slices.ContainsFunc(t.incidents,
		func(x *tracked) bool { return x.IsOpen() && now.Sub(x.Opened()) < spreading }) {
		x.pending = x.pending[:0]
		return
	}
	x.pend(now, c, func(service trace.Symbol) bool {
		return t.baseline.isRelearned(service) || t.incidents.affects(service, now.Add(-Window))
	})
	x.learnBefore(now.Add(-lengths[fine].proving), Window)
}

// scores returns the scores above 0 in a window that ends now. It skips services that were accepted so recently that
// their history is too short.
func (b *baseline) scores(now trace.Nanos, c *compare.Comparison) []score {
	var scores []score
	for i := range c.Suspects {
		s := &c.Suspects[i]
		if since, relearned := b.relearned[s.Service]; relearned && now.Sub(since) < leastHistory {
			continue
		}
		if x := (score{s.Service, levelsOf(s)}); x.levels != (levels{}) {
			scores = append(scores, x)
		}
	}
	return scores
}

// learnBefore learns the pending windows that ended at or before instant. It leaves the last pending window, whose
// weight depends on the next one.
func (b *baseline) learnBefore(instant trace.Nanos) {
	for len(b.pending) > 1 && b.pending[0].end <= instant {
		b.learn(&b.pending[0], windowsBetween(b.pending[0].end, b.pending[1].end, Window))
		b.pending = slices.Delete(b.pending, 0, 1)
	}
	b.scales[fine].learnBefore(instant, Window)
}

// windowsBetween returns the weight of a window of the given length that ends at end if the next window ends at next.
// The weight is less than 1 if the windows overlap. It is never more than 1, even after a gap, because the service may
// not have run in the gap.
func windowsBetween(end, next trace.Nanos, length time.Duration) float64 {
	return min(1, float64(next.Sub(end))/float64(length))
}

// learn adds the scores of the healthy window w. windows is its weight; see windowsBetween.
func (b *baseline) learn(w *window, windows float64) {
	b.healthy[0] += windows
	b.requests[0] += windows * float64(w.requests)
	for _, s := range w.scores {
		r := b.records[s.service]
		if r == nil {
			r = &record{}
			b.records[s.service] = r
		}
		r.learn(w.end, w.requests, &s.levels)
	}
}

// leastInAge is the minimum number of healthy windows in an age of records. An age therefore lasts longer if a long
// incident keeps us from learning.
const leastInAge = float64(recordAge/Window) / 2

// age starts a new age of records once the current one is old enough and has enough healthy windows.
func (b *baseline) age(now trace.Nanos) {
	if b.ageBegan == 0 {
		b.ageBegan = now
	}
	if now.Sub(b.ageBegan) < recordAge || b.healthy[0] < leastInAge {
		return
	}
	b.ageBegan = now
	for i := range b.scales {
		b.scales[i].age()
	}
	copy(b.healthy[1:], b.healthy[:])
	copy(b.requests[1:], b.requests[:])
	b.healthy[0], b.requests[0] = 0, 0
	maps.DeleteFunc(b.records, func(_ trace.Symbol, r *record) bool { return !r.forget(now.Add(-ages * recordAge)) })
}

// isRelearned reports whether service is being relearned.
func (b *baseline) isRelearned(service trace.Symbol) bool {
	_, relearned := b.relearned[service]
	return relearned
}

// dayIsKnown reports whether the healthy windows add up to at least a day.
func (b *baseline) dayIsKnown() bool {
	return sum(b.healthy[:]) > float64(recordAge/Window)
}

// returning returns the time after the end of an incident within which new evidence reopens it.
func (b *baseline) returning() time.Duration {
	if b.dayIsKnown() {
		return returningLonger
	}
	return returning
}
