package group

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// VariableBin is what all requests of a group have in common besides their path: the value of a variable.
type VariableBin struct {
	Variable string // as in [detect.Explanation]
	Value    string // or values
	Where    trace.Context
}

// Splitter tells requests of one group apart by a variable, so that they form several: the values of one are not expected to perform
// alike. Groups are given by the identity that they have as a whole.
type Splitter interface {
	// Bin returns the number of the bin that o is in: 0 in a group that is not split, and in that bin of another that keeps the
	// identity, and with it the history, of the whole. It is to be fast, for it is asked for every request.
	Bin(o *observation.Observation, whole analysis.Hash) uint64
	// Bins returns what requests have in common, by the number of their bin; nil for a group that is not split.
	Bins(whole analysis.Hash) map[uint64]VariableBin
	// Keep forgets how groups are split that are not kept.
	Keep(kept func(whole analysis.Hash) bool)
}

// Keys decides which group a request belongs to: by its request type, its skeleton, the attributes that rules name, and the bin of a
// split.
type Keys struct {
	Types  *RequestTypes // whose rules apply
	Table  *trace.Table
	Splits Splitter // by which groups are split; nil: none is
}

// Of returns the identity of the group of a request of the given type, and that of the group as a whole if it is split.
func (k *Keys) Of(requestType analysis.Hash, o *observation.Observation) (id, whole analysis.Hash) {
	whole = k.whole(requestType, o)
	if k.Splits == nil {
		return whole, whole
	}
	return binned(whole, k.Splits.Bin(o, whole)), whole
}

// identity returns the identity of the group, as a whole, of a request type and skeleton.
func identity(requestType, skeleton analysis.Hash) analysis.Hash {
	return analysis.HashOf(requestType.Hi, requestType.Lo, skeleton.Hi, skeleton.Lo)
}

// whole returns the identity of the group of a request, split or not.
func (k *Keys) whole(requestType analysis.Hash, o *observation.Observation) analysis.Hash {
	id := identity(requestType, k.skeleton(requestType, o))
	_, keys := k.Types.Rules.key(requestType, o.Entry)
	o.EachVariable(keys, func(v *observation.Variable) {
		id = analysis.HashOf(id.Hi, id.Lo, uint64(v.Context), uint64(v.Key), uint64(v.Text), math.Float64bits(v.Number))
	})
	return id
}

// skeleton returns the skeleton of o, zero where it does not tell groups apart.
func (k *Keys) skeleton(requestType analysis.Hash, o *observation.Observation) analysis.Hash {
	if bySkeleton, _ := k.Types.Rules.key(requestType, o.Entry); bySkeleton {
		return o.Skeleton
	}
	return analysis.Hash{}
}

// values returns the values of attributes that rules make part of the key of o's group.
func (k *Keys) values(requestType analysis.Hash, o *observation.Observation) (bins []VariableBin) {
	_, keys := k.Types.Rules.key(requestType, o.Entry)
	o.EachVariable(keys, func(v *observation.Variable) {
		value := k.Table.Text(v.Text)
		if v.Numeric {
			value = numberText(v.Number)
		}
		bins = append(bins, VariableBin{Variable: k.Table.Text(v.Key), Value: value, Where: v.Context})
	})
	return bins
}

// binned returns the identity of a group in a bin of its split.
func binned(whole analysis.Hash, bin uint64) analysis.Hash {
	if bin == 0 {
		return whole
	}
	return analysis.HashOf(whole.Hi, whole.Lo, bin)
}

// bins returns the values of attributes in the key of a group and, if it is still split, the bin of the variable that splits it.
func (k *Keys) bins(group *Group) []VariableBin {
	if k.Splits == nil || group.Level != LevelGroup {
		return group.values
	}
	for bin, b := range k.Splits.Bins(group.Whole) {
		if binned(group.Whole, bin) == group.ID {
			return append(slices.Clone(group.values), b)
		}
	}
	return group.values
}
