package group

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Group is a set of requests that are expected to perform alike, or all requests of one type.
type Group struct {
	ID          analysis.Hash
	RequestType analysis.Hash
	Skeleton    analysis.Hash // zero at the level of the request type, and where the skeleton does not tell groups apart
	Whole       analysis.Hash // the identity that the group would have if it were not split
	Level       Level
	Entry       trace.Op
	parent      *Group        // the request type; of a request type the Group itself
	values      []VariableBin // of the attributes that rules make part of its key
	sizing      sizing
	options     *Options

	numbers   edgeNumbers
	Open      Window  // requests since the last epoch ended
	Current   Window  // requests that are judged: since the last time that all was well, at most an hour of them
	Reference Window  // requests from when all was well; without a sample
	next      Window  // what will be the reference
	younger   *Window // the later part of Current, where that reaches far back; else nil
	history   stats.Series[Past, *Past]
	Since     trace.Nanos // end of the first epoch that had a request
	Seen      trace.Nanos // end of the last epoch that had a request

	Expectation Expectation
	// OpenProblem is whether the requests of the group are a problem, and AnyOpenProblem, of request types, whether those of the type or
	// of one of its groups are. Package detect sets both. With an open problem Current is judged, and the type keeps all its groups.
	OpenProblem, AnyOpenProblem bool
}

// Parent returns the request type; of a request type the Group itself.
func (group *Group) Parent() *Group { return group.parent }

// Edges returns the edges by the numbers that rows of samples use: at first in the order of their first request. The slice belongs to
// the group.
func (group *Group) Edges() []trace.Edge { return group.numbers.edges }

// SizeKey returns the attribute with the size of a request; 0 if sizes do not matter.
func (group *Group) SizeKey() trace.Symbol { return group.sizing.key }

// Rate returns the requests per second of those that are judged or, where all of them were found well, of the reference.
func (group *Group) Rate() float64 {
	if group.Current.Total.N == 0 {
		return group.Reference.Rate()
	}
	return group.Current.Rate()
}

// enoughUnexpected is the number of requests from which those that are not as expected, but no problem, are judged by themselves.
const enoughUnexpected = 50

// Judged returns the window in which problems without a change show: if requests are as expected, the reference.
func (group *Group) Judged() *Window {
	if group.Expectation.Learned && !group.OpenProblem && group.Current.Total.N < enoughUnexpected {
		return &group.Reference
	}
	return &group.Current
}

// JudgedSize returns the size model of the window that is judged; nil if it is not judged by size.
func (group *Group) JudgedSize() *SizeModel {
	if w := group.Judged(); w == &group.Current {
		return w.sizeModel(group.sizing.timeout)
	}
	return group.Expectation.Size
}

// add adds a request with its times in edges to the open window.
func (group *Group) add(o *observation.Observation, times []observation.EdgeNanos, rows *rowBuilder) {
	w := &group.Open
	duration := o.Duration.Nanoseconds()
	if w.Tally.Add(duration, times, group.options.Edges) > 0 || w.Tally.others() > 0 {
		for group.numbers.add(times, group.options.Edges) {
			group.renumber(rows)
		}
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
	if w.Sample.Accepts(key) {
		w.Sample.Add(key, rows.row(&group.numbers, group.options.Edges, duration, times))
	}
	if size, ok := group.sizing.sizeOf(o); ok {
		duration = group.addTransfer(key, Transfer{size, duration})
	}
	group.Expectation.count(duration)
}

// addTransfer adds a request with a size to the open window. It returns the duration that is held against the expectation.
func (group *Group) addTransfer(key uint64, t Transfer) int64 {
	if group.Open.Transfers.Cap() == 0 {
		group.Open.Transfers = stats.NewSample[Transfer](transfersKept)
	}
	group.Open.Transfers.Add(key, t)
	if m := group.Expectation.Size; m != nil {
		return m.Adjusted(t)
	}
	return t.Nanos
}

// renumber numbers the edges in ascending order, in the samples as well.
func (group *Group) renumber(rows *rowBuilder) {
	numbers := group.numbers.compact(group.options.Edges)
	renumbered := func(row stats.Row) stats.Row { return rows.renumbered(row, numbers) }
	group.Open.Sample.Replace(renumbered)
	group.Current.Sample.Replace(renumbered)
	if group.younger != nil {
		group.younger.Sample.Replace(renumbered)
	}
}

// endEpoch makes the requests of the epoch [from, now] part of those that are judged, and of the history. Now is 0 where there are no
// epochs. Past is scratch.
func (group *Group) endEpoch(from, now trace.Nanos, past *Past) {
	if now > 0 {
		group.Open.cover(from, now)
		if p := group.history.At(lastOf(now)); p != nil {
			group.Open.past(past)
			p.Merge(*past)
		}
		if group.Since == 0 {
			group.Since = now
		}
		group.Seen = now
	}
	group.Expectation.endEpoch(&group.Open)
	group.Current.Merge(&group.Open, group.options.Edges)
	if group.younger != nil {
		group.younger.Merge(&group.Open, group.options.Edges)
	}
	group.Open.Reset(group.Current.Sample.Cap())
}

// judgedSpan is how far back the window that is judged of a group with an expectation reaches at most: what is wrong now is looked for, not
// what was in the morning.
const judgedSpan = time.Hour

// LimitWindow keeps the window that is judged from reaching back further than an hour before now. Past half of that a second window
// begins, which takes the place of the first in the end.
func (group *Group) LimitWindow(now trace.Nanos) {
	switch span := now.Sub(group.Current.First); {
	case group.Current.Total.N == 0:
	case group.younger == nil && span > judgedSpan/2:
		group.younger = &Window{}
		group.younger.Reset(group.options.Attended)
	case span > judgedSpan && group.younger.Total.N > 0:
		group.Current, group.younger = *group.younger, nil
	}
}

// RestartWindow empties the window that is judged.
func (group *Group) RestartWindow() {
	group.Current.Reset(group.options.Sample)
	group.younger = nil
}

// Attend makes the group sample more requests if they may not be well.
func (group *Group) Attend(closely bool) {
	if closely {
		group.Open.Sample.Resize(group.options.Attended)
	} else {
		group.Open.Sample.Resize(group.options.Sample)
	}
}

// reset empties all windows.
func (group *Group) reset() {
	for _, w := range []*Window{&group.Open, &group.Current, &group.Reference, &group.next} {
		w.Reset(group.options.Sample)
	}
}
