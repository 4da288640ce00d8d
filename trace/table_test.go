package trace_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// Identities are stored, and compared across releases and machines, so these numbers must never change.
func TestIdentitiesAreStable(t *testing.T) {
	service, name := trace.SymbolOf([]byte("cart")), trace.SymbolOf([]byte("Get"))
	op := trace.OpOf(service, name, trace.Server)
	ctx := trace.Context(0).Child(op).Child(op)
	id, err := trace.ParseID("0123456789abcdef0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%016x %016x %016x %016x %016x %016x", uint64(service), uint64(op), uint64(ctx),
		uint64(trace.EdgeOf(ctx, 0, op)), trace.Mix(1, 2), id.Hash())
	if want := stable; got != want {
		t.Errorf("identities changed:\n got %s\nwant %s", got, want)
	}
}

const stable = "0973a3c47fd7c632 6b983cad61a3449a 829cc7253dee86cf 3cfac9c6259595b9 b683bfdca864392d 57510b77d54fd253"

func TestMix(t *testing.T) {
	if trace.Mix(1, 2) == trace.Mix(2, 1) {
		t.Error("Mix is symmetric")
	}
	rapid.Check(t, func(t *rapid.T) {
		if a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b"); trace.Mix(a, b) == 0 {
			t.Error("Mix returned 0, which stands for none")
		}
	})
}

// entries adds operations, contexts and edges to a table, in some order.
type entries []func(*trace.Table)

func drawEntries(t *rapid.T) (all entries) {
	for range rapid.IntRange(0, 30).Draw(t, "entries") {
		op := trace.Op(rapid.IntRange(1, 4).Draw(t, "op"))
		ctx := trace.Context(rapid.IntRange(0, 3).Draw(t, "context"))
		target := trace.Op(rapid.IntRange(0, 3).Draw(t, "target"))
		text := fmt.Sprint("name", op)
		all = append(all,
			func(u *trace.Table) {
				u.Step(u.Op(u.Symbol(text), u.SymbolBytes([]byte(text)), trace.Client), target)
			},
			func(u *trace.Table) { u.Child(ctx, op) },
			func(u *trace.Table) { u.AddEdge(trace.EdgeOf(ctx, op, 0), trace.EdgeInfo{Context: ctx, Before: op}) })
	}
	return all
}

func (e entries) table() *trace.Table {
	var u trace.Table
	for _, add := range e {
		add(&u)
	}
	return &u
}

// Tables filled in any order, together or apart and merged, are equal.
func TestTableMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawEntries(t)
		whole := all.table()
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		shuffled := rapid.Permutation(all).Draw(t, "order")
		merged := shuffled[:cut].table()
		merged.Merge(shuffled[cut:].table())
		if !bytes.Equal(whole.AppendBinary(nil), merged.AppendBinary(nil)) {
			t.Error("the tables differ")
		}
	})
}

func TestTableLimit(t *testing.T) {
	table := trace.Table{Limit: 1}
	a, b := table.Symbol("a"), table.Symbol("b")
	c := table.Symbol("c")
	table.Symbol("a") // known: not refused
	got := []string{table.Text(a), table.Text(b), table.Text(c), table.Text(0)}
	if !slices.Equal(got, []string{"a", "b", trace.Overflow, ""}) {
		t.Errorf("texts %q", got)
	}
	if table.Refused() != 1 {
		t.Errorf("refused %d, want 1", table.Refused())
	}
	if op := trace.OpOf(a, c, trace.Server); table.OpName(op) != trace.Overflow || table.ServiceName(op) != "" {
		t.Errorf("an unknown operation is %q of %q", table.OpName(op), table.ServiceName(op))
	}
}

// A step has the names of its operation, and a target. It is the operation itself if it has no target.
func TestTableStep(t *testing.T) {
	var table trace.Table
	get := table.Op(table.Symbol("frontend"), table.Symbol("GET"), trace.Client)
	cart := table.Op(table.Symbol("cart"), table.Symbol("GET /cart"), trace.Server)
	step := table.Step(get, cart)
	if step != get.To(cart) || step == get || step == cart.To(get) {
		t.Errorf("step %x of %x to %x", step, get, cart)
	}
	if got := table.Operation(step); got.Target != cart || table.OpName(step) != "GET" ||
		table.ServiceName(step) != "frontend" {
		t.Errorf("operation of the step: %+v", got)
	}
	if table.Base(step) != get || table.Base(get) != get || table.Target(step) != cart || table.Target(get) != 0 {
		t.Errorf("base %x, target %x", table.Base(step), table.Target(step))
	}
	if table.Step(get, 0) != get || table.Operation(get).Target != 0 {
		t.Error("a step without a target is not the operation")
	}
	if unknown := trace.Op(5); table.Step(unknown, cart) != unknown.To(cart) ||
		table.Base(unknown.To(cart)) != unknown.To(cart) {
		t.Error("a step of an unknown operation is stored")
	}
}

// Saved state contains identities of steps.
func TestStepIdentity(t *testing.T) {
	if got := trace.Op(1).To(2); got != 0x97e4113e1a97cdf5 {
		t.Errorf("step %#x", uint64(got))
	}
}

// An edge between a call of op and a call of target is not the context where op calls target.
func TestEdgesAreNoContexts(t *testing.T) {
	const parent, op, target = trace.Context(1), trace.Op(2), trace.Op(3)
	if edge := trace.EdgeOf(parent, op, target); edge == trace.ContextEdge(parent.Child(op.To(target))) {
		t.Errorf("edge and context %#x", uint64(edge))
	}
}

func TestTablePath(t *testing.T) {
	var table trace.Table
	a, b := trace.Op(1), trace.Op(2)
	root := table.Child(0, a)
	leaf := table.Child(root, b)
	if got := table.Path(leaf); !slices.Equal(got, []trace.Op{a, b}) {
		t.Errorf("path %v", got)
	}
	if got := table.Path(leaf.Child(a)); got != nil {
		t.Errorf("path of an unknown context %v", got)
	}
	loop := trace.Context(7)
	table.AddContext(loop, loop, a)
	if n := len(table.Path(loop)); n != 1<<20 {
		t.Errorf("a cycle of contexts ends after %d", n)
	}
}
