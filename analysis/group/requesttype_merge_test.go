package group

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Two RequestTypes that each learned more sets than fit have different limits. Merging keeps the lesser one, below which
// both are complete, and gives the same bytes as learning everything in one.
func TestMergeTakesTheLesserLimit(t *testing.T) {
	var sets []*observation.Observation // ascending by hash
	for i := range trace.Op(2*maxChildSets + 2) {
		sets = append(sets, &observation.Observation{Entry: 1, Children: []trace.Op{10 + i}})
	}
	slices.SortFunc(sets, func(a, b *observation.Observation) int {
		return analysis.HashOf(a.Children...).Compare(analysis.HashOf(b.Children...))
	})
	learn := func(requests []*observation.Observation) *RequestTypes {
		r := &RequestTypes{}
		for _, o := range requests {
			r.Learn(o)
		}
		return r
	}
	least := sets[:2*maxChildSets] // drops the set at maxChildSets, which others lacks
	others := slices.Concat(sets[1:maxChildSets], sets[maxChildSets+1:])
	merged, lesser := learn(others), learn(least)
	if lesser.entries[1].limit.Compare(merged.entries[1].limit) >= 0 {
		t.Fatalf("limits %v and %v", lesser.entries[1].limit, merged.entries[1].limit)
	}
	merged.Merge(lesser)
	all := slices.Concat(least, others)
	slices.Reverse(all)
	whole := learn(all)
	merged.Freeze()
	whole.Freeze()
	if !bytes.Equal(merged.AppendBinary(nil), whole.AppendBinary(nil)) {
		t.Errorf("limit %v, want %v", merged.entries[1].limit, whole.entries[1].limit)
	}
}
