package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Objective limits the fraction of an entry's requests that may be slow or fail. This fraction is its error budget. An
// objective burns if requests spend the budget many times faster than is sustainable; see alerts.
type Objective struct {
	Name string // optional
	// Entry is a service and an operation, such as "shop GET /cart", or just a service, which stands for all of its
	// entries.
	Entry string
	// Percentile percent of the requests must take less than Below. If Below is 0, the objective is about failures.
	Below      time.Duration
	Percentile float64
	Errors     float64 // fraction of the requests that may fail
}

// Budget returns the fraction of the requests that may miss o. It is in (0, 1) if o is valid.
func (o *Objective) Budget() float64 {
	if o.Below > 0 {
		const digits = 1e6 // 100 − 99.9 is not 0.1
		return math.Round((100-o.Percentile)*digits) / (100 * digits)
	}
	return o.Errors
}

// The kinds of objectives.
const (
	LatencyKind = "latency"
	ErrorsKind  = "errors"
)

// Kind returns the kind of o.
func (o *Objective) Kind() string {
	if o.Below > 0 {
		return LatencyKind
	}
	return ErrorsKind
}

// Valid reports whether o has an entry, a budget in (0, 1), and a limit on either latency or failures, not both.
func (o *Objective) Valid() bool {
	budget := o.Budget()
	return o.Entry != "" && o.Below >= 0 && budget > 0 && budget < 1 && (o.Below > 0 == (o.Errors == 0))
}

// counted identifies the requests that count against an objective: the slow or failed requests of an entry. It doesn't
// change with the name or the budget.
type counted struct {
	entry string
	below time.Duration
}

func (o *Objective) counted() counted { return counted{o.Entry, o.Below} }

// SameRequests reports whether the same requests count against o and `as`.
func (o *Objective) SameRequests(as *Objective) bool { return o.counted() == as.counted() }

// AppliesTo reports whether entry, an operation in table, is an entry of o.
func (o *Objective) AppliesTo(table *trace.Table, entry trace.Op) bool {
	service := table.ServiceName(entry)
	return o.Entry == service || o.Entry == service+" "+table.OpName(entry)
}

// alerts are pairs of windows to detect burning objectives, as in Google's SRE workbook, chapter 5. A rate of 1 would
// use up the budget in exactly 30 days. The long window shows that the loss matters, the short one that it is still
// going on. The first alert fires if 2 % of the budget for 30 days is spent in an hour, the second if 5 % is spent in
// six hours.
var alerts = [...]struct {
	long, short time.Duration
	rate        float64
}{{time.Hour, 5 * time.Minute, 14.4}, {6 * time.Hour, 30 * time.Minute, 6}}

// leastMissed is the minimum number of slow or failed requests in the long window of an alert. Fewer may be chance: if
// requests just meet an objective, a window where ten misses would burn it at rate 6 has 10⁄6 misses on average. Ten or
// more occur once in 80,000 windows.
const leastMissed = 10

// rateOf returns the burn rate at which the alert with index alert fires for budget. With a budget of a tenth, for
// example, a rate of 14.4 is impossible, so it is enough if half of the requests that should meet the objective miss
// it.
func rateOf(alert int, budget float64) float64 { return min(alerts[alert].rate, (1+1/budget)/2) }

// Requests are counted by minute over alertPeriod for the alerts, and by hour over BudgetPeriod for the remaining
// budget.
const (
	alertPeriod = 6 * time.Hour
	// BudgetPeriod is the period that an error budget covers.
	BudgetPeriod = 30 * 24 * time.Hour
)

// Count counts requests.
type Count struct {
	Requests uint64
	Missed   uint64 // slow or failed requests
}

// Share returns the fraction of the requests that missed, or 0 if there are no requests.
func (c Count) Share() float64 { return float64(c.Missed) / float64(max(1, c.Requests)) }

func (c *Count) add(d Count) {
	c.Requests += d.Requests
	c.Missed += d.Missed
}

// ring counts requests in the latest time slots.
type ring struct {
	unit  time.Duration
	slots []Count // slot n is at n modulo the length
	last  int64   // number of the latest slot
}

func newRing(period, unit time.Duration) ring {
	return ring{unit: unit, slots: make([]Count, period/unit)}
}

// number returns the number of the slot that contains the nanosecond before t.
func (r *ring) number(t trace.Nanos) int64 { return (int64(t) - 1) / int64(r.unit) }

func (r *ring) slot(number int64) *Count { return &r.slots[number%int64(len(r.slots))] }

// advance makes the slot that contains the nanosecond before now the latest one, unless it is earlier.
func (r *ring) advance(now trace.Nanos) {
	n := r.number(now)
	for k := max(r.last+1, n-int64(len(r.slots))+1); k <= n; k++ {
		*r.slot(k) = Count{}
	}
	r.last = max(r.last, n)
}

// add counts requests that ended just before t. If t is after the latest slot, they count in the latest slot; if it is
// before the oldest slot, they are ignored.
func (r *ring) add(t trace.Nanos, c Count) {
	if n := r.number(t); n > r.last-int64(len(r.slots)) && n >= 0 {
		r.slot(min(n, r.last)).add(c)
	}
}

// sum returns the total count over the window that ends with the latest slot.
func (r *ring) sum(window time.Duration) (sum Count) {
	for n := range r.latest(window) {
		sum.add(*r.slot(n))
	}
	return sum
}

// latest yields the numbers of the slots in the window that ends with the latest slot, in descending order.
func (r *ring) latest(window time.Duration) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for n := r.last; n >= 0 && n > r.last-int64(min(window, time.Duration(len(r.slots))*r.unit)/r.unit); n-- {
			if !yield(n) {
				return
			}
		}
	}
}

// covers reports whether the ring covers the window, that is, whether the first slot of the window or an earlier slot
// has requests.
func (r *ring) covers(window time.Duration) bool {
	n := int64(0)
	for k := range r.latest(time.Duration(len(r.slots)) * r.unit) {
		if n++; n >= int64(window/r.unit) && r.slot(k).Requests > 0 {
			return true
		}
	}
	return false
}

// first returns the start of the first slot with requests, or 0 if there is no such slot.
func (r *ring) first() (first trace.Nanos) {
	for n := range r.latest(time.Duration(len(r.slots)) * r.unit) {
		if r.slot(n).Requests > 0 {
			first = trace.Nanos(n * int64(r.unit))
		}
	}
	return first
}

// onset estimates when requests started to miss an objective, in the window that ends with the latest slot. As in
// [compare.Comparer.Onset], each slot has a score, and the onset is the slot from which the sum of scores up to the end
// is largest. The score is the number of misses in the slot minus half the number expected from the average share of
// misses. The average covers a period of length last, which also ends with the latest slot.
func (r *ring) onset(window, last time.Duration) trace.Nanos {
	half, sum, most, onset := r.sum(last).Share()/2, 0.0, 0.0, r.last
	for n := range r.latest(window) {
		c := r.slot(n)
		if sum += float64(c.Missed) - half*float64(c.Requests); sum > most {
			most, onset = sum, n
		}
	}
	return trace.Nanos(onset * int64(r.unit))
}

// Objectives counts requests against objectives and finds burning objectives. It is not safe for concurrent use.
type Objectives struct {
	table   *trace.Table
	all     []*watched
	matches map[trace.Op][]*watched // cache of the objectives by entry
	ended   trace.Nanos             // end of the last epoch
}

// maxEntries is the maximum size of the cache of entries.
const maxEntries = 1 << 16

// watched is an objective with the counts of its requests.
type watched struct {
	Objective
	entry          trace.Op // smallest operation among its entries; 0 before the first request
	fresh          Count    // requests that ended after the last epoch
	minutes, hours ring
	contrast       contrast
	burning        [len(alerts)]bool
	since          trace.Nanos // end of the epoch when an alert started to burn, or 0
	waived         bool        // a person accepted that it burns; reset when it stops burning
}

// NewObjectives returns an empty set of objectives for the operations in table.
func NewObjectives(table *trace.Table) *Objectives {
	return &Objectives{table: table, matches: make(map[trace.Op][]*watched)}
}

// Set replaces the objectives. An objective keeps its counts if the same requests count against it as before. If its
// budget has changed, it stops burning until it is judged again.
func (s *Objectives) Set(all []Objective) {
	before := make(map[counted]*watched, len(s.all))
	for _, w := range s.all {
		before[w.counted()] = w
	}
	s.all = nil
	clear(s.matches)
	for _, o := range all {
		w := before[o.counted()]
		delete(before, o.counted())
		switch {
		case w == nil:
			w = newWatched(o)
			w.advance(s.ended)
		case w.Budget() != o.Budget():
			w.burning, w.since, w.waived = [len(alerts)]bool{}, 0, false
		}
		w.Objective = o
		s.all = append(s.all, w)
	}
}

func newWatched(o Objective) *watched {
	return &watched{Objective: o, minutes: newRing(alertPeriod, time.Minute), hours: newRing(BudgetPeriod, time.Hour)}
}

func (w *watched) advance(now trace.Nanos) {
	w.minutes.advance(now)
	w.hours.advance(now)
}

// of returns the objectives that apply to entry.
func (s *Objectives) of(entry trace.Op) []*watched {
	found, known := s.matches[entry]
	if known {
		return found
	}
	for _, w := range s.all {
		if w.AppliesTo(s.table, entry) {
			found = append(found, w)
		}
	}
	if len(s.matches) < maxEntries {
		s.matches[entry] = found
	}
	return found
}

// Watches reports whether any objective applies to entry.
func (s *Objectives) Watches(entry trace.Op) bool { return len(s.all) > 0 && len(s.of(entry)) > 0 }

// Request is a request reduced to the data that objectives need.
type Request struct {
	Entry    trace.Op
	Ended    trace.Nanos
	Duration time.Duration
	Failed   bool
	Steps    []Step
}

// Observe counts r. The order of requests within an epoch doesn't matter. Requests that ended after the last epoch
// count at the end of the current one, because their clocks may be wrong. Observe doesn't retain r.
func (s *Objectives) Observe(r *Request) {
	for _, w := range s.of(r.Entry) {
		c, latency := Count{Requests: 1}, w.Below > 0
		if latency && r.Duration >= w.Below || !latency && r.Failed {
			c.Missed = 1
		}
		if w.entry == 0 || r.Entry < w.entry {
			w.entry = r.Entry
		}
		w.contrast.add(r.Steps, latency, c.Missed > 0)
		if r.Ended > s.ended {
			w.fresh.add(c)
			continue
		}
		w.minutes.add(r.Ended, c)
		w.hours.add(r.Ended, c)
	}
}

// Burn is a burning objective: requests are spending its budget too fast.
type Burn struct {
	Missed
	Since trace.Nanos // estimated time when it started to burn
	// Suspects are the services where the requests that missed the objective spend additional time, or where their
	// failures start, highest cost first. Duration is the mean duration of the other requests in ns, or 0 if unknown.
	// It is the unit of the times in Suspects.
	Suspects []compare.Suspect
	Duration float64
	// Services are the services that requests of the objective run through or wait for, ascending. The caller of
	// [Objectives.Step] sets them.
	Services []trace.Symbol
}

// Missed is an objective that requests miss, with its figures as of an epoch.
type Missed struct {
	Objective
	Service  trace.Symbol  // service of its requests
	Op       trace.Op      // one of its entries
	Window   time.Duration // the long window of the alert
	Requests Count         // in the window
	Rate     float64       // burn rate; 1 uses up exactly the budget
	At       trace.Nanos   // end of the last epoch when it burned
}

// Fast reports whether m was found by the alert with the shortest windows, that is, whether the budget for 30 days
// would last for about two days at most. If the budget is large, the limit is longer; see rateOf.
func (m *Missed) Fast() bool { return m.Window <= alerts[0].long }

// Step ends an epoch at time now and returns the burning objectives that aren't waived, in the order of the
// configuration. An objective stops burning when its rate in either window of the alert falls below half of the alert's
// rate, so that it doesn't flap at the threshold.
func (s *Objectives) Step(now trace.Nanos) []Burn {
	s.ended = now
	var burns []Burn
	for _, w := range s.all {
		w.advance(now)
		w.minutes.add(now, w.fresh)
		w.hours.add(now, w.fresh)
		w.fresh = Count{}
		w.contrast.age(now)
		if alert := w.judge(now); alert >= 0 && !w.waived {
			b := w.burn(now, alert)
			b.Service = s.table.Operation(w.entry).Service
			missed := w.minutes.sum(now.Sub(b.Since) + time.Minute).Share()
			b.Suspects, b.Duration = w.contrast.suspects(s.table, w.Below > 0, missed)
			burns = append(burns, b)
		}
	}
	return burns
}

// judge updates w.burning, w.since and w.waived, and returns the index of the first alert that fires, or −1 if no alert
// fires.
func (w *watched) judge(now trace.Nanos) int {
	first := -1
	for i, a := range alerts {
		rate := rateOf(i, w.Budget())
		if w.burning[i] {
			rate *= keeping
		}
		long := w.minutes.sum(a.long)
		// The long and the short window differ only if there were requests before the short window.
		fresh := w.burning[i] || long.Missed >= leastMissed && w.minutes.covers(a.short)
		w.burning[i] = fresh && w.rate(long) >= rate && w.rate(w.minutes.sum(a.short)) >= rate
		if w.burning[i] && first < 0 {
			first = i
		}
	}
	switch {
	case first < 0:
		w.since, w.waived = 0, false
	case w.since == 0:
		w.since = now
	}
	return first
}

// rate returns the burn rate of the requests in c. A rate of 1 uses up exactly the budget.
func (w *watched) rate(c Count) float64 { return c.Share() / w.Budget() }

func (w *watched) burn(now trace.Nanos, alert int) Burn {
	a := alerts[alert]
	requests := w.minutes.sum(a.long)
	return Burn{
		Missed: Missed{
			Objective: w.Objective,
			Op:        w.entry,
			Window:    a.long,
			Requests:  requests,
			Rate:      w.rate(requests),
			At:        now,
		},
		Since: w.minutes.onset(a.long, a.short),
	}
}

// Matches reports whether an objective in s that counts the same requests as o applies to entry.
func (s *Objectives) Matches(o *Objective, entry trace.Op) bool {
	return slices.ContainsFunc(s.of(entry), func(w *watched) bool { return w.counted() == o.counted() })
}

// Waive makes Step ignore the burning objectives in missed until they stop burning.
func (s *Objectives) Waive(missed []Missed) {
	for _, w := range s.all {
		if w.since != 0 && slices.ContainsFunc(missed, func(m Missed) bool { return m.counted() == w.counted() }) {
			w.waived = true
		}
	}
}

// ObjectiveStatus is the current state of an objective.
type ObjectiveStatus struct {
	Objective
	Op      trace.Op    // one of the entries; 0 before the first request
	Burning trace.Nanos // end of the epoch when it started to burn, or 0
	Waived  bool        // a person accepted that it burns
	Month   Count       // requests in the last BudgetPeriod
	// From is the start of the first hour with requests in that period, or of the first minute if it is recent; 0 if
	// there were no requests.
	From trace.Nanos
	// Remaining is the fraction of the error budget that is left in that period. It is negative if the budget is
	// overspent.
	Remaining float64
	Rates     []BurnRate // by window length, ascending
}

// BurnRate is the burn rate of the requests in a window, and the rate at which its alert fires.
type BurnRate struct {
	Window      time.Duration
	Requests    Count
	Rate, Alert float64
}

// first returns the approximate time of the first counted request, or 0 if there were no requests.
func (w *watched) first() trace.Nanos {
	hour, minute := w.hours.first(), w.minutes.first()
	if minute < hour.Add(w.hours.unit) {
		return max(hour, minute)
	}
	return hour
}

// Status returns the state of the objectives at the end of the last epoch, in the order of the configuration.
func (s *Objectives) Status() []ObjectiveStatus {
	all := make([]ObjectiveStatus, 0, len(s.all))
	for _, w := range s.all {
		x := ObjectiveStatus{
			Objective: w.Objective,
			Op:        w.entry,
			Burning:   w.since,
			Waived:    w.waived,
			From:      w.first(),
			Remaining: 1,
		}
		x.Month = w.hours.sum(BudgetPeriod)
		x.Remaining -= w.rate(x.Month)
		for i, a := range alerts {
			for _, window := range []time.Duration{a.short, a.long} {
				c := w.minutes.sum(window)
				x.Rates = append(x.Rates, BurnRate{window, c, w.rate(c), rateOf(i, w.Budget())})
			}
		}
		sorting.Slice(x.Rates, func(a, b BurnRate) int { return cmp.Compare(a.Window, b.Window) })
		all = append(all, x)
	}
	return all
}

// ObjectivesState is the saved form of [Objectives].
type ObjectivesState struct {
	All   []SavedObjective
	Ended trace.Nanos
}

// SavedObjective is the saved form of an objective with the counts of its requests.
type SavedObjective struct {
	Objective
	Op             trace.Op
	Fresh          Count
	Minutes, Hours SavedRing
	Contrast       SavedContrast
	Burning        []bool // by alert
	Since          trace.Nanos
	Waived         bool
}

// SavedRing is the saved form of a ring. The latest slot comes last.
type SavedRing struct {
	Last     int64
	Requests []uint64
	Missed   []uint64
}

// State returns the saved form of s. Equal sets have equal states.
func (s *Objectives) State() ObjectivesState {
	saved := ObjectivesState{Ended: s.ended}
	for _, w := range s.all {
		saved.All = append(saved.All, SavedObjective{
			Objective: w.Objective,
			Op:        w.entry,
			Fresh:     w.fresh,
			Minutes:   w.minutes.save(),
			Hours:     w.hours.save(),
			Contrast:  w.contrast.save(),
			Burning:   slices.Clone(w.burning[:]),
			Since:     w.since,
			Waived:    w.waived,
		})
	}
	return saved
}

// Restore sets s to a state returned by State.
func (s *Objectives) Restore(saved *ObjectivesState) {
	s.all, s.ended = nil, saved.Ended
	clear(s.matches)
	for i := range saved.All {
		x := &saved.All[i]
		w := newWatched(x.Objective)
		w.entry, w.fresh, w.since, w.waived = x.Op, x.Fresh, x.Since, x.Waived
		copy(w.burning[:], x.Burning)
		w.minutes.restore(&x.Minutes)
		w.hours.restore(&x.Hours)
		w.contrast.restore(&x.Contrast)
		s.all = append(s.all, w)
	}
}

// save returns the saved form of r, without the slots before the first one with requests.
func (r *ring) save() SavedRing {
	saved := SavedRing{Last: r.last}
	if r.sum(time.Duration(len(r.slots))*r.unit) == (Count{}) {
		return saved
	}
	for n := int64(r.first()) / int64(r.unit); n <= r.last; n++ {
		saved.Requests = append(saved.Requests, r.slot(n).Requests)
		saved.Missed = append(saved.Missed, r.slot(n).Missed)
	}
	return saved
}

func (r *ring) restore(saved *SavedRing) {
	r.last = max(0, saved.Last)
	n := min(len(saved.Requests), len(saved.Missed), len(r.slots), int(min(r.last, int64(len(r.slots))))+1)
	for i := range n {
		*r.slot(r.last - int64(i)) = Count{saved.Requests[len(saved.Requests)-1-i], saved.Missed[len(saved.Missed)-1-i]}
	}
}
