package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// VariableBin is what all requests of a group have in common besides their path: the value of a variable.
type VariableBin struct {
	Variable string // as in [Explanation]
	Value    string // or values
	Where    trace.Context
}

// Splitter tells requests of one group apart by a variable, so that they form several: the values of one are not expected to perform
// alike. Groups are given by the identity that they have as a whole.
type Splitter interface {
	// Bin returns the number of the bin that o is in: 0 in a group that is not split, and in that bin of another that keeps the
	// identity, and with it the history, of the whole. It is to be fast, for it is asked for every request.
	Bin(o *Observation, whole Hash) uint64
	// Bins returns what requests have in common, by the number of their bin; nil for a group that is not split.
	Bins(whole Hash) map[uint64]VariableBin
	// Keep forgets how groups are split that are not kept.
	Keep(kept func(whole Hash) bool)
}

// GroupOf returns the identity of the group of a request of the given type, and that of the group as a whole if it is split.
func (g *Grouper) GroupOf(requestType Hash, o *Observation) (id, whole Hash) {
	whole = g.whole(requestType, o)
	if g.Splits == nil {
		return whole, whole
	}
	return binned(whole, g.Splits.Bin(o, whole)), whole
}

// whole returns the identity of the group of a request, split or not.
func (g *Grouper) whole(requestType Hash, o *Observation) Hash {
	id := GroupID(requestType, g.skeleton(requestType, o))
	_, keys := g.Types.Rules.key(requestType, o.Entry)
	eachKeyed(o, keys, func(v *Variable) {
		id = HashOf(id.Hi, id.Lo, uint64(v.Context), uint64(v.Key), uint64(v.Text), math.Float64bits(v.Number))
	})
	return id
}

// skeleton returns the skeleton of o, zero where it does not tell groups apart.
func (g *Grouper) skeleton(requestType Hash, o *Observation) Hash {
	if bySkeleton, _ := g.Types.Rules.key(requestType, o.Entry); bySkeleton {
		return o.Skeleton
	}
	return Hash{}
}

// keyed returns the values of attributes that rules make part of the key of o's group.
func (g *Grouper) keyed(requestType Hash, o *Observation) (bins []VariableBin) {
	_, keys := g.Types.Rules.key(requestType, o.Entry)
	eachKeyed(o, keys, func(v *Variable) {
		value := g.Table.Text(v.Text)
		if v.Numeric {
			value = numberText(v.Number)
		}
		bins = append(bins, VariableBin{Variable: g.Table.Text(v.Key), Value: value, Where: v.Context})
	})
	return bins
}

// binned returns the identity of a group in a bin of its split.
func binned(whole Hash, bin uint64) Hash {
	if bin == 0 {
		return whole
	}
	return HashOf(whole.Hi, whole.Lo, bin)
}

// variableBins returns the values of attributes in the key of a group, and the bin of the variable by which it is split, if it is, still.
func (g *Grouper) variableBins(group *Group) []VariableBin {
	if g.Splits == nil || group.Level != GroupLevel {
		return group.keyed
	}
	for bin, b := range g.Splits.Bins(group.Whole) {
		if binned(group.Whole, bin) == group.ID {
			return append(slices.Clone(group.keyed), b)
		}
	}
	return group.keyed
}

// Unsteady returns the groups that are well but whose CoV was above a level when they were, and those that are split: wholes whose
// splits are worth judging, those with most requests first, at most n.
func (g *Grouper) Unsteady(cov float64, n int) []Hash {
	requests := make(map[Hash]uint64)
	for _, group := range g.groups {
		w := &group.watch
		if group.Level != GroupLevel || !w.learned || group.parent.watch.troubled || group.evidence() >= quiet {
			continue
		}
		if group.Reference.Total.CoV() > cov || g.Splits.Bins(group.Whole) != nil {
			requests[group.Whole] += group.Reference.Total.N
		}
	}
	wholes := make([]Hash, 0, len(requests))
	for whole := range requests {
		wholes = append(wholes, whole)
	}
	slices.SortFunc(wholes, func(a, b Hash) int { return cmp.Or(cmp.Compare(requests[b], requests[a]), a.Compare(b)) })
	return wholes[:min(n, len(wholes))]
}

// Resplit takes in that a group was split, or its split undone, at time now: its requests are in other groups from now on, so that the
// expectation of its request type is learned anew.
func (g *Grouper) Resplit(whole Hash, now trace.Nanos) {
	for _, group := range g.all() {
		if group.Whole == whole && group.Level == GroupLevel {
			g.Accept(group.RequestType, now)
			return
		}
	}
}

// forgetSplits drops the splits of groups of which nothing is kept any more.
func (g *Grouper) forgetSplits() {
	if g.Splits == nil {
		return
	}
	kept := make(map[Hash]bool)
	for _, group := range g.groups {
		kept[group.Whole] = true
	}
	g.Splits.Keep(func(whole Hash) bool { return kept[whole] })
}
