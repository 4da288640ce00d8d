package describe

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// An operation with a blank service and name has a visible name, no operation has none.
func TestUnnamed(t *testing.T) {
	s := newShop()
	n := s.names()
	blank := s.table.Op(s.table.Symbol(" "), 0, trace.Server)
	if got := n.Op(blank); got != unnamed {
		t.Errorf("blank operation: %q, want %q", got, unnamed)
	}
	if got := n.Op(0); got != "" {
		t.Errorf("no operation: %q, want none", got)
	}
}
