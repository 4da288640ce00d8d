package analysis

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Window is what is kept of the requests of a group over a stretch of time. Windows of the same group merge.
type Window struct {
	Tally
	Latency   stats.Sketch            // of the durations
	Sample    stats.Sample[stats.Row] // uniform; the rows number edges as Group.Edges does, and say when they came once their epoch has ended
	Transfers stats.Sample[Transfer]  // uniform, of the requests with a size where rules say that sizes matter; nothing elsewhere
	fitted    *SizeModel              // of Transfers; nil: not yet
	Failed    uint64                  // requests whose root ended in an error
	First     trace.Nanos             // start of the earliest request, or of the epoch in which it came; means nothing in an empty window
	Last      trace.Nanos             // start of the latest request, or end of the epoch in which it came
}

// Group is a set of requests that are expected to perform alike, or all requests of one type.
type Group struct {
	ID          Hash
	RequestType Hash
	Skeleton    Hash // zero at the level of the request type, and where the skeleton does not tell groups apart
	Whole       Hash // the identity that the group would have if it were not split
	Level       Level
	Entry       trace.Op
	Edges       []trace.Edge  // the edges of the group, numbered in the order of their first request
	ascending   []int32       // the numbers of the edges, ascending by edge
	beyond      trace.Edge    // edges above it have no number, as there were too many; 0: all have
	parent      *Group        // the request type; of a request type the Group itself
	keyed       []VariableBin // what rules made part of its key
	sizing      sizing

	Open      Window  // requests since the last epoch ended
	Current   Window  // requests that are judged: since the last time that all was well, at most an hour of them
	Reference Window  // requests from when all was well; without a sample
	next      Window  // what will be the reference
	younger   *Window // the later part of Current, where that reaches far back; else nil
	history   stats.Series[Past, *Past]
	Since     trace.Nanos // end of the first epoch that had a request
	Seen      trace.Nanos // end of the last epoch that had a request
	watch     watch
}

// Merge adds the requests of u, keeping at most limit edges apart; u stays as it is.
func (w *Window) Merge(u *Window, limit int) {
	w.absorb(u, limit)
	w.Sample.Merge(u.Sample)
}

// absorb is Merge without the sample of rows.
func (w *Window) absorb(u *Window, limit int) {
	if u.Total.N == 0 {
		return
	}
	before := w.Total.N
	w.Tally.Merge(&u.Tally, limit)
	w.Latency.Merge(u.Latency)
	w.Transfers.Merge(u.Transfers)
	w.fitted = nil
	w.Failed += u.Failed
	if before == 0 || u.First < w.First {
		w.First = u.First
	}
	w.Last = max(w.Last, u.Last)
}

// Rate returns the requests per second between First and Last; 0 where these coincide.
func (w *Window) Rate() float64 {
	span := w.Last.Sub(w.First).Seconds()
	if !(span > 0) {
		return 0
	}
	return float64(w.Total.N) / span
}

// Rate returns the requests per second of those that are judged or, where all of them were found well, of the reference.
func (group *Group) Rate() float64 {
	if group.Current.Total.N == 0 {
		return group.Reference.Rate()
	}
	return group.Current.Rate()
}

// Reset empties w and makes it sample that many requests.
func (w *Window) Reset(sample int) {
	*w = Window{Tally: Tally{Edges: w.Tally.Edges[:0]}, Sample: stats.NewSample[stats.Row](sample)}
}

// cover makes w span the epoch [from, to] in which its requests came, whenever they say they began: traces come late, and clocks may be
// wrong. The requests sampled came at the end of it, which tells what window of the past they are in (see [Group.Windows]).
func (w *Window) cover(from, to trace.Nanos) {
	w.First, w.Last = from, to
	for _, row := range w.Sample.All() {
		row.Stamp(lastOf(to))
	}
}

// lastOf returns the last nanosecond of an epoch: where it ends, the next one begins.
func lastOf(end trace.Nanos) int64 { return int64(end) - 1 }

// GroupOptions bound what a [Grouper] keeps. A zero field takes the default.
type GroupOptions struct {
	Edges    int // per group; default 256
	Sample   int // requests per window in the uniform sample; default 32
	Attended int // the same for groups that are near a threshold or above; default 256
	Groups   int // request types count as groups; default 100 000
}

// Defaults of [GroupOptions].
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
	Splits  Splitter     // by which groups are split; nil: none is. Whoever changes a split tells g by [Grouper.Resplit]
	Refused uint64       // requests beyond the bound on groups
	Evicted uint64       // groups that made room
	options GroupOptions
	groups  map[Hash]*Group
	chronic map[Hash]bool // chronic problems that are open
	ordered []*Group      // by request type, each followed by its groups; nil: to be made anew
	closed  trace.Nanos   // end of the last epoch; 0: none
	times   []EdgeNanos   // scratch
	past    Past          // scratch
	columns []int32       // scratch for rows, as nanos
	nanos   []int64
	// entered is a cache of what is in the table: contexts, and edges with their callees, each where its hash says.
	entered [enteredSlots]uint64
	// enteredWhole is one of requests all of whose contexts and edges are in the table, where the hash of these says.
	enteredWhole [enteredWholeSlots]uint64
}

// enteredSlots is the size of the cache of what is in the table (1 MiB), a power of two.
const enteredSlots = 1 << 17

// enteredWholeSlots is that of whole requests (512 KiB), a power of two.
const enteredWholeSlots = 1 << 16

// NewGrouper returns an empty Grouper that types requests by types and registers contexts and edges in table.
func NewGrouper(types *RequestTypes, table *trace.Table, options GroupOptions) *Grouper {
	options.Edges = cmp.Or(options.Edges, DefaultEdges)
	options.Sample = cmp.Or(options.Sample, DefaultSample)
	options.Attended = max(options.Sample, cmp.Or(options.Attended, DefaultAttended))
	options.Groups = cmp.Or(options.Groups, DefaultGroups)
	return &Grouper{Types: types, Table: table, options: options, groups: make(map[Hash]*Group), chronic: make(map[Hash]bool)}
}

// Observe adds a request to the open windows of its request type and of its group, and returns both; either is nil where the bound on
// groups was reached.
func (g *Grouper) Observe(o *Observation) (requestType, group *Group) {
	id := g.Types.Of(o)
	if requestType = g.groups[id]; requestType == nil {
		requestType = g.open(Group{ID: id, RequestType: id, Level: RequestTypeLevel, Entry: o.Entry}, nil)
	}
	if requestType == nil {
		g.Refused++
		return nil, nil
	}
	requestType.Entry = min(requestType.Entry, o.Entry) // several may enter a type that rules name
	g.enter(o)
	key, whole := g.GroupOf(id, o)
	if group = g.groups[key]; group == nil {
		group = g.open(Group{ID: key, RequestType: id, Skeleton: g.skeleton(id, o), Whole: whole, Level: GroupLevel, Entry: o.Entry, keyed: g.keyed(id, o)}, requestType)
	}
	g.times = o.appendCoarse(g.times[:0])
	g.add(requestType, o, g.times)
	if group == nil {
		g.Refused++
		requestType.watch.mixes(mixOthers, o.Failed)
		return requestType, nil
	}
	g.times = o.appendFine(g.times[:0])
	g.add(group, o, g.times)
	requestType.watch.mixes(group.watch.number, o.Failed)
	return requestType, group
}

// GroupID returns the identity of the group, as a whole, of a request type and skeleton.
func GroupID(requestType, skeleton Hash) Hash {
	return HashOf(requestType.Hi, requestType.Lo, skeleton.Hi, skeleton.Lo)
}

// open adds a group below its request type, nil for request types; it returns nil if there is no room for it.
func (g *Grouper) open(with Group, parent *Group) *Group {
	if len(g.groups) >= g.options.Groups {
		return nil
	}
	group := &with
	if group.parent = parent; parent == nil {
		group.parent = group
	}
	group.sizing = g.Types.Rules.sizing(group.RequestType, group.Entry)
	group.watch.number = group.parent.watch.numbers[group.ID] // it may have been here before
	group.Open.Reset(g.options.Sample)
	group.Current.Reset(g.options.Sample)
	group.Reference.Reset(g.options.Sample)
	group.next.Reset(g.options.Sample)
	g.groups[group.ID] = group
	g.ordered = nil
	return group
}

// appendCoarse appends the times of o by baseline context, ascending.
func (o *Observation) appendCoarse(times []EdgeNanos) []EdgeNanos {
	for i := range o.Edges {
		times = append(times, EdgeNanos{trace.WholeEdge(o.Edges[i].Context), o.Edges[i].Nanos})
	}
	sortTimes(times)
	out := times[:0]
	for _, x := range times {
		if n := len(out); n > 0 && out[n-1].Edge == x.Edge {
			out[n-1].Nanos += x.Nanos
		} else {
			out = append(out, x)
		}
	}
	return out
}

// appendFine appends the times of o by edge, ascending.
func (o *Observation) appendFine(times []EdgeNanos) []EdgeNanos {
	for i := range o.Edges {
		times = append(times, EdgeNanos{o.Edges[i].Edge, o.Edges[i].Nanos})
	}
	return times
}

// fewTimes is the number up to which insertion is the fastest way to sort.
const fewTimes = 32

func sortTimes(times []EdgeNanos) {
	if len(times) > fewTimes {
		slices.SortFunc(times, func(a, b EdgeNanos) int { return cmp.Compare(a.Edge, b.Edge) })
		return
	}
	for i := 1; i < len(times); i++ {
		x, j := times[i], i
		for ; j > 0 && x.Edge < times[j-1].Edge; j-- {
			times[j] = times[j-1]
		}
		times[j] = x
	}
}

// add adds a request to the open window of a group.
func (g *Grouper) add(group *Group, o *Observation, times []EdgeNanos) {
	w := &group.Open
	duration := o.Duration.Nanoseconds()
	if w.Tally.Add(duration, times, g.options.Edges) > 0 || w.Tally.others() > 0 {
		g.register(group, times)
	}
	w.Latency.Add(duration)
	if o.Failed {
		w.Failed++
	}
	if w.Total.N == 1 || o.Start < w.First { // the first one of the window
		w.First = o.Start
	}
	w.Last = max(w.Last, o.Start)
	key := o.Key()
	if w.Sample.Wants(key) {
		w.Sample.Add(key, g.row(group, duration, times))
	}
	if size, ok := group.sizing.sizeOf(o); ok {
		duration = group.addTransfer(key, Transfer{size, duration})
	}
	group.watch.count(duration)
}

// addTransfer adds a request with a size to the open window. It returns the duration that is held against the expectation.
func (group *Group) addTransfer(key uint64, t Transfer) int64 {
	if group.Open.Transfers.Cap() == 0 {
		group.Open.Transfers = stats.NewSample[Transfer](transfersKept)
	}
	group.Open.Transfers.Add(key, t)
	if m := group.watch.size; m != nil {
		return m.Adjusted(t)
	}
	return t.Nanos
}

// Key identifies the request in samples: well-mixed bits of its trace and root.
func (o *Observation) Key() uint64 { return trace.Mix(o.Trace.Hash(), uint64(o.Root)) }

// register numbers the edges that are new to the group. At twice the limit all but those with the smallest identities lose their number.
// Which of a group's edges count in samples therefore depends on the set of edges only, not on their order: see [Grouper.number].
func (g *Grouper) register(group *Group, times []EdgeNanos) {
	for _, x := range times {
		at, found := group.find(x.Edge)
		if found || group.beyond != 0 && x.Edge > group.beyond {
			continue
		}
		group.ascending = slices.Insert(group.ascending, at, int32(len(group.Edges)))
		group.Edges = append(group.Edges, x.Edge)
		if len(group.Edges) == 2*g.options.Edges {
			g.renumber(group)
		}
	}
}

// renumber numbers the edges of a group in ascending order, without those beyond the limit if there are too many, in its samples as well.
func (g *Grouper) renumber(group *Group) {
	kept := group.ascending
	if limit := g.options.Edges; len(kept) > limit && (group.beyond != 0 || len(kept) >= 2*limit) {
		kept = kept[:limit]
		group.beyond = group.Edges[kept[limit-1]]
	}
	numbers := make([]int32, len(group.Edges))
	for i := range numbers {
		numbers[i] = -1
	}
	edges := make([]trace.Edge, len(kept))
	for i, n := range kept {
		edges[i], numbers[n] = group.Edges[n], int32(i)
	}
	group.Edges, group.ascending = edges, kept
	for i := range kept {
		kept[i] = int32(i)
	}
	renumbered := func(row stats.Row) stats.Row { return g.renumbered(row, numbers) }
	group.Open.Sample.Replace(renumbered)
	group.Current.Sample.Replace(renumbered)
	if group.younger != nil {
		group.younger.Sample.Replace(renumbered)
	}
}

// renumbered returns a row that came when row did, with its edges under the given numbers, without those that have -1.
func (g *Grouper) renumbered(row stats.Row, numbers []int32) stats.Row {
	columns, nanos := g.columns[:0], g.nanos[:0]
	for e, x := range row.Edges() {
		if n := numbers[e]; n >= 0 {
			columns, nanos = append(columns, n), append(nanos, x)
		}
	}
	g.columns, g.nanos = columns, nanos
	sort2(columns, nanos)
	other := stats.NewRow(row.Total(), columns, nanos)
	if from, to := row.Came(); to > 0 {
		other.Stamp(from)
	}
	return other
}

// number returns the number of an edge of a group, -1 if it has none, or may have none for another order of the same requests.
func (g *Grouper) number(group *Group, e trace.Edge) int32 {
	at, found := group.find(e)
	if !found || group.beyond != 0 && at >= g.options.Edges {
		return -1
	}
	return group.ascending[at]
}

// find returns where the number of edge e is, or would be, in group.ascending.
func (group *Group) find(e trace.Edge) (int, bool) {
	return slices.BinarySearchFunc(group.ascending, e, func(n int32, e trace.Edge) int { return cmp.Compare(group.Edges[n], e) })
}

// enter enters contexts and edges of o in the table: all contexts, so that paths are complete down to switched-on spans, and edges
// for both levels.
func (g *Grouper) enter(o *Observation) {
	whole := o.Shape
	if whole == 0 {
		whole = o.shape()
	}
	slot := &g.enteredWhole[whole%enteredWholeSlots]
	if *slot == whole {
		return // most requests are like others
	}
	*slot = whole
	for i := range o.Contexts {
		c := &o.Contexts[i]
		if g.isNew(uint64(c.Context)) {
			g.Table.AddContext(c.Context, c.Parent, c.Op)
		}
	}
	for i := range o.Edges {
		e := &o.Edges[i]
		if g.isNew(uint64(e.Edge) ^ uint64(e.Callee)) {
			g.Table.AddEdge(e.Edge, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After, Callee: e.Callee})
			g.Table.AddEdge(trace.WholeEdge(e.Context), trace.EdgeInfo{Context: e.Context, Callee: e.Callee})
		}
	}
}

// isNew reports whether a hash may not have been entered yet.
func (g *Grouper) isNew(hash uint64) bool {
	slot := &g.entered[hash%enteredSlots]
	if *slot == hash {
		return false
	}
	*slot = hash
	return true
}

// row packs a request for the sample.
func (g *Grouper) row(group *Group, duration int64, times []EdgeNanos) stats.Row {
	columns, nanos := g.columns[:0], g.nanos[:0]
	for _, x := range times {
		if n := g.number(group, x.Edge); n >= 0 {
			columns = append(columns, n)
			nanos = append(nanos, x.Nanos)
		}
	}
	g.columns, g.nanos = columns, nanos
	sort2(columns, nanos)
	return stats.NewRow(duration, columns, nanos)
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

// Close ends an epoch for all groups at time now: what was open becomes part of what is judged. Now is 0 where there are no epochs.
func (g *Grouper) Close(now trace.Nanos) {
	from := g.began(now)
	for _, group := range g.groups {
		if group.Open.Total.N > 0 {
			g.endEpoch(group, from, now)
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

// endEpoch ends an epoch in which a group had requests.
func (g *Grouper) endEpoch(group *Group, from, now trace.Nanos) {
	if now > 0 {
		group.Open.cover(from, now)
		if p := group.history.At(lastOf(now)); p != nil {
			group.Open.past(&g.past)
			p.Merge(g.past)
		}
		group.Since, group.Seen = cmp.Or(group.Since, now), now
	}
	if w := &group.watch; !w.learned {
		w.blocks = addBlock(w.blocks, group.Open.Latency.Logs(), maxBlocks)
	}
	group.Current.Merge(&group.Open, g.options.Edges)
	if group.younger != nil {
		group.younger.Merge(&group.Open, g.options.Edges)
	}
	group.Open.Reset(group.Current.Sample.Cap())
}

// judgedSpan is how far back the window that is judged of a group with an expectation reaches at most: what is wrong now is looked for, not
// what was in the morning.
const judgedSpan = time.Hour

// limit keeps the window that is judged from reaching back further than judgedSpan before now. Past half of that a second window begins,
// which takes the place of the first in the end.
func (g *Grouper) limit(group *Group, now trace.Nanos) {
	switch span := now.Sub(group.Current.First); {
	case group.Current.Total.N == 0:
	case group.younger == nil && span > judgedSpan/2:
		group.younger = &Window{}
		group.younger.Reset(g.options.Attended)
	case span > judgedSpan && group.younger.Total.N > 0:
		group.Current, group.younger = *group.younger, nil
	}
}

// judgeAnew begins the window that is judged anew.
func (g *Grouper) judgeAnew(group *Group) {
	group.Current.Reset(g.options.Sample)
	group.younger = nil
}

// roomShare is the part of the groups, one in so many, that make room at a time: so that the next are not turned away at once, and
// few go that will come back.
const roomShare = 16

// evict makes room by forgetting groups that were not seen for longest. No request type goes before its groups, and none with an
// open problem.
func (g *Grouper) evict() {
	old := make([]*Group, 0, len(g.groups))
	for _, group := range g.groups {
		if group.Seen < g.closed && !group.parent.watch.troubled {
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
	maps.DeleteFunc(g.groups, func(_ Hash, group *Group) bool {
		return group.Seen > 0 && group.Seen < before && !group.parent.watch.troubled // a request type is seen whenever a group of it is
	})
	if len(g.groups) < n {
		g.ordered = nil
		g.forgetSplits()
	}
}

// Group returns the group, or request type, with the given identity; nil if there is none.
func (g *Grouper) Group(id Hash) *Group { return g.groups[id] }

// Len returns the number of groups and request types.
func (g *Grouper) Len() int { return len(g.groups) }

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

// byType yields every request type with its groups.
func (g *Grouper) byType() iter.Seq2[*Group, []*Group] {
	return func(yield func(*Group, []*Group) bool) {
		all := g.all()
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].parent == all[0] {
				n++
			}
			if !yield(all[0], all[1:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// Each yields all groups and request types, each request type followed by its groups, in an order that depends on identities only.
func (g *Grouper) Each() iter.Seq[*Group] { return slices.Values(g.all()) }

// Closed returns when the last epoch ended; 0: none did.
func (g *Grouper) Closed() trace.Nanos { return g.closed }

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
