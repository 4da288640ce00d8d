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
	Skeleton    analysis.Hash // zero for a request type, or if skeletons don't divide the type
	Whole       analysis.Hash // identity of the group without splits
	Level       Level
	Entry       trace.Op
	parent      *Group        // the request type; a request type is its own parent
	values      []VariableBin // values of the attributes that rules add to the key
	sizeRule    sizeRule
	options     *Options

	numbers       edgeNumbers
	Open          Window // requests of the open epoch
	Current       Window // judged requests: the requests since the group was last healthy, at most one hour
	Reference     Window // requests of healthy times, without a sample
	nextReference Window // the next reference
	// unproven holds requests of healthy epochs that are not part of Reference yet, because an incident may turn out to
	// have started earlier. The second element is the second half.
	unproven  [2]Window
	halfway   trace.Nanos // start of the second half
	successor *Window     // the later part of a long Current, which will replace it, or nil
	history   stats.Series[Past, *Past]
	recent    []recentWindow // of a request type, the latest last
	Since     trace.Nanos    // end of the first epoch with a request
	Seen      trace.Nanos    // end of the last epoch with a request
	revision  uint64

	Expectation Expectation
	OpenProblem bool // set by package detect: the group has an open problem, so that Current is judged
	// AnyOpenProblem is set by package detect if a request type, or one of its groups, has an open problem, so that all
	// groups of the type are kept.
	AnyOpenProblem bool
}

// Parent returns the request type of a group. A request type is its own parent.
func (group *Group) Parent() *Group { return group.parent }

// Edges returns the edges by the numbers that rows of samples use. They are in order of first occurrence until they are
// renumbered. The slice belongs to the group.
func (group *Group) Edges() []trace.Edge { return group.numbers.edges }

// SizeKey returns the key of the attribute that holds the size of a request, or 0 if sizes don't matter.
func (group *Group) SizeKey() trace.Symbol { return group.sizeRule.key }

// Revision returns a number that changes whenever the statistics of Current or Reference change. It is unique over all
// groups and states.
func (group *Group) Revision() uint64 { return group.revision }

// Rate returns the requests per second of the current window or, if it is empty, of the reference.
func (group *Group) Rate() float64 {
	if group.Current.Total.N == 0 {
		return group.Reference.Rate()
	}
	return group.Current.Rate()
}

// enoughUnexpected is the number of requests since the last healthy epoch that suffices to judge a group without a
// problem by these requests alone.
const enoughUnexpected = 50

// Judged returns the window that shows chronic problems: the reference as long as requests are as expected, and
// otherwise the current window.
func (group *Group) Judged() *Window {
	if group.Expectation.Learned && !group.OpenProblem && group.Current.Total.N < enoughUnexpected {
		return &group.Reference
	}
	return &group.Current
}

// JudgedSize returns the size model of the judged window, or nil if it is not judged by size.
func (group *Group) JudgedSize() *SizeModel {
	if w := group.Judged(); w == &group.Current {
		return w.sizeModel(group.sizeRule.timeout)
	}
	return group.Expectation.Size
}

// add adds o, with its times by edge, to the open window.
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
	if w.Total.N == 1 || o.Start < w.First {
		w.First = o.Start
	}
	w.Last = max(w.Last, o.Start)
	key := o.Key()
	if w.Sample.Accepts(key) {
		w.Sample.Add(key, rows.row(&group.numbers, group.options.Edges, duration, times))
	}
	if size, ok := group.sizeRule.sizeOf(o); ok {
		duration = group.addTransfer(key, Transfer{size, duration})
	}
	if e := &group.Expectation; e.Learned {
		e.Counts.Add(&e.Reference, duration)
	}
}

// addTransfer adds t, the transfer of the request with the given key, to the open window. It returns the duration to
// compare with the expectation.
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

// renumber renumbers the edges in ascending order, in the samples as well.
func (group *Group) renumber(rows *rowBuilder) {
	numbers := group.numbers.compact(group.options.Edges)
	renumbered := func(row stats.Row) stats.Row { return rows.renumbered(row, numbers) }
	group.Open.Sample.Replace(renumbered)
	group.Current.Sample.Replace(renumbered)
	if group.successor != nil {
		group.successor.Sample.Replace(renumbered)
	}
}

// endEpoch adds the requests of the epoch [from, now] to the current window and to the history. now is 0 if the caller
// uses no epochs. past is scratch.
func (group *Group) endEpoch(from, now trace.Nanos, past *Past) {
	group.revision++
	if now > 0 {
		group.Open.stamp(from, now)
		if p := group.history.At(lastOf(now)); p != nil {
			group.Open.past(past)
			p.Merge(*past)
			group.addRecent(from, now, past)
		}
		if group.Since == 0 {
			group.Since = now
		}
		group.Seen = now
	}
	group.Expectation.endEpoch(&group.Open)
	group.Current.Merge(&group.Open, group.options.Edges)
	if group.successor != nil {
		group.successor.Merge(&group.Open, group.options.Edges)
	}
	group.Open.Reset(group.Current.Sample.Cap())
}

// maxJudged is the maximum length of the current window of a group with an expectation, so that problems of earlier
// hours don't hide present ones.
const maxJudged = time.Hour

// LimitWindow limits the current window to about the last hour. When the window is half an hour long, it starts a
// second window, which later replaces the first.
func (group *Group) LimitWindow(now trace.Nanos) {
	switch span := now.Sub(group.Current.First); {
	case group.Current.Total.N == 0:
	case group.successor == nil && span > maxJudged/2:
		group.successor = &Window{}
		group.successor.Reset(group.options.LargeSample)
	case span > maxJudged && group.successor.Total.N > 0:
		group.Current, group.successor = *group.successor, nil
		group.revision++
	}
}

// RestartWindow empties the current window.
func (group *Group) RestartWindow() {
	group.Current.Reset(group.options.Sample)
	group.successor = nil
	group.revision++
}

// EnlargeSample sets the size of the sample of the open epoch: LargeSample if large is true, otherwise Sample. large
// should be true if the group may have a problem.
func (group *Group) EnlargeSample(large bool) {
	if large {
		group.Open.Sample.Resize(group.options.LargeSample)
	} else {
		group.Open.Sample.Resize(group.options.Sample)
	}
}

// reset empties all windows.
func (group *Group) reset() {
	for _, w := range []*Window{
		&group.Open, &group.Current, &group.Reference, &group.nextReference, &group.unproven[0],
		&group.unproven[1],
	} {
		w.Reset(group.options.Sample)
	}
}
