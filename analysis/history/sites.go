// Package history counts the calls of a running service. A [Tally] counts calls of closed traces by [Site] and [Slice]
// of time. [Sites] merges tallies, and keeps two hours of them in few bytes: calls, own times and shapes of each site
// ([Series]), by instance, host, zone and version ([Instance]), and by hour of the last week ([Week]). Sites ages its
// content, excludes times when services were unhealthy ([Sites.Skip]), and encodes itself for checkpoints. It also
// reports the rates and errors of the calls ([Sites.Uses]). Package compare judges them.
//
// The package is pure, like package analysis, and uses critical paths only.
package history

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Sites is the history of the sites of a running service: the calls at each, by slices of time. Its counterpart
// compare.Recording keeps every call. Sites is not safe for concurrent use.
//
// Each exported field owns its state, the methods that read it, and its section of the encoded history. Other packages
// must only read the fields.
//
// The content does not depend on the order of merging tallies, unless the limit on sites is reached.
type Sites struct {
	Limit int // maximum number of sites; 0, or more than MaxSites, means MaxSites

	Services  Services
	Requests  Requests
	Instances Instances
	Durations Durations
	Messages  Messages
	Skipped   Skipped
	Changes   Changes
	addresses addresses
	answerers *answerers // nil if not yet known

	table   *trace.Table
	numbers map[SiteKey]int32
	sites   []Site   // by number; the first is unused
	targets []target // by number of the site
	series  []Series
	judged  map[Callee]bool // operations at the sites
	shapes  int             // of all sites
	refused uint64          // calls at sites without room

	folded Slice // cells before it cover minutes
	hour   Hour  // the first hour that is not yet in the weeks of the sites

	unpacked Cells // scratch
}

// Limits on a history.
const (
	// MaxSites is the upper bound of [Sites.Limit]. That many sites take less than 100 MB with all shapes and
	// instances.
	MaxSites = 20_000
	// spareShare is the reciprocal of the fraction of the limit that we try to keep free by deleting sites without
	// calls.
	spareShare = 8
	// serviceShare bounds the sites of a service to 1/serviceShare of the limit, so that a service with IDs in the
	// names of its operations leaves room for the others. Calls at further sites count at one extra site, named
	// [trace.Overflow].
	serviceShare = 4
	// SiteShapes is the maximum number of shapes of a site. Calls of other shapes count as one shape of hash 0.
	SiteShapes = 16
	// maxAllShapes is the maximum number of shapes of all sites together, not counting hash 0.
	maxAllShapes = 3 * MaxSites
	// Span is the time that a history covers, not counting skipped times.
	Span = 2 * time.Hour

	// fineSlices is the number of latest slices that keep cells of their own. Older slices are joined into minutes.
	fineSlices = 5 * SlicesPerMinute
	// longestHistory and Ahead are the maximum times before and after now that a history covers. Traces outside this
	// time have wrong clocks.
	longestHistory = Slice(7 * 24 * time.Hour / SliceLength)
	Ahead          = SlicesPerMinute
	// keptSkipped is the time for which the calls of skipped slices are kept, in case a person accepts them as normal.
	// It is long enough for windows to be judged by these calls until the end of the hour.
	keptSkipped = 65 * SlicesPerMinute
)

// NewSites returns an empty history. table must contain the names of a tally before the tally is merged. The history
// itself adds the steps.
func NewSites(table *trace.Table) *Sites {
	h := &Sites{
		Requests:  Requests{entries: make(map[entryKey]*entry)},
		Instances: newInstances(),
		Durations: newDurations(),
		table:     table,
	}
	h.clear()
	return h
}

// clear deletes all sites and services.
func (h *Sites) clear() {
	h.Services, h.judged, h.shapes = newServices(), make(map[Callee]bool), 0
	h.numbers = make(map[SiteKey]int32)
	h.sites, h.targets, h.series = make([]Site, 1), make([]target, 1), make([]Series, 1)
}

// limit returns the maximum number of sites.
func (h *Sites) limit() int { return min(cmp.Or(h.Limit, MaxSites), MaxSites) }

// serviceLimit returns the maximum number of sites of a service.
func (h *Sites) serviceLimit() int { return h.limit() / serviceShare }

// Len returns the number of sites.
func (h *Sites) Len() int { return len(h.sites) - 1 }

// Operations returns the number of operations at the sites. A suspect has a score for each of them.
func (h *Sites) Operations() int { return len(h.judged) }

// Refused returns the number of calls at sites beyond the limit.
func (h *Sites) Refused() uint64 { return h.refused }

// Table returns the table of the names of the history.
func (h *Sites) Table() *trace.Table { return h.table }

// All returns the sites by number, from 1; the first element is unused. The caller must not change them, nor keep them
// beyond the next [Sites.Age].
func (h *Sites) All() []Site { return h.sites }

// Series returns the history of site `number`. The pointer is valid until h changes.
func (h *Sites) Series(number int32) *Series { return &h.series[number] }

// Learned returns the first hour that is not yet in the weeks of the sites.
func (h *Sites) Learned() Hour { return h.hour }

// Long reports whether the requests with calls at site `number` are long, and returns their typical duration in ns if
// they are. The times at such a site are measured against it instead of the duration of other requests.
func (h *Sites) Long(number int32) (nanos float64, long bool) {
	within, from := h.series[number].within, h.Requests.longFrom
	if from == 0 || within.Octaves() < from {
		return 0, false
	}
	return within.Nanos(), true
}

// Merge adds a tally. It adds new sites in the order of their keys, so which sites find room doesn't depend on the
// order of the calls in the tally.
func (h *Sites) Merge(t *Tally) {
	h.Instances.merge(t, h.folded, h.Requests.isLong)
	h.addresses.merge(&t.answers)
	h.Messages.merge(&t.messages)
	numbers, lost := h.numbersOf(t)
	for _, at := range slices.Sorted(maps.Keys(t.slices)) {
		s := t.slices[at]
		if at < h.folded {
			at = at.minute()
		}
		h.Skipped.arrive(at)
		if at < h.Changes.compared {
			h.Changes.past = h.Changes.next()
		}
		for key, c := range s.requests {
			h.Requests.add(key, Cell{Slice: at, Calls: uint32(c.calls), Nanos: c.nanos, logs: c.logs})
		}
		for k := range s.cells {
			c := &s.cells[k]
			switch number := numbers[k]; {
			case c.calls == 0:
			case number == Overflow:
				h.refused += c.calls
			default:
				if lost[k] {
					c.loseAnswers()
				} else if t.sites[k].reached == 0 && !h.targets[number].external {
					h.targets[number].direct = true
				}
				h.series[number].changed = h.Changes.next()
				h.series[number].merge(at, c, &h.shapes)
			}
		}
	}
	h.Durations.merge(t, h)
}

// numbersOf returns, for each site of a tally, its number in h, and whether the answers to its calls were lost. It adds
// new sites.
func (h *Sites) numbersOf(t *Tally) (numbers []int32, lost []bool) {
	numbers, lost = make([]int32, len(t.sites)), make([]bool, len(t.sites))
	sites := make([]tallySite, len(t.sites))
	var added []int32
	for i := range t.sites {
		sites[i], lost[i] = h.resolved(&t.sites[i])
		number, known := h.numbers[sites[i].SiteKey]
		if !known {
			added = append(added, int32(i))
		}
		numbers[i] = number
	}
	sorting.Slice(added, func(a, b int32) int { return sites[a].Compare(sites[b].SiteKey) })
	for _, i := range added {
		numbers[i] = h.admit(&sites[i])
	}
	return numbers, lost
}

// admit returns the number of site s, creating it if necessary. If the service of s has too many sites, it returns the
// number of the site that stands for all further sites. It returns Overflow if h is full, or if the service has too
// many sites and s is a border, because the calls of a border also count at the service that answers.
func (h *Sites) admit(s *tallySite) int32 {
	if !h.Services.full(s.service, h.serviceLimit()) {
		return h.number(s)
	}
	if s.Border {
		return Overflow
	}
	other := h.table.Op(s.service, h.table.Symbol(trace.Overflow), trace.Internal)
	return h.number(&tallySite{tallyKey: tallyKey{SiteKey: SiteKey{Op: other}}, base: other, service: s.service})
}

// number returns the number of site s, creating it if necessary, or Overflow if h is full.
func (h *Sites) number(s *tallySite) int32 {
	if i, ok := h.numbers[s.SiteKey]; ok {
		return i
	}
	if len(h.sites) > h.limit() {
		return Overflow
	}
	i, service := int32(len(h.sites)), h.Services.add(s.service)
	h.numbers[s.SiteKey] = i
	h.table.Step(s.base, s.target)
	h.sites = append(h.sites, Site{
		SiteKey: s.SiteKey,
		Base:    s.base,
		Service: service,
		Client:  s.client,
		Queue:   !s.Border && !s.client && h.table.Operation(s.base).Kind == trace.External,
		Inner:   !s.Border && s.inner(h.table),
	})
	target := h.targetOf(s)
	if target.service != 0 {
		h.Services.calls[servicePair{service, target.service}] = true
	}
	h.targets, h.series = append(h.targets, target), append(h.series, Series{})
	h.Services.sites[service]++
	if !s.Border {
		h.judged[Callee{service, s.Op}] = true
	}
	return i
}

// Skip excludes the calls at the sites of services from the history, because the services are not healthy. It applies
// to traces that start in i, and to all calls if services is empty. It replaces an earlier skip with the same id. The
// interval is extended to the start of its first minute, because the calls of that minute will be joined.
func (h *Sites) Skip(id uint64, i Interval, services ...trace.Symbol) {
	from, changed := h.Skipped.put(skip{
		Range{SliceOf(i.From).minute(), SliceOf(i.To) + 1},
		id, slices.Compact(slices.Sorted(slices.Values(services))),
	})
	if changed {
		h.Changes.skip(from)
	}
}

// Accept declares the behaviour of service in interval `since` to be normal. The interval is no longer skipped for any
// service. Earlier calls of and to the service are deleted, as are the weeks of their sites. Accept takes time linear
// in the number of cells.
func (h *Sites) Accept(service trace.Symbol, since Interval) {
	h.Skipped.remove(Range{SliceOf(since.From).minute(), SliceOf(since.To) + 1})
	h.Changes.all = h.Changes.next()
	h.Changes.past = h.Changes.all
	number := h.Services.Number(service)
	if number == 0 {
		return
	}
	callees, _ := h.Callees(nil)
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].Service == number || callees[i].Service == number {
			h.series[i].changed, h.series[i].Week = h.Changes.next(), nil
			h.series[i].age(&aging{keep: Range{SliceOf(since.From), maxSlice}}, &h.shapes)
		}
	}
	h.Instances.forget(service, SliceOf(since.From))
}

// Age ends an epoch. If a minute has ended since the last call, it joins old slices into minutes, and deletes slices
// that the history no longer covers at time now and slices from wrong clocks. If there is little room left, it also
// deletes idle sites, and renumbers the others.
func (h *Sites) Age(now trace.Nanos) {
	h.addresses.learn(SliceOf(now))
	h.settle()
	h.Durations.age(SliceOf(now))
	from, to := h.folded, (SliceOf(now) - fineSlices).minute()
	if to <= from {
		return
	}
	h.folded = to
	h.Changes.past = h.Changes.next()
	h.learnHours(now)
	plausible := Range{SliceOf(now) - longestHistory, SliceOf(now) + Ahead}
	h.Requests.total = h.Requests.total.Within(plausible).fold(from, to)
	coverages := h.Skipped.coverages(SliceOf(now)-keptSkipped, &h.Services, &h.Requests)
	a := &aging{fold: Range{from, to}}
	of := func(service int32) *aging {
		c := &coverages[service]
		a.keep, a.skips, a.forgotten = Range{max(c.oldest, plausible.From), plausible.To},
			len(c.skipped) > 0, c.forgotten
		return a
	}
	h.Requests.age(of(0), coverages[0].skipped, h.folded)
	for i := range h.series {
		if s := &h.series[i]; s.age(of(h.sites[i].Service), &h.shapes) {
			s.changed = h.Changes.next()
		}
	}
	idle := SliceOf(now) - Slice(Span/SliceLength)
	h.Instances.age(func(service trace.Symbol) *aging { return of(h.Services.Number(service)) }, idle)
	if scarce := h.Len() > h.limit()-h.limit()/spareShare; scarce || h.Services.crowded(h.serviceLimit()) {
		h.evict(idle, scarce)
	}
	h.Skipped.skips = slices.DeleteFunc(h.Skipped.skips, func(s skip) bool { return s.To <= coverages[0].oldest })
}

// evict deletes sites without calls since slice `since`: of all services if `all` is true, otherwise only of services
// with too many sites. It also deletes services that no remaining site names, and renumbers the remaining sites and
// services.
func (h *Sites) evict(since Slice, all bool) {
	old := *h
	h.clear()
	h.Changes.renumbered, h.answerers = h.Changes.next(), nil
	for i := 1; i < len(old.sites); i++ {
		s, service := &old.sites[i], old.Services.names[old.sites[i].Service]
		if old.series[i].Last() < since && (all || old.Services.full(service, h.serviceLimit())) {
			continue
		}
		number := h.number(&tallySite{
			tallyKey: tallyKey{SiteKey: s.SiteKey},
			base:     s.Base,
			target:   old.targets[i].step,
			service:  service,
			client:   s.Client,
		})
		h.series[number] = old.series[i]
		h.shapes += len(old.series[i].Shapes)
		h.targets[number].knownTarget = old.targets[i].knownTarget
	}
}

// JoinMessages adds the times that messages waited until a span of another trace took them, for messages whose two
// traces are known, and forgets old messages. Call it once per epoch, after merging the tallies of that epoch, because
// it may add sites.
func (h *Sites) JoinMessages(now trace.Nanos) { h.Merge(h.Messages.join(now)) }

// LatestOf returns the end of the latest slice with a call to one of the given operations of a service, or now if that
// is earlier. An empty list selects all operations of the service. LatestOf returns 0 if there are no such calls. For a
// service without spans, the calls that others make to it count.
func (h *Sites) LatestOf(service trace.Symbol, operations []trace.Op, now trace.Nanos) trace.Nanos {
	newest := Slice(-1)
	for s := range h.seriesOf(service, operations) {
		newest = max(newest, s.Last())
	}
	return min(now, (newest + 1).Start())
}

// CallsOf returns the number of calls that LatestOf would select and whose traces started in the interval. Both ends of
// the interval must be starts of slices.
func (h *Sites) CallsOf(service trace.Symbol, operations []trace.Op, in Interval) (calls uint64) {
	within := in.Slices()
	for s := range h.seriesOf(service, operations) {
		if s.Last() >= within.From {
			calls += s.Within(within).Calls()
		}
	}
	return calls
}

// seriesOf yields the series of the calls that LatestOf selects.
func (h *Sites) seriesOf(service trace.Symbol, operations []trace.Op) iter.Seq[*Series] {
	number := h.Services.Number(service)
	counts := func(op trace.Op) bool { return len(operations) == 0 || slices.Contains(operations, op) }
	return func(yield func(*Series) bool) {
		for i := 1; i < len(h.sites); i++ {
			s, t := &h.sites[i], &h.targets[i]
			external := t.external && t.service == number
			if !s.Border && (s.Service == number && counts(s.Op) || external && (counts(t.op) || counts(s.Op))) &&
				!yield(&h.series[i]) {
				return
			}
		}
	}
}
