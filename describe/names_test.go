package describe

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// An operation never has an empty name: a blank service and name are replaced.
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

// Two request types never have the same name, and a type that is added again keeps its name.
func TestAddTypes(t *testing.T) {
	s := newShop()
	n := New(s.table, Verbatim)
	add := func(id byte) string {
		x := group.Summary{ID: analysis.Hash{Hi: uint64(id)}, Level: group.LevelRequestType, Entry: s.checkout}
		n.Add(&x)
		return n.RequestType(x.ID, 0)
	}
	first, second := add(1), add(2)
	if first == second || first != n.Op(s.checkout) {
		t.Errorf("got %q and %q, want different names", first, second)
	}
	if again := [2]string{add(1), add(2)}; again != [2]string{first, second} {
		t.Errorf("got %q, want %q and %q as before", again, first, second)
	}
}
