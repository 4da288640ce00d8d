package engine

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// measuredEpochs is the number of epochs for which a measurement by agents stays valid. It is more than one because
// agents report less often than epochs end.
const measuredEpochs = 3

// Offers holds the tracepoints that agents offer, and the agents' latest reports about them.
type Offers struct {
	table *trace.Table
	limit int // maximum number of tracepoints; 0 means no limit
	// catalogues by service; the key 0 is for all services, see [Core.Announce]
	services map[trace.Symbol][]cct.Tracepoint
	costs    map[trace.Symbol]measuredCost // by tracepoint
	// tracepoints that agents reported as unavailable, and when to try them again
	unavailable map[trace.Symbol]trace.Nanos
	removed     map[trace.Symbol]trace.Nanos // tracepoints that have left the catalogue, and when they did
	measured    search.Measured
	at          trace.Nanos                 // when measured was reported
	samples     map[trace.Op]*search.Sample // by baseline operation

	catalogue *cct.Catalogue // of all services, with measured costs; shared by all trees
}

type measuredCost struct {
	CPU   time.Duration
	Bytes int32
}

func newOffers(table *trace.Table, limit int) *Offers {
	return &Offers{
		table:       table,
		limit:       limit,
		services:    make(map[trace.Symbol][]cct.Tracepoint),
		costs:       make(map[trace.Symbol]measuredCost),
		unavailable: make(map[trace.Symbol]trace.Nanos),
		removed:     make(map[trace.Symbol]trace.Nanos),
		samples:     make(map[trace.Op]*search.Sample),
		catalogue:   new(cct.Catalogue),
	}
}

// Catalogue yields the tracepoints that agents have announced, with measured costs.
func (f *Offers) Catalogue() iter.Seq[*cct.Tracepoint] { return f.catalogue.All() }

// Services returns the services whose agents have announced tracepoints, in any order.
func (f *Offers) Services() []string {
	var names []string
	for service := range f.services {
		names = append(names, f.table.Text(service))
	}
	return names
}

// Measured returns the agents' latest measurement, or the zero value before the first.
func (f *Offers) Measured() search.Measured { return f.measured }

// apply applies r, a report from agents, with effect from the end of the epoch. It reports whether the catalogue or the
// costs of tracepoints may have changed.
func (f *Offers) apply(r *search.Feedback) (changed bool) {
	if len(r.Catalogues) > 0 {
		for i := range r.Catalogues { // first, to make room
			delete(f.services, f.table.Symbol(r.Catalogues[i].Service))
		}
		for i := range r.Catalogues {
			f.set(&r.Catalogues[i])
		}
		f.update(r.At)
	}
	if len(r.Costs) > 0 {
		f.setCosts(r.At, r.Costs)
	}
	for _, b := range r.Unavailable {
		if id := f.table.Symbol(b.ID); b.For > 0 {
			f.unavailable[id] = r.At.Add(b.For)
		} else {
			delete(f.unavailable, id)
		}
	}
	if r.Measured != nil {
		f.measured, f.at = *r.Measured, r.At
	}
	for i := range r.Stacks {
		f.sample(r.At, &r.Stacks[i])
	}
	return len(r.Catalogues)+len(r.Costs) > 0
}

// maxSampled limits the number of operations with samples of stacks.
const maxSampled = 4096

// sample adds a sample of the stacks of a service's requests, unless the service offers no tracepoints.
func (f *Offers) sample(at trace.Nanos, from *search.Stacks) {
	service := f.table.Symbol(from.Service)
	if f.services[service] == nil {
		return
	}
	x := &search.Sample{
		Op:       f.operation(service, from.Operation, from.Kind),
		At:       at,
		Requests: float64(from.Requests),
		Time:     float64(from.Time),
	}
	for _, t := range from.Tracepoints {
		x.Points = append(x.Points, search.PointTime{
			Tracepoint: f.table.Symbol(t.ID),
			Total:      float64(t.Total),
			Own:        float64(t.Own),
		})
	}
	slices.SortFunc(x.Points, func(a, b search.PointTime) int { return cmp.Compare(a.Tracepoint, b.Tracepoint) })
	before := f.samples[x.Op]
	if before == nil {
		if len(f.samples) >= maxSampled {
			f.dropSample()
		}
		before = new(search.Sample)
	}
	f.samples[x.Op] = before.Add(x)
}

// dropSample deletes the sample that was updated longest ago.
func (f *Offers) dropSample() {
	var oldest *search.Sample
	for _, x := range f.samples {
		if oldest == nil || cmp.Or(cmp.Compare(x.At, oldest.At), cmp.Compare(x.Op, oldest.Op)) < 0 {
			oldest = x
		}
	}
	delete(f.samples, oldest.Op)
}

// replace replaces the catalogues of all services with catalogue.
func (f *Offers) replace(now trace.Nanos, catalogue []cct.Tracepoint) {
	clear(f.services)
	f.services[0] = catalogue
	f.update(now)
}

// room returns the number of tracepoints that can still be added.
func (f *Offers) room() int {
	if f.limit == 0 {
		return math.MaxInt
	}
	room := f.limit
	for _, list := range f.services {
		room -= len(list)
	}
	return room
}

// set adds the catalogue `from`, unless it is empty. from.Service must not have a catalogue yet. set leaves out the
// tracepoints that exceed the limit. Normally package control refuses agents with too many tracepoints, but after a
// restart it doesn't know the agents that were connected before.
func (f *Offers) set(from *search.Catalogue) {
	service := f.table.Symbol(from.Service)
	announced := from.Tracepoints[:min(len(from.Tracepoints), f.room())]
	if len(announced) == 0 {
		return
	}
	list, ops := make([]cct.Tracepoint, len(announced)), make(map[trace.Symbol]trace.Op, len(announced))
	for i := range announced {
		t := &announced[i]
		x := &list[i]
		*x = cct.Tracepoint{
			ID:       f.table.Symbol(t.ID),
			Op:       f.operation(service, t.Name, t.Span),
			Parent:   f.table.Symbol(t.Parent),
			Cost:     t.Cost,
			Bytes:    t.Bytes,
			Layer:    t.Layer,
			Kind:     t.Kind,
			Baseline: t.Baseline,
		}
		if t.Owner != "" {
			x.Owner = f.operation(service, t.Owner, t.OwnerSpan)
		}
		ops[x.ID] = x.Op
	}
	for i := range list {
		if x := &list[i]; x.Kind == cct.VariablePoint { // a variable has the operation of the span that it annotates
			x.Op = cmp.Or(ops[x.Parent], x.Owner, x.Op)
		}
	}
	f.services[service] = list
}

// operation returns the operation that spans of service with the given name and kind will have.
func (f *Offers) operation(service trace.Symbol, name string, kind trace.Kind) trace.Op {
	return f.table.Op(service, f.table.SymbolBytes(trace.NormalName([]byte(name), nil)), kind)
}

// merge sets f.catalogue to the catalogues of all services, with measured costs.
func (f *Offers) merge() {
	all := slices.Concat(slices.Collect(maps.Values(f.services))...)
	for i := range all {
		if x, known := f.costs[all[i].ID]; known {
			all[i].Cost, all[i].Bytes = x.CPU, x.Bytes
		}
	}
	f.catalogue = cct.NewCatalogue(all, f.table)
}

// owner returns the service whose agents enable the tracepoint with the given id. It returns 0 for a probe, which
// kernel agents enable, and for a tracepoint that isn't in the catalogue.
func (f *Offers) owner(id trace.Symbol) trace.Symbol {
	t := f.catalogue.Find(id)
	if t.Kind == cct.ProbePoint {
		return 0
	}
	return f.table.Operation(t.Op).Service
}

// offers reports whether the catalogue contains the tracepoint with the given id.
func (f *Offers) offers(id trace.Symbol) bool { return f.catalogue.Find(id).ID != 0 }

// update merges the catalogues, and records the tracepoints that are no longer in any of them.
func (f *Offers) update(now trace.Nanos) {
	before := f.catalogue
	f.merge()
	for t := range f.catalogue.All() {
		delete(f.removed, t.ID)
	}
	maps.DeleteFunc(f.samples, func(op trace.Op, _ *search.Sample) bool {
		return f.services[f.table.Operation(op).Service] == nil
	})
	for t := range before.All() {
		if !f.offers(t.ID) {
			f.removed[t.ID] = now
			delete(f.costs, t.ID)
		}
	}
	if excess := len(f.removed) - f.limit; f.limit > 0 && excess > 0 {
		byAge := sorting.Sorted(maps.Keys(f.removed), func(a, b trace.Symbol) int {
			return cmp.Or(cmp.Compare(f.removed[a], f.removed[b]), cmp.Compare(a, b))
		})
		for _, id := range byAge[:excess] {
			delete(f.removed, id)
		}
	}
}

// setCosts records the measured costs of tracepoints that are in a catalogue, and ignores the others.
func (f *Offers) setCosts(at trace.Nanos, costs []search.Cost) {
	for _, x := range costs {
		if id := f.table.Symbol(x.ID); f.offers(id) {
			f.costs[id] = measuredCost{x.CPU, x.Bytes}
		}
	}
	f.update(at)
}

// returnsSoon is the maximum time for which the search waits for a tracepoint that is unavailable at the moment.
const returnsSoon = 2 * time.Minute

// withdrawn returns three ascending lists of tracepoints. list holds all tracepoints that can't be enabled at time now,
// unproven the subset that agents have reported as temporarily unavailable, and returning the subset of unproven that
// can be enabled again within returnsSoon.
func (f *Offers) withdrawn(now trace.Nanos) (list, unproven, returning []trace.Symbol) {
	maps.DeleteFunc(f.unavailable, func(_ trace.Symbol, until trace.Nanos) bool { return until <= now })
	maps.DeleteFunc(f.removed, func(_ trace.Symbol, since trace.Nanos) bool { return now.Sub(since) > cct.MaxAge })
	unproven = slices.Sorted(maps.Keys(f.unavailable))
	list = slices.AppendSeq(slices.Clone(unproven), maps.Keys(f.removed))
	slices.Sort(list)
	for _, tp := range unproven {
		if f.unavailable[tp] <= now.Add(returnsSoon) {
			returning = append(returning, tp)
		}
	}
	return slices.Compact(list), unproven, returning
}

// usage returns the usage that agents measured under plan version plan. It returns the zero value if their latest
// measurement is for another version or is older than age.
func (f *Offers) usage(plan int64, now trace.Nanos, age time.Duration) search.Usage {
	if f.measured.Plan != plan || now.Sub(f.at) > age {
		return search.Usage{}
	}
	return search.Usage{Hits: f.measured.Hits, Bytes: f.measured.Bytes, CPU: f.measured.CPU}
}

// savedHeard is the saved form of [Offers] and of the action log. Lists of services and tracepoints are ascending.
type savedHeard struct {
	Services []savedService
	Costs    []savedCost
	Broken   []savedTime
	Gone     []savedTime
	Measured search.Measured
	At       trace.Nanos
	Said     []string
	Samples  []search.Sample `cbor:",omitempty"` // ascending by operation
}

type savedService struct {
	Service     trace.Symbol
	Tracepoints []cct.Tracepoint
}

type savedCost struct {
	ID   trace.Symbol
	Cost measuredCost
}

type savedTime struct {
	ID trace.Symbol
	At trace.Nanos
}

// save implements section.
func (f *Offers) save(s *savedCore) {
	h := &s.Heard
	h.Measured, h.At, h.Broken, h.Gone = f.measured, f.at, savedTimes(f.unavailable), savedTimes(f.removed)
	for _, service := range slices.Sorted(maps.Keys(f.services)) {
		h.Services = append(h.Services, savedService{service, f.services[service]})
	}
	for _, id := range slices.Sorted(maps.Keys(f.costs)) {
		h.Costs = append(h.Costs, savedCost{id, f.costs[id]})
	}
	for _, op := range slices.Sorted(maps.Keys(f.samples)) {
		h.Samples = append(h.Samples, *f.samples[op])
	}
}

func savedTimes(m map[trace.Symbol]trace.Nanos) []savedTime {
	var list []savedTime
	for _, id := range slices.Sorted(maps.Keys(m)) {
		list = append(list, savedTime{id, m[id]})
	}
	return list
}

// restore implements section.
func (f *Offers) restore(saved *savedCore) error {
	s := &saved.Heard
	f.measured, f.at = s.Measured, s.At
	for _, x := range s.Services {
		if list := x.Tracepoints[:min(len(x.Tracepoints), f.room())]; len(list) > 0 {
			f.services[x.Service] = list
		}
	}
	for _, x := range s.Costs {
		f.costs[x.ID] = x.Cost
	}
	for i := range s.Samples {
		f.samples[s.Samples[i].Op] = &s.Samples[i]
	}
	for _, x := range s.Broken {
		f.unavailable[x.ID] = x.At
	}
	for _, x := range s.Gone {
		f.removed[x.ID] = x.At
	}
	f.merge()
	return nil
}
