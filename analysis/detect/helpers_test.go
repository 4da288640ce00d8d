package detect_test

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// newGrouper returns a Grouper with types learned from nothing: every entry operation is one.
func newGrouper(o group.Options) *group.Grouper {
	types := &group.RequestTypes{}
	types.Freeze()
	return group.NewGrouper(types, &trace.Table{}, o)
}

// sizeGrouper returns a Grouper under rules about every request.
func sizeGrouper(rules group.Rules) *group.Grouper {
	table := &trace.Table{}
	table.Op(table.Symbol("shop"), table.Symbol("GET"), trace.Server)
	types := &group.RequestTypes{Rules: group.NewRuleSet(rules, table)}
	types.Freeze()
	return group.NewGrouper(types, table, group.Options{Sample: 256})
}
