package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// Objective limits the share of the requests of an entry that are slow or fail. It misses nothing until its error
// budget, that share, is spent many times faster than it allows; see alerts.
type Objective struct {
	Name  string // empty: none
	Entry string // a service and an operation, like "shop GET /cart", or a service: all its entries
	// Below is the duration that a share of the requests must not reach, and Percentile that share in percent; 0: the
	// objective is about failures.
	Below      time.Duration
	Percentile float64
	Errors     float64 // share of the requests that may fail
}

// Budget returns the share of the requests that may miss o, in (0, 1).
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

// Valid reports whether the budget is within (0, 1), and only that of a latency or that of failures is given.
func (o *Objective) Valid() bool {
	budget := o.Budget()
	return o.Entry != "" && o.Below >= 0 && budget > 0 && budget < 1 && (o.Below > 0 == (o.Errors == 0))
}

// counted identifies the requests that count against an objective: those of an entry that are slow or that fail. They
// stay the same if only the name or the budget changes.
type counted struct {
	entry string
	below time.Duration
}

func (o *Objective) counted() counted { return counted{o.Entry, o.Below} }

// SameRequests reports whether the same requests count against two objectives.
func (o *Objective) SameRequests(as *Objective) bool { return o.counted() == as.counted() }

// alerts are the pairs of windows that find an objective that burns, as in Google's SRE workbook, chapter 5: the budget
// of the long window is spent at a multiple of the rate that would last for 30 days, so that it matters, and so is that
// of the short one, so that it still goes on. The first finds that 2 % of the budget of 30 days are spent in an hour,
// the second 5 % in six.
var alerts = [...]struct {
	long, short time.Duration
	rate        float64
}{{time.Hour, 5 * time.Minute, 14.4}, {6 * time.Hour, 30 * time.Minute, 6}}

// leastMissed is the number of slow or failed requests in the long window from which an objective burns. With fewer,
// chance does: if requests just meet an objective, an average of 10⁄6 of them is expected where six times as many burn
// it, and ten or more occur once in 80 000 windows.
const leastMissed = 10

// rateOf returns the burn rate of an alert for a budget. Of a budget of a tenth no requests spend 14.4 times as much:
// half of the requests that should meet the objective are enough.
func rateOf(alert int, budget float64) float64 { return min(alerts[alert].rate, (1+1/budget)/2) }

// Periods for which requests are counted: those of the alerts by minute, and the month of the budget by hour.
const (
	alertPeriod = 6 * time.Hour
	// BudgetPeriod is the time for which the remaining budget is given.
	BudgetPeriod = 30 * 24 * time.Hour
)

// Count counts requests.
type Count struct {
	Requests uint64
	Missed   uint64 // those that were slow, or failed
}

// Share returns the share of the requests that missed; 0 if there are none.
func (c Count) Share() float64 { return float64(c.Missed) / float64(max(1, c.Requests)) }

func (c *Count) add(d Count) {
	c.Requests += d.Requests
	c.Missed += d.Missed
}

// ring counts requests by slots of time, the latest ones.
type ring struct {
	unit  time.Duration
	slots []Count // by number of the slot, modulo their number; empty before the first request
	last  int64   // number of the latest slot
}

func newRing(period, unit time.Duration) ring {
	return ring{unit: unit, slots: make([]Count, period/unit)}
}

// number returns the number of the slot that contains the time just before an instant.
func (r *ring) number(t trace.Nanos) int64 { return (int64(t) - 1) / int64(r.unit) }

func (r *ring) slot(number int64) *Count { return &r.slots[number%int64(len(r.slots))] }

// advance makes the slot before now the latest one.
func (r *ring) advance(now trace.Nanos) {
	n := r.number(now)
	for k := max(r.last+1, n-int64(len(r.slots))+1); k <= n; k++ {
		*r.slot(k) = Count{}
	}
	r.last = max(r.last, n)
}

// add counts requests that ended just before an instant, none later than the latest slot, unless that is too long ago.
func (r *ring) add(t trace.Nanos, c Count) {
	if n := r.number(t); n > r.last-int64(len(r.slots)) && n >= 0 {
		r.slot(min(n, r.last)).add(c)
	}
}

// sum returns the requests of the latest slots, as many as a window has.
func (r *ring) sum(window time.Duration) (sum Count) {
	for n := range r.latest(window) {
		sum.add(*r.slot(n))
	}
	return sum
}

// latest yields the numbers of the latest slots of a window, the latest first.
func (r *ring) latest(window time.Duration) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for n := r.last; n >= 0 && n > r.last-int64(min(window, time.Duration(len(r.slots))*r.unit)/r.unit); n-- {
			if !yield(n) {
				return
			}
		}
	}
}

// covers reports whether a slot before the latest ones of a window has requests, or the earliest of these: the window
// is known.
func (r *ring) covers(window time.Duration) bool {
	n := int64(0)
	for k := range r.latest(time.Duration(len(r.slots)) * r.unit) {
		if n++; n >= int64(window/r.unit) && r.slot(k).Requests > 0 {
			return true
		}
	}
	return false
}

// first returns the beginning of the first slot with requests; 0 if there is none.
func (r *ring) first() (first trace.Nanos) {
	for n := range r.latest(time.Duration(len(r.slots)) * r.unit) {
		if r.slot(n).Requests > 0 {
			first = trace.Nanos(n * int64(r.unit))
		}
	}
	return first
}

// onset estimates when requests began to miss an objective, in the latest slots of a window: as for
// [compare.Comparer.Onset], where the sum of the misses up to the end, each slot less half of the share of the last
// ones, is largest.
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

// Objectives counts requests against objectives and finds those that burn. It is not safe for concurrent use.
type Objectives struct {
	table   *trace.Table
	all     []*watched
	matches map[trace.Op][]*watched // cache: the objectives of an entry
	ended   trace.Nanos             // end of the last epoch
}

// maxEntries bounds the cache of entries.
const maxEntries = 1 << 16

// watched is an objective with its requests.
type watched struct {
	Objective
	entry          trace.Op // the smallest of its entries; 0: no request yet
	fresh          Count    // that ended after the last epoch
	minutes, hours ring
	contrast       contrast
	burning        [len(alerts)]bool
	since          trace.Nanos // end of the epoch since which any of these is true; 0: none
	waived         bool        // a person accepted it as it is, until it stops burning
}

// NewObjectives returns a set without objectives, for operations of a table.
func NewObjectives(table *trace.Table) *Objectives {
	return &Objectives{table: table, matches: make(map[trace.Op][]*watched)}
}

// Set replaces the objectives. An objective about the same requests as an old one keeps their counts.
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

// of returns the objectives of requests with an entry.
func (s *Objectives) of(entry trace.Op) []*watched {
	found, known := s.matches[entry]
	if known {
		return found
	}
	service := s.table.ServiceName(entry)
	name := service + " " + s.table.OpName(entry)
	for _, w := range s.all {
		if w.Entry == service || w.Entry == name {
			found = append(found, w)
		}
	}
	if len(s.matches) < maxEntries {
		s.matches[entry] = found
	}
	return found
}

// Watches reports whether there is an objective for requests with an entry.
func (s *Objectives) Watches(entry trace.Op) bool { return len(s.all) > 0 && len(s.of(entry)) > 0 }

// Request is a request as objectives judge it.
type Request struct {
	Entry    trace.Op
	Ended    trace.Nanos
	Duration time.Duration
	Failed   bool
	Steps    []Step
}

// Observe counts a request. The order of the requests of an epoch does not matter. Those that end after the last epoch
// count at the end of the present one: their clocks may be wrong. It keeps nothing of r.
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

// Burn is an objective that burns: requests spend its budget too fast, and did so until now.
type Burn struct {
	Missed
	Since trace.Nanos // estimated beginning
	// Suspects are the services where the requests that missed it lose time, or where their failures begin, those that
	// cost most first. Duration is the mean of the other requests in ns, the unit of times in Suspects; 0: unknown.
	Suspects []compare.Suspect
	Duration float64
	// Services are those that its requests run through, or wait for, ascending. The caller of [Objectives.Step] adds
	// them.
	Services []trace.Symbol
}

// Missed is an objective that requests miss, with the figures of an epoch.
type Missed struct {
	Objective
	Service  trace.Symbol  // of its requests
	Op       trace.Op      // an entry of them
	Window   time.Duration // the long window of the alert
	Requests Count         // in the window
	Rate     float64       // at which they spend the budget, in relation to the rate at which it would just last
	At       trace.Nanos   // end of the last epoch in which it burned
}

// Fast reports whether the alert with the shortest windows found m: the budget of 30 days lasts for two at most.
func (m *Missed) Fast() bool { return m.Window <= alerts[0].long }

// Step ends an epoch at time now and returns the objectives that burn, in their order. One that burns goes on until the
// rate in its short window is half of the one that raised it, so that it does not come and go at the threshold.
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
			b.Suspects, b.Duration = w.contrast.suspects(s.table, w.Below > 0, w.minutes.sum(now.Sub(b.Since)+time.Minute).Share())
			burns = append(burns, b)
		}
	}
	return burns
}

// judge renews burning and returns the first alert that burns; -1 if none does.
func (w *watched) judge(now trace.Nanos) int {
	first := -1
	for i, a := range alerts {
		rate := rateOf(i, w.Budget())
		if w.burning[i] {
			rate *= keeping
		}
		long := w.minutes.sum(a.long)
		// The windows differ only if there are requests before the short one.
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

// rate returns the rate at which some requests spend the budget: 1 if it just lasts.
func (w *watched) rate(c Count) float64 { return c.Share() / w.Budget() }

func (w *watched) burn(now trace.Nanos, alert int) Burn {
	a := alerts[alert]
	requests := w.minutes.sum(a.long)
	return Burn{
		Missed: Missed{Objective: w.Objective, Op: w.entry, Window: a.long, Requests: requests, Rate: w.rate(requests), At: now},
		Since:  w.minutes.onset(a.long, a.short),
	}
}

// Matches reports whether an objective is about requests with an entry.
func (s *Objectives) Matches(o *Objective, entry trace.Op) bool {
	return slices.ContainsFunc(s.of(entry), func(w *watched) bool { return w.counted() == o.counted() })
}

// Waive ignores that objectives burn, until they stop.
func (s *Objectives) Waive(missed []Missed) {
	for _, w := range s.all {
		if w.since != 0 && slices.ContainsFunc(missed, func(m Missed) bool { return m.counted() == w.counted() }) {
			w.waived = true
		}
	}
}

// ObjectiveStatus is the present state of an objective.
type ObjectiveStatus struct {
	Objective
	Op      trace.Op    // an entry of its requests; 0: there was none
	Burning trace.Nanos // end of the epoch since which it burns; 0: it does not
	Waived  bool        // a person accepted that it burns
	Month   Count       // the requests of BudgetPeriod
	From    trace.Nanos // beginning of the first of these hours with requests, or of its first minute if it is recent; 0: none
	// Remaining is the part of the budget of these requests that is left: negative if it is overspent.
	Remaining float64
	Rates     []BurnRate // by length of the window, ascending
}

// BurnRate is the rate at which the requests of a window spend a budget, and the rate that raises an incident.
type BurnRate struct {
	Window      time.Duration
	Requests    Count
	Rate, Alert float64
}

// first returns about when the first requests came that are counted; 0 if none are.
func (w *watched) first() trace.Nanos {
	hour, minute := w.hours.first(), w.minutes.first()
	if minute < hour.Add(w.hours.unit) {
		return max(hour, minute)
	}
	return hour
}

// Status returns the state of the objectives at the end of the last epoch, in their order.
func (s *Objectives) Status() []ObjectiveStatus {
	all := make([]ObjectiveStatus, 0, len(s.all))
	for _, w := range s.all {
		x := ObjectiveStatus{Objective: w.Objective, Op: w.entry, Burning: w.since, Waived: w.waived, From: w.first(), Remaining: 1}
		x.Month = w.hours.sum(BudgetPeriod)
		x.Remaining -= w.rate(x.Month)
		for i, a := range alerts {
			for _, window := range []time.Duration{a.short, a.long} {
				c := w.minutes.sum(window)
				x.Rates = append(x.Rates, BurnRate{window, c, w.rate(c), rateOf(i, w.Budget())})
			}
		}
		slices.SortFunc(x.Rates, func(a, b BurnRate) int { return cmp.Compare(a.Window, b.Window) })
		all = append(all, x)
	}
	return all
}

// ObjectivesState is the saved form of [Objectives].
type ObjectivesState struct {
	All   []SavedObjective
	Ended trace.Nanos
}

// SavedObjective is an objective with its requests.
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

// SavedRing has the counts of the latest slots of time, the last one last.
type SavedRing struct {
	Last     int64
	Requests []uint64
	Missed   []uint64
}

// State returns the state of s. Equal sets give equal states.
func (s *Objectives) State() ObjectivesState {
	saved := ObjectivesState{Ended: s.ended}
	for _, w := range s.all {
		saved.All = append(saved.All, SavedObjective{
			w.Objective, w.entry, w.fresh, w.minutes.save(), w.hours.save(), w.contrast.save(), slices.Clone(w.burning[:]), w.since, w.waived,
		})
	}
	return saved
}

// Restore sets s to a state that State returned.
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

// save leaves out the slots before the first one with requests.
func (r *ring) save() SavedRing {
	saved := SavedRing{Last: r.last}
	if r.sum(time.Duration(len(r.slots))*r.unit) == (Count{}) {
		return saved
	}
	for n := int64(r.first()) / int64(r.unit); n <= r.last; n++ {
		saved.Requests, saved.Missed = append(saved.Requests, r.slot(n).Requests), append(saved.Missed, r.slot(n).Missed)
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
