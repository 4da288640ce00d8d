package report

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/trace"
)

// No tracepoint shows why requests wait before their service takes them up.
func TestQueued(t *testing.T) {
	table := &trace.Table{}
	n := &names{Names: describe.New(table, describe.Verbatim)}
	for name, want := range map[string]string{
		"in queue":   "check the threads or workers of cart",
		"processing": "add tracepoints inside cart processing",
	} {
		op := table.Op(table.Symbol("cart"), table.Symbol(name), trace.Internal)
		s := n.unexplained(&group.EdgeShare{Edge: 1, Context: table.Child(0, op)})
		if !strings.HasPrefix(s.String(), want) {
			t.Errorf("%s: %s", name, s)
		}
	}
}
