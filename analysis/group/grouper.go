package group

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options bound the contents of a [Grouper]. A zero field takes the default.
type Options struct {
	Edges    int // per group; default 256
	Sample   int // requests per window in the uniform sample; default 32
	Attended int // the same for groups that are near a threshold or above; default 256
	Groups   int // request types count as groups; default 100 000
}

// Defaults of [critpath.Options].
const (
	DefaultEdges    = 256
	DefaultSample   = 32
	DefaultAttended = 256
	DefaultGroups   = 100_000
)

// Grouper puts observations into groups and keeps their statistics at both levels. It is the one owner of all groups and not
// safe for concurrent use.
//
// The number of groups is bounded. Requests of groups beyond the bound count for their request type only, those of request types
// beyond it not at all. When an epoch ends at the bound, the groups that were not seen for longest, and have no open problem,
// make room.
type Grouper struct {
	Types   *RequestTypes
	Table   *trace.Table // contexts and edges that were seen
	Keys    Keys
	Refused uint64 // requests beyond the bound on groups
	Evicted uint64 // groups that made room

	options    Options
	groups     map[analysis.Hash]*Group
	ordered    []*Group    // by request type, each followed by its groups; nil: to be made anew
	closed     trace.Nanos // end of the last epoch; 0: none
	dictionary dictionary
	rows       rowBuilder
	times      []observation.EdgeNanos // scratch
	past       Past                    // scratch
}

// NewGrouper returns an empty Grouper that types requests by types and registers contexts and edges in table.
func NewGrouper(types *RequestTypes, table *trace.Table, options Options) *Grouper {
	options.Edges = cmp.Or(options.Edges, DefaultEdges)
	options.Sample = cmp.Or(options.Sample, DefaultSample)
	options.Attended = max(options.Sample, cmp.Or(options.Attended, DefaultAttended))
	options.Groups = cmp.Or(options.Groups, DefaultGroups)
	g := &Grouper{Types: types, Table: table, Keys: Keys{Types: types, Table: table}, options: options, groups: make(map[analysis.Hash]*Group)}
	g.dictionary.table = table
	return g
}

// Observe adds a request to the open windows of its request type and of its group, and returns both; either is nil where the bound on
// groups was reached.
func (g *Grouper) Observe(o *observation.Observation) (requestType, group *Group) {
	id := g.Types.Of(o)
	if requestType = g.groups[id]; requestType == nil {
		requestType = g.create(Group{ID: id, RequestType: id, Level: LevelRequestType, Entry: o.Entry}, nil)
	}
	if requestType == nil {
		g.Refused++
		return nil, nil
	}
	requestType.Entry = min(requestType.Entry, o.Entry) // several may enter a type that rules name
	g.dictionary.enter(o)
	key, whole := g.Keys.Of(id, o)
	if group = g.groups[key]; group == nil {
		group = g.create(Group{
			ID: key, RequestType: id, Skeleton: g.Keys.skeleton(id, o), Whole: whole, Level: LevelGroup, Entry: o.Entry,
			values: g.Keys.values(id, o),
		}, requestType)
	}
	g.times = o.AppendContextTimes(g.times[:0])
	requestType.add(o, g.times, &g.rows)
	if group == nil {
		g.Refused++
		requestType.Expectation.Mix.count(mixOthers, o.Failed)
		return requestType, nil
	}
	g.times = o.AppendTimes(g.times[:0])
	group.add(o, g.times, &g.rows)
	requestType.Expectation.Mix.count(group.Expectation.Number, o.Failed)
	return requestType, group
}

// create adds a group below its request type, nil for request types; it returns nil if there is no room for it.
func (g *Grouper) create(with Group, parent *Group) *Group {
	if len(g.groups) >= g.options.Groups {
		return nil
	}
	group := &with
	if group.parent = parent; parent == nil {
		group.parent = group
	}
	group.options = &g.options
	group.sizing = g.Types.Rules.sizing(group.RequestType, group.Entry)
	if mix := group.parent.Expectation.Mix; mix != nil {
		group.Expectation.Number = mix.Numbers[group.ID] // it may have been here before
	}
	group.reset()
	g.groups[group.ID] = group
	g.ordered = nil
	return group
}

// Close ends an epoch for all groups at time now: what was open becomes part of what is judged. Now is 0 where there are no epochs.
func (g *Grouper) Close(now trace.Nanos) {
	from := g.began(now)
	for _, group := range g.groups {
		if group.Open.Total.N > 0 {
			group.endEpoch(from, now, &g.past)
		}
	}
	g.closed = now
	if len(g.groups) >= g.options.Groups {
		g.evict()
	}
}

// began returns when the epoch that ends at now began: when the one before it ended or, where nothing came for a while after that, as while
// a service is down, with its first request. What says that it begins after now says nothing.
func (g *Grouper) began(now trace.Nanos) trace.Nanos {
	from := now
	for _, group := range g.groups {
		if group.Open.Total.N > 0 {
			from = min(from, group.Open.First)
		}
	}
	if from == now {
		return g.closed
	}
	return max(from, g.closed)
}

// roomShare is the part of the groups, one in so many, that make room at a time: so that the next are not turned away at once, and
// few go that will come back.
const roomShare = 16

// evict makes room by forgetting groups that were not seen for longest. No request type goes before its groups, and none with an
// open problem.
func (g *Grouper) evict() {
	old := make([]*Group, 0, len(g.groups))
	for _, group := range g.groups {
		if group.Seen < g.closed && !group.parent.AnyOpenProblem {
			old = append(old, group)
		}
	}
	slices.SortFunc(old, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Seen, b.Seen), cmp.Compare(b.Level, a.Level), a.ID.Compare(b.ID))
	})
	for _, group := range old[:min(len(old), max(1, g.options.Groups/roomShare))] {
		delete(g.groups, group.ID)
		g.Evicted++
	}
	g.ordered = nil
	g.forgetSplits()
}

// Forget forgets the groups and request types that were last seen before a time and have no open problem.
func (g *Grouper) Forget(before trace.Nanos) {
	n := len(g.groups)
	maps.DeleteFunc(g.groups, func(_ analysis.Hash, group *Group) bool {
		return group.Seen > 0 && group.Seen < before && !group.parent.AnyOpenProblem // a request type is seen whenever a group of it is
	})
	if len(g.groups) < n {
		g.ordered = nil
		g.forgetSplits()
	}
}

// forgetSplits drops the splits of groups of which nothing is kept any more.
func (g *Grouper) forgetSplits() {
	if g.Keys.Splits == nil {
		return
	}
	kept := make(map[analysis.Hash]bool)
	for _, group := range g.groups {
		kept[group.Whole] = true
	}
	g.Keys.Splits.Keep(func(whole analysis.Hash) bool { return kept[whole] })
}

// Group returns the group, or request type, with the given identity; nil if there is none.
func (g *Grouper) Group(id analysis.Hash) *Group { return g.groups[id] }

// Len returns the number of groups and request types.
func (g *Grouper) Len() int { return len(g.groups) }

// Closed returns when the last epoch ended; 0: none did.
func (g *Grouper) Closed() trace.Nanos { return g.closed }

// all returns all groups and request types, each request type followed by its groups, in an order that depends on identities only.
// The slice belongs to g.
func (g *Grouper) all() []*Group {
	if g.ordered == nil {
		g.ordered = slices.AppendSeq(make([]*Group, 0, len(g.groups)), maps.Values(g.groups))
		slices.SortFunc(g.ordered, compareGroups)
	}
	return g.ordered
}

// compareGroups orders request types, each followed by its groups, by identity.
func compareGroups(a, b *Group) int {
	return cmp.Or(a.RequestType.Compare(b.RequestType), cmp.Compare(a.Level, b.Level), a.ID.Compare(b.ID))
}

// Each yields all groups and request types, each request type followed by its groups, in an order that depends on identities only.
func (g *Grouper) Each() iter.Seq[*Group] { return slices.Values(g.all()) }

// ByType yields every request type with its groups, in the order of Each. The slices belong to g.
func (g *Grouper) ByType() iter.Seq2[*Group, []*Group] {
	return func(yield func(*Group, []*Group) bool) {
		all := g.all()
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].parent == all[0] {
				n++
			}
			if !yield(all[0], all[1:n:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// Groups returns all groups and request types: request types by falling number of requests judged, each followed
// by its groups likewise.
func (g *Grouper) Groups() []*Group {
	all := slices.Clone(g.all())
	slices.SortFunc(all, func(a, b *Group) int {
		return cmp.Or(
			cmp.Compare(b.parent.Current.Total.N, a.parent.Current.Total.N),
			a.RequestType.Compare(b.RequestType),
			cmp.Compare(a.Level, b.Level),
			cmp.Compare(b.Current.Total.N, a.Current.Total.N),
			a.ID.Compare(b.ID))
	})
	return all
}
