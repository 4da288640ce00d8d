package group

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// VariableBin is a value of a variable, or a range of values, that all requests of a group have.
type VariableBin struct {
	Variable string // as in [detect.Explanation]
	Value    string // or several values
	Where    trace.Context
}

// Splitter splits groups by a variable, because requests with different values are not expected to perform alike. Its
// methods identify a group by the identity that it has without splits.
type Splitter interface {
	// Bin returns the bin of o in the group with identity whole. It returns 0 if the group is not split, and for the
	// bin that keeps the identity of the group, and thus its history. Bin is called for every request.
	Bin(o *observation.Observation, whole analysis.Hash) uint64
	// Bins returns the values of the group with identity whole, by bin, or nil if the group is not split.
	Bins(whole analysis.Hash) map[uint64]VariableBin
	// Keep deletes the splits of the groups for which kept returns false.
	Keep(kept func(whole analysis.Hash) bool)
}

// Keys assigns requests to groups by request type, skeleton, the attributes that rules name, and the bin of a split.
type Keys struct {
	Types  *RequestTypes // with the rules that apply
	Table  *trace.Table
	Splits Splitter // nil if no group is split
}

// Of returns the identity of the group of o, whose type is requestType, and the identity of that group without splits.
func (k *Keys) Of(requestType analysis.Hash, o *observation.Observation) (id, whole analysis.Hash) {
	whole = k.whole(requestType, o)
	if k.Splits == nil {
		return whole, whole
	}
	return binned(whole, k.Splits.Bin(o, whole)), whole
}

// identity returns the identity of the group, without splits, of requests with the given type and skeleton.
func identity(requestType, skeleton analysis.Hash) analysis.Hash {
	return analysis.HashOf(requestType.Hi, requestType.Lo, skeleton.Hi, skeleton.Lo)
}

// whole returns the identity that the group of o has without splits.
func (k *Keys) whole(requestType analysis.Hash, o *observation.Observation) analysis.Hash {
	id := identity(requestType, k.skeleton(requestType, o))
	_, keys := k.Types.Rules.key(requestType, o.Entry)
	o.EachVariable(keys, func(v *observation.Variable) {
		id = analysis.HashOf(id.Hi, id.Lo, uint64(v.Context), uint64(v.Key), uint64(v.Text), math.Float64bits(v.Number))
	})
	return id
}

// skeleton returns the skeleton of o, or zero if skeletons don't divide its type into groups.
func (k *Keys) skeleton(requestType analysis.Hash, o *observation.Observation) analysis.Hash {
	if bySkeleton, _ := k.Types.Rules.key(requestType, o.Entry); bySkeleton {
		return o.Skeleton
	}
	return analysis.Hash{}
}

// values returns the values of the attributes that rules add to the key of the group of o.
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

// binned returns the identity of bin in the group with identity whole. Bin 0 keeps the identity of the group.
func binned(whole analysis.Hash, bin uint64) analysis.Hash {
	if bin == 0 {
		return whole
	}
	return analysis.HashOf(whole.Hi, whole.Lo, bin)
}

// bins returns the values of the attributes in the key of a group. If the group is a bin of a split, it also returns
// the values of the bin.
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
