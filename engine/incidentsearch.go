package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// incidentSearch collects the time that requests spend inside the operations of an open incident's first suspect and in
// calls to it. The search treats this time as one problem across all request types, as if each operation were an entry.
type incidentSearch struct {
	incident uint64
	service  trace.Symbol
	onset    trace.Nanos // of the incident
	// baseline steps that run in the service or call it, and callers' own steps; see addOperations
	operations map[trace.Op]bool
	callers    bool // whether operations includes callers' own steps
	since      trace.Nanos
	requests   uint64                     // requests after since that ran any of the operations
	spent      map[spentKey]stats.Moments // own times; requests that didn't run the operation are not counted
	refinements
	scanned map[analysis.Hash]int // number of edges of each request type when its steps were added
	problem detect.Problem        // as of the last epoch
	tree    *cct.Tree             // inside the operations, over all request types; as of the last epoch
}

// spentKey identifies the own time of an operation in the requests of one type.
type spentKey struct {
	requestType analysis.Hash
	operation   trace.Op
}

func (k spentKey) compare(o spentKey) int {
	return cmp.Or(cmp.Compare(k.operation, o.operation), k.requestType.Compare(o.requestType))
}

func (s *incidentSearch) subject() search.Subject { return search.OfIncident(s.incident) }

// leastSearched is the share of a suspect's score that must be added latency before the search of an incident starts:
// less may only be chance.
const leastSearched = 0.05

// searchable reports whether the search can locate what s costs: latency that requests wait for. It can't locate
// failures, missing requests, or waits in a queue. started tells whether the incident is searched already.
func searchable(s *compare.Suspect, started bool) bool {
	added := s.AddedTime()
	return s.Queue() == nil && added > 0 && (started || added >= leastSearched*s.Score)
}

// mayBeCallers reports whether most of the latency of s lies between its callers' calls and its own spans.
func mayBeCallers(s *compare.Suspect) bool { return s.In > s.Score/2 }

func newIncidentSearch(x *incident.Incident, now trace.Nanos) *incidentSearch {
	return &incidentSearch{
		incident:    x.ID,
		service:     x.Suspects[0].Service,
		operations:  make(map[trace.Op]bool),
		since:       now,
		spent:       make(map[spentKey]stats.Moments),
		refinements: *newRefinements(),
		scanned:     make(map[analysis.Hash]int),
	}
}

// addOperations adds the steps that run in s.service or call it, from the critical paths of all request types. If a
// caller has no spans for its calls, we can't tell its own time around a call from time in transit. If most of the
// suspect's latency is of this kind, addOperations therefore adds the steps of such callers as well.
func (s *incidentSearch) addOperations(groups *group.Grouper, table *trace.Table) {
	for g := range groups.Each() {
		if g.Level != group.LevelRequestType {
			continue
		}
		edges := g.Edges()
		if s.scanned[g.ID] == len(edges) {
			continue
		}
		s.scanned[g.ID] = len(edges)
		for _, e := range edges {
			at := table.Context(table.EdgeInfo(e).Context)
			if !concerns(table, at.Op, s.service) {
				continue
			}
			s.operations[at.Op] = true
			if caller := table.Context(at.Parent).Op; s.callers && caller != 0 &&
				table.Operation(at.Op).Service == s.service {
				s.operations[caller] = true
			}
		}
	}
}

// observe adds the times that a request spends inside the operations of s. inside is the part of the request inside
// these operations.
func (s *incidentSearch) observe(requestType analysis.Hash, inside *observation.Observation) {
	s.requests++
	for i := range inside.Edges {
		e := &inside.Edges[i]
		k := spentKey{requestType, inside.Context(e.Context).Step()}
		m := s.spent[k]
		m.Add(e.Nanos)
		s.spent[k] = m
	}
}

// loss is the latency that an operation adds to requests of all types. All fields are sums over requests.
type loss struct {
	requests, nanos           float64
	compared                  float64 // number of requests of types that have healthy requests to compare with
	excess, variance, squares float64 // of the compared requests; squares is the square of excess's standard error
}

// problemAt presents the times in s as a problem. It compares the current mean of each operation with its mean in
// healthy requests of the same type.
func (s *incidentSearch) problemAt(now trace.Nanos, groups *group.Grouper, table *trace.Table) detect.Problem {
	p := detect.Problem{
		Kind:     detect.KindSlow,
		Onset:    detect.Changed,
		Requests: s.requests,
		CoV:      math.NaN(),
		CoVLow:   math.NaN(),
		CoVHigh:  math.NaN(),
	}
	usual := s.usuallySpent(groups, table)
	losses := make(map[trace.Op]*loss)
	for _, k := range sorting.Sorted(maps.Keys(s.spent), spentKey.compare) {
		x := losses[k.operation]
		if x == nil {
			x = &loss{}
			losses[k.operation] = x
		}
		before, ran := usual[k]
		if !ran { // e.g. a new query for each row: all of its time is excess
			before = healthyWithout(groups, k.requestType)
		}
		x.add(s.spent[k], before)
	}
	total := 0.0
	for _, op := range slices.Sorted(maps.Keys(losses)) {
		x := losses[op]
		total += max(0, x.excess)
		at := table.Child(0, op)
		e := x.edge(at)
		table.AddEdge(e.Edge, trace.EdgeInfo{Context: at})
		p.Edges = append(p.Edges, e)
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		e.Score = max(0, losses[table.Context(e.Context).Op].excess) / max(1, total)
	}
	sorting.Slice(p.Edges, func(a, b group.EdgeShare) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Edge, b.Edge))
	})
	if elapsed := now.Sub(s.since).Seconds(); elapsed > 0 {
		p.Rate = float64(p.Requests) / elapsed
	}
	return p
}

// healthyWithout returns the usual times of an operation that no healthy request of the type ran: one zero per healthy
// request. It returns the zero value if the type is unknown.
func healthyWithout(groups *group.Grouper, requestType analysis.Hash) stats.Moments {
	g := groups.Group(requestType)
	if g == nil {
		return stats.Moments{}
	}
	return stats.Moments{N: g.Reference.Tally.Total.N}
}

// add adds the times that requests of one type spent in the operation: now and, in healthy requests, before. If the
// type has no healthy requests to compare with, the excess doesn't change.
func (x *loss) add(now, before stats.Moments) {
	excess := stats.Excess(now, before)
	n := float64(now.N)
	x.requests += n
	x.nanos += n * now.Mean()
	if excess.Valid() {
		x.compared += n
		half := n * (excess.High - excess.Value) / stats.Normal95
		x.excess += n * excess.Value
		x.variance += n * (now.Variance() - before.Variance())
		x.squares += half * half
	}
}

// edge returns the operation's own time as an edge of the context `at`. The excess is NaN if no requests were compared.
func (x *loss) edge(at trace.Context) group.EdgeShare {
	half := stats.Normal95 * math.Sqrt(x.squares) / x.compared
	e := group.EdgeShare{
		Edge:          trace.ContextEdge(at),
		Context:       at,
		Mean:          x.nanos / x.requests,
		Excess:        x.excess / x.compared,
		ShareMean:     math.NaN(),
		ShareVariance: math.NaN(),
		ShareLow:      math.NaN(),
		ShareHigh:     math.NaN(),
		TailLift:      math.NaN(),
	}
	e.ExcessLow, e.ExcessHigh, e.Affected = e.Excess-half, e.Excess+half, math.NaN()
	if e.Excess > 0 {
		e.Affected = group.Affected(e.Excess, x.variance/x.compared)
	}
	return e
}

// usuallySpent returns the own times of s.operations in healthy requests that ran them.
func (s *incidentSearch) usuallySpent(groups *group.Grouper, table *trace.Table) map[spentKey]stats.Moments {
	usual := make(map[spentKey]stats.Moments)
	for _, id := range s.types() {
		g := groups.Group(id)
		if g == nil {
			continue
		}
		for i := range g.Reference.Tally.Edges {
			e := &g.Reference.Tally.Edges[i]
			k := spentKey{id, table.Context(table.EdgeInfo(e.Edge).Context).Op}
			if s.operations[k.operation] {
				m := usual[k]
				m.Merge(e.CoMoments.Moments(e.Requests))
				usual[k] = m
			}
		}
	}
	return usual
}

// mayLocate reports whether op runs in the first suspect, calls it, or runs in another service whose own steps s
// searches.
func (s *incidentSearch) mayLocate(op trace.Op, table *trace.Table) bool {
	if concerns(table, op, s.service) {
		return true
	}
	for step := range s.operations {
		if o := table.Operation(step); o.Target == 0 && o.Service != 0 && o.Service == table.Operation(op).Service {
			return true
		}
	}
	return false
}

// types returns the request types with requests in s, ascending.
func (s *incidentSearch) types() []analysis.Hash {
	types := make(map[analysis.Hash]bool)
	for k := range s.spent {
		types[k.requestType] = true
	}
	return hashes(types)
}

// savedSearch is the saved form of an incidentSearch.
type savedSearch struct {
	Incident   uint64
	Service    trace.Symbol
	Operations []trace.Op // ascending
	Since      trace.Nanos
	Requests   uint64
	Spent      []savedSpent // ascending by operation and request type
	Refined    savedRefinements
}

type savedSpent struct {
	RequestType analysis.Hash
	Operation   trace.Op
	Times       []byte
}

func (s *incidentSearch) saved() savedSearch {
	saved := savedSearch{
		Incident:   s.incident,
		Service:    s.service,
		Operations: slices.Sorted(maps.Keys(s.operations)),
		Since:      s.since,
		Requests:   s.requests,
		Refined:    s.refinements.saved(analysis.Hash{}),
	}
	for _, k := range sorting.Sorted(maps.Keys(s.spent), spentKey.compare) {
		saved.Spent = append(saved.Spent, savedSpent{k.requestType, k.operation, s.spent[k].AppendBinary(nil)})
	}
	return saved
}
