package detect_test

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// newGrouper returns a Grouper whose request types learned nothing, so that every entry operation is one type.
func newGrouper(o group.Options) *group.Grouper {
	types := &group.RequestTypes{}
	types.Freeze()
	return group.NewGrouper(types, &trace.Table{}, o)
}

// sizeGrouper returns a Grouper with rules for all requests.
func sizeGrouper(rules group.Rules) *group.Grouper {
	table := &trace.Table{}
	table.Op(table.Symbol("shop"), table.Symbol("GET"), trace.Server)
	types := &group.RequestTypes{Rules: group.NewRuleSet(rules, table)}
	types.Freeze()
	return group.NewGrouper(types, table, group.Options{Sample: 256})
}
