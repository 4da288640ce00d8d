package group

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options limit the contents of a [Grouper]. A zero field means the default.
type Options struct {
	Edges       int // maximum number of edges per group; default 256
	Sample      int // size of the uniform sample of requests of a window; default 32
	LargeSample int // size of the sample of a group with a problem or close to one; default 256
	Groups      int // maximum number of groups and request types; default 100,000
	Targets     int // maximum number of external targets of an operation; default 64
}

// Defaults of [Options].
const (
	DefaultEdges       = 256
	DefaultSample      = 32
	DefaultLargeSample = 256
	DefaultGroups      = 100_000
	DefaultTargets     = 64
)

// Grouper assigns observations to groups and keeps their statistics at both levels. It is not safe for concurrent use.
//
// The number of groups is bounded. Once the bound is reached, a request of a new group counts only for its request
// type, and a request of a new type doesn't count at all. At the end of that epoch, the Grouper evicts the least
// recently seen groups without an open problem.
type Grouper struct {
	Types   *RequestTypes
	Table   *trace.Table // contexts and edges of all requests
	Keys    Keys
	Aliases Aliases // targets of calls to services that stopped emitting spans
	Bare    uint64  // calls that lost their external target, because their operation has too many targets
	Refused uint64  // requests of groups beyond the bound
	Evicted uint64  // groups evicted

	options Options
	targets externalTargets
	groups  map[analysis.Hash]*Group
	// ordered holds the request types, each followed by its groups, except the groups in created. It is nil if it must
	// be rebuilt.
	ordered    []*Group
	created    []*Group    // since ordered was last used
	added      uint64      // number of groups ever added, for their revisions
	deletions  uint64      // number of times that groups were deleted
	closed     trace.Nanos // end of the last epoch, or 0
	backlog    backlog     // of the open epoch
	dictionary dictionary
	rows       rowBuilder
	times      []observation.EdgeNanos // scratch
	past       Past                    // scratch
}

// NewGrouper returns an empty Grouper that takes request types from types and adds contexts and edges to table.
func NewGrouper(types *RequestTypes, table *trace.Table, options Options) *Grouper {
	options.Edges = cmp.Or(options.Edges, DefaultEdges)
	options.Sample = cmp.Or(options.Sample, DefaultSample)
	options.LargeSample = max(options.Sample, cmp.Or(options.LargeSample, DefaultLargeSample))
	options.Groups = cmp.Or(options.Groups, DefaultGroups)
	options.Targets = cmp.Or(options.Targets, DefaultTargets)
	g := &Grouper{
		Types:   types,
		Table:   table,
		Keys:    Keys{Types: types, Table: table},
		options: options,
		groups:  make(map[analysis.Hash]*Group),
	}
	g.dictionary.table = table
	return g
}

// Observe adds a request to the open windows of its request type and of its group, and returns both. Either is nil if
// it is beyond the bound on groups. Observe changes the call targets in o according to the aliases and to the bound on
// targets.
func (g *Grouper) Observe(o *observation.Observation) (requestType, group *Group) {
	g.Aliases.observe(o, g.Table)
	g.Aliases.Apply(o, g.Table)
	g.Bare += g.targets.bound(o, g.options.Targets)
	id := g.Types.Of(o)
	if requestType = g.groups[id]; requestType == nil {
		requestType = g.create(Group{ID: id, RequestType: id, Level: LevelRequestType, Entry: o.Entry}, nil)
	}
	if requestType == nil {
		g.Refused++
		return nil, nil
	}
	requestType.Entry = min(requestType.Entry, o.Entry) // a request type named by rules may have several entries
	g.dictionary.add(o)
	key, whole := g.Keys.Of(id, o)
	if group = g.groups[key]; group == nil {
		group = g.create(Group{
			ID:          key,
			RequestType: id,
			Skeleton:    g.Keys.skeleton(id, o),
			Whole:       whole,
			Level:       LevelGroup,
			Entry:       o.Entry,
			values:      g.Keys.values(id, o),
		}, requestType)
	}
	g.backlog.add(o, g.closed)
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

// create adds the group `with` below parent or, if parent is nil, as a request type. It returns nil if there are
// already as many groups as Options.Groups allows.
func (g *Grouper) create(with Group, parent *Group) *Group {
	if len(g.groups) >= g.options.Groups {
		return nil
	}
	group := &with
	if group.parent = parent; parent == nil {
		group.parent = group
	}
	group.options = &g.options
	group.sizeRule = g.Types.Rules.sizeRule(group.RequestType, group.Entry)
	if mix := group.parent.Expectation.Mix; mix != nil {
		group.Expectation.Number = mix.Numbers[group.ID] // known if the group was evicted before
	}
	group.reset()
	g.add(group)
	g.created = append(g.created, group)
	return group
}

// add adds group, and sets its revision so that it differs from the revisions of all other groups.
func (g *Grouper) add(group *Group) {
	g.groups[group.ID] = group
	g.added++
	group.revision = g.added << 32
}

// EndEpoch ends the open epoch of all groups at time now: its requests become part of the current windows. now is 0 if
// there are no epochs.
func (g *Grouper) EndEpoch(now trace.Nanos) {
	from := g.epochStart(now)
	for _, group := range g.all() {
		if group.Open.Total.N > 0 {
			group.endEpoch(from, now, &g.past)
		}
	}
	g.closed = now
	g.backlog.reset()
	g.Aliases.EndEpoch(now)
	g.targets.age(now)
	if len(g.groups) >= g.options.Groups {
		g.evict()
	}
}

// epochStart returns the start of the epoch that ends at now. This is the end of the previous epoch or, after a time
// without requests such as a restart, the start of the first request. epochStart ignores requests that claim to start
// after now. An epoch with a backlog starts earlier, so that it is as long as the time that its requests come from.
func (g *Grouper) epochStart(now trace.Nanos) trace.Nanos {
	from := now
	for _, group := range g.all() {
		if group.Open.Total.N > 0 {
			from = min(from, group.Open.First)
		}
	}
	if from == now {
		return g.closed
	}
	from = max(from, g.closed)
	if span := g.backlog.span(); span > backlogEpochs*now.Sub(from) {
		return now.Add(-span)
	}
	return from
}

// evictedShare is the reciprocal of the fraction of groups that are evicted together. The fraction is large enough for
// new groups to find room for a while, and small enough that few evicted groups return.
const evictedShare = 16

// evict deletes the least recently seen groups, except groups of request types with an open problem. It deletes a
// request type only after its groups.
func (g *Grouper) evict() {
	old := make([]*Group, 0, len(g.groups))
	for _, group := range g.groups {
		if group.Seen < g.closed && !group.parent.AnyOpenProblem {
			old = append(old, group)
		}
	}
	sorting.Slice(old, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Seen, b.Seen), cmp.Compare(b.Level, a.Level), a.ID.Compare(b.ID))
	})
	for _, group := range old[:min(len(old), max(1, g.options.Groups/evictedShare))] {
		delete(g.groups, group.ID)
		g.Evicted++
	}
	g.ordered = nil
	g.deletions++
	g.forgetSplits()
}

// Forget deletes the groups and request types last seen earlier than `before`, unless their request type has an open
// problem.
func (g *Grouper) Forget(before trace.Nanos) {
	n := len(g.groups)
	for _, group := range g.all() {
		// a request type is seen whenever one of its groups is
		if group.Seen > 0 && group.Seen < before && !group.parent.AnyOpenProblem {
			delete(g.groups, group.ID)
		}
	}
	if len(g.groups) < n {
		g.ordered = nil
		g.deletions++
		g.forgetSplits()
	}
}

// forgetSplits deletes the splits of deleted groups.
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

// NamesForgotten must be called after entries of the table of g were deleted, so that g adds them again if later
// requests need them.
func (g *Grouper) NamesForgotten() {
	g.dictionary.forget()
	if g.Types.Rules != nil {
		clear(g.Types.Rules.entries)
	}
}

// Group returns the group or request type with the given identity, or nil if g doesn't contain it.
func (g *Grouper) Group(id analysis.Hash) *Group { return g.groups[id] }

// Deletions returns the number of times that groups were deleted.
func (g *Grouper) Deletions() uint64 { return g.deletions }

// Len returns the number of groups and request types.
func (g *Grouper) Len() int { return len(g.groups) }

// Closed returns the end of the last epoch, or 0 before the first one ends.
func (g *Grouper) Closed() trace.Nanos { return g.closed }

// all returns all request types, each followed by its groups, ordered by identity. The slice belongs to g.
func (g *Grouper) all() []*Group {
	switch {
	case g.ordered == nil:
		g.ordered = slices.AppendSeq(make([]*Group, 0, len(g.groups)), maps.Values(g.groups))
		sorting.Slice(g.ordered, compareGroups)
	case len(g.created) > 0:
		sorting.Slice(g.created, compareGroups)
		g.ordered = merged(g.ordered, g.created)
	}
	g.created = g.created[:0]
	return g.ordered
}

// merged merges a and b, which must both be ordered, in the memory of a if that is large enough.
func merged(a, b []*Group) []*Group {
	i, k := len(a)-1, len(b)-1
	all := slices.Grow(a, len(b))[:len(a)+len(b)]
	for at := len(all) - 1; k >= 0; at-- {
		if i >= 0 && compareGroups(all[i], b[k]) > 0 {
			all[at] = all[i]
			i--
		} else {
			all[at] = b[k]
			k--
		}
	}
	return all
}

// compareGroups orders request types, each followed by its groups, by identity.
func compareGroups(a, b *Group) int {
	return cmp.Or(a.RequestType.Compare(b.RequestType), cmp.Compare(a.Level, b.Level), a.ID.Compare(b.ID))
}

// Each yields all request types, each followed by its groups, ordered by identity.
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

// Groups returns all request types in decreasing order of their number of current requests, each followed by its groups
// in the same order.
func (g *Grouper) Groups() []*Group {
	all := slices.Clone(g.all())
	sorting.Slice(all, func(a, b *Group) int {
		return cmp.Or(
			cmp.Compare(b.parent.Current.Total.N, a.parent.Current.Total.N),
			a.RequestType.Compare(b.RequestType),
			cmp.Compare(a.Level, b.Level),
			cmp.Compare(b.Current.Total.N, a.Current.Total.N),
			a.ID.Compare(b.ID))
	})
	return all
}
