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
		id = hashOf(id.Hi, id.Lo, uint64(v.Context), uint64(v.Key), uint64(v.Text), math.Float64bits(v.Number))
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
	return hashOf(whole.Hi, whole.Lo, bin)
}

// variableBins returns the values of attributes in the key of a group, and the bin of the variable by which it is split, if it is, still.
func (g *Grouper) variableBins(group *Group) []VariableBin {
	if g.Splits == nil || group.Level != GroupLevel {
		return group.keyed
	}
	r := g.Splits.Of(group.Whole)
	if r == nil {
		return group.keyed
	}
	for i := range r.Bins {
		if binned(group.Whole, r.mixed(uint64(i))) == group.ID {
			return append(slices.Clone(group.keyed), VariableBin{Variable: r.Variable, Value: r.Bins[i].String(), Where: r.Where})
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
		if group.Reference.Total.CoV() > cov || g.Splits.Of(group.Whole) != nil {
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
	for _, r := range g.Splits.All() {
		if !kept[r.Group] {
			g.Splits.Forget(r.Group)
		}
	}
}
