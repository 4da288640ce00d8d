package analysis

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Window is what is kept of the requests of a group over a stretch of time. Windows of the same group merge.
type Window struct {
	Tally
	Latency stats.Sketch            // of the durations
	Sample  stats.Sample[stats.Row] // uniform; the rows number edges as Group.Edges does
	Failed  uint64                  // requests whose root ended in an error
	First   trace.Nanos             // start of the earliest request, 0 for an empty window
	Last    trace.Nanos             // start of the latest request
}

// Group is a set of requests that are expected to perform alike, or all requests of one type.
type Group struct {
	ID          Hash
	RequestType Hash
	Skeleton    Hash // zero at the level of the request type
	Level       Level
	Entry       trace.Op
	Edges       []trace.Edge // the edges of the group, numbered in the order of their first request
	numbers     map[trace.Edge]int32
	columns     []int32 // scratch for rows
	nanos       []int64

	Open      Window      // requests since the last epoch ended
	Current   Window      // requests that are judged: since the last time that all was well
	Reference Window      // requests from when all was well
	Seen      trace.Nanos // end of the last epoch that had a request
	watch     watch
}

// Merge adds the requests of u, keeping at most limit edges apart; u stays as it is.
func (w *Window) Merge(u *Window, limit int) {
	if u.Total.N == 0 {
		return
	}
	w.Tally.Merge(&u.Tally, limit)
	w.Latency.Merge(u.Latency)
	w.Sample.Merge(u.Sample)
	w.Failed += u.Failed
	if w.First == 0 || u.First < w.First {
		w.First = u.First
	}
	w.Last = max(w.Last, u.Last)
}

// Rate returns the requests per second between the first and the last; 0 where these coincide.
func (w *Window) Rate() float64 {
	span := w.Last.Sub(w.First).Seconds()
	if !(span > 0) {
		return 0
	}
	return float64(w.Total.N) / span
}

// Reset empties w.
func (w *Window) Reset() {
	*w = Window{Tally: Tally{Edges: w.Tally.Edges[:0]}, Sample: stats.NewSample[stats.Row](w.Sample.Cap())}
}

// GroupOptions bound what a [Grouper] keeps. A zero field takes the default.
type GroupOptions struct {
	Edges  int // per group; default 256
	Sample int // requests per window in the uniform sample; default 32
	Groups int // default 100 000
}

// Defaults of [GroupOptions].
const (
	DefaultEdges  = 256
	DefaultSample = 32
	DefaultGroups = 100_000
)

// Grouper puts observations into groups and keeps their statistics at both levels. It is the one owner of all groups and not
// safe for concurrent use.
type Grouper struct {
	Types   *RequestTypes
	Table   *trace.Table // contexts and edges that were seen
	Refused uint64       // observations beyond the bound on groups; they count for their request type only
	options GroupOptions
	groups  map[Hash]*Group
	times   []EdgeNanos // scratch
}

// NewGrouper returns an empty Grouper that types requests by types and registers contexts and edges in table.
func NewGrouper(types *RequestTypes, table *trace.Table, options GroupOptions) *Grouper {
	options.Edges = cmp.Or(options.Edges, DefaultEdges)
	options.Sample = cmp.Or(options.Sample, DefaultSample)
	options.Groups = cmp.Or(options.Groups, DefaultGroups)
	return &Grouper{Types: types, Table: table, options: options, groups: make(map[Hash]*Group)}
}

// Observe adds a request to the open windows of its request type and of its group, and returns both; the group is nil where
// the bound on groups was reached.
func (g *Grouper) Observe(o *Observation) (requestType, group *Group) {
	id := g.Types.Of(o)
	if requestType = g.groups[id]; requestType == nil {
		requestType = g.open(Group{ID: id, RequestType: id, Level: RequestTypeLevel, Entry: o.Entry})
	}
	g.add(requestType, o, g.coarse(o))
	defer func() { g.count(requestType, group, o.Duration) }()
	key := GroupID(id, o.Skeleton)
	if group = g.groups[key]; group == nil {
		if len(g.groups) >= g.options.Groups {
			g.Refused++
			return requestType, nil
		}
		group = g.open(Group{ID: key, RequestType: id, Skeleton: o.Skeleton, Level: GroupLevel, Entry: o.Entry})
	}
	g.add(group, o, g.fine(o))
	return requestType, group
}

// GroupID returns the identity of the group of a request type and skeleton.
func GroupID(requestType, skeleton Hash) Hash {
	return hashOf(requestType.Hi, requestType.Lo, skeleton.Hi, skeleton.Lo)
}

func (g *Grouper) open(group Group) *Group {
	group.numbers = make(map[trace.Edge]int32)
	for _, w := range []*Window{&group.Open, &group.Current, &group.Reference} {
		w.Sample = stats.NewSample[stats.Row](g.options.Sample)
	}
	g.groups[group.ID] = &group
	return &group
}

// coarse returns the times of o by baseline context.
func (g *Grouper) coarse(o *Observation) []EdgeNanos {
	g.times = g.times[:0]
	for i := range o.Contexts {
		if c := &o.Contexts[i]; c.Exclusive > 0 && c.Tracepoint == 0 {
			g.times = append(g.times, EdgeNanos{trace.WholeEdge(c.Context), c.Exclusive})
		}
	}
	return g.times
}

// fine returns the times of o by edge.
func (g *Grouper) fine(o *Observation) []EdgeNanos {
	g.times = g.times[:0]
	for i := range o.Edges {
		g.times = append(g.times, EdgeNanos{o.Edges[i].Edge, o.Edges[i].Nanos})
	}
	return g.times
}

// add adds a request to the open window of a group.
func (g *Grouper) add(group *Group, o *Observation, times []EdgeNanos) {
	w := &group.Open
	duration := o.Duration.Nanoseconds()
	if w.Tally.Add(duration, times, g.options.Edges) > 0 {
		g.register(group, o, times)
	}
	w.Latency.Add(duration)
	if o.Failed {
		w.Failed++
	}
	if w.First == 0 || o.Start < w.First {
		w.First = o.Start
	}
	w.Last = max(w.Last, o.Start)
	if key := o.Key(); w.Sample.Wants(key) {
		w.Sample.Add(key, group.row(duration, times))
	}
}

// Key identifies the request in samples: well-mixed bits of its trace and root.
func (o *Observation) Key() uint64 { return trace.Mix(o.Trace.Hash(), uint64(o.Root)) }

// register numbers the edges that are new to the group and enters their definitions in the table.
func (g *Grouper) register(group *Group, o *Observation, times []EdgeNanos) {
	for _, x := range times {
		if _, ok := group.numbers[x.Edge]; !ok && len(group.Edges) < g.options.Edges {
			group.numbers[x.Edge] = int32(len(group.Edges))
			group.Edges = append(group.Edges, x.Edge)
		}
	}
	for i := range o.Contexts {
		g.Table.AddContext(o.Contexts[i].Context, o.Contexts[i].Parent, o.Contexts[i].Op)
	}
	for i := range o.Edges {
		e := &o.Edges[i]
		g.Table.AddEdge(e.Edge, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After, Callee: e.Callee})
		g.Table.AddEdge(trace.WholeEdge(e.Context), trace.EdgeInfo{Context: e.Context, Callee: e.Callee})
	}
}

// row packs a request for the sample.
func (group *Group) row(duration int64, times []EdgeNanos) stats.Row {
	group.columns, group.nanos = group.columns[:0], group.nanos[:0]
	for _, x := range times {
		if n, ok := group.numbers[x.Edge]; ok {
			group.columns = append(group.columns, n)
			group.nanos = append(group.nanos, x.Nanos)
		}
	}
	sort2(group.columns, group.nanos)
	return stats.NewRow(duration, group.columns, group.nanos)
}

// sort2 sorts keys and carries values along, by insertion: rows are short, and few requests are sampled.
func sort2(keys []int32, values []int64) {
	for i := 1; i < len(keys); i++ {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
			values[j], values[j-1] = values[j-1], values[j]
		}
	}
}

// Close ends an epoch for all groups: what was open becomes part of what is judged.
func (g *Grouper) Close(now trace.Nanos) {
	for _, group := range g.groups {
		if group.Open.Total.N > 0 {
			group.Seen = now
			if !group.watch.learned {
				group.watch.blocks = append(group.watch.blocks, group.Open.Total)
			}
			group.Current.Merge(&group.Open, g.options.Edges)
			group.Open.Reset()
		}
	}
}

// Group returns the group, or request type, with the given identity; nil if there is none.
func (g *Grouper) Group(id Hash) *Group { return g.groups[id] }

// Len returns the number of groups and request types.
func (g *Grouper) Len() int { return len(g.groups) }

// Groups returns all groups and request types: request types by falling number of requests judged, each followed
// by its groups likewise.
func (g *Grouper) Groups() []*Group {
	all := slices.Collect(maps.Values(g.groups))
	requests := func(id Hash) uint64 { return g.groups[id].Current.Total.N }
	slices.SortFunc(all, func(a, b *Group) int {
		return cmp.Or(
			cmp.Compare(requests(b.RequestType), requests(a.RequestType)),
			a.RequestType.Compare(b.RequestType),
			cmp.Compare(a.Level, b.Level),
			cmp.Compare(b.Current.Total.N, a.Current.Total.N),
			a.ID.Compare(b.ID))
	})
	return all
}
