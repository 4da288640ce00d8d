package trace_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

func parts(all ...[]byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// forget starts enough periods for names to be forgotten, and forgets the names that b does not mention.
func forget(t *testing.T, table *trace.Table, b []byte) int {
	t.Helper()
	for range 4 {
		table.Renew()
	}
	n, err := table.Forget(parts([]byte("other bytes"), b))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A mentioned entry stays, at any offset and in either byte order, with all entries that it refers to.
func TestForgetKeepsMentioned(t *testing.T) {
	for offset := range 9 {
		for name, append64 := range map[string]func([]byte, uint64) []byte{
			"word": binary.LittleEndian.AppendUint64,
			"CBOR": func(b []byte, x uint64) []byte { return binary.BigEndian.AppendUint64(append(b, 0x1b), x) },
		} {
			table := &trace.Table{}
			cart := table.Op(table.Symbol("cart"), table.Symbol("GET /cart"), trace.Server)
			get := table.Op(table.Symbol("frontend"), table.Symbol("GET"), trace.Client)
			root := table.Child(0, table.Op(table.Symbol("frontend"), table.Symbol("/"), trace.Server))
			ctx := table.Child(root, table.Step(get, cart))
			edge := trace.EdgeOf(ctx, 0, cart)
			table.AddEdge(edge, trace.EdgeInfo{Context: ctx, After: cart})
			want := table.AppendBinary(nil)
			for i := range 100 {
				c := table.Child(root,
					table.Op(table.Symbol("shop"), table.Symbol(fmt.Sprint("order ", i)), trace.Internal))
				table.AddEdge(trace.EdgeOf(c, 0, 0), trace.EdgeInfo{Context: c})
			}
			b := append64(make([]byte, offset), uint64(edge))
			if got := table.AppendMentioned(nil, b); !bytes.Equal(got, want) {
				t.Errorf("%s at %d: the mentioned part differs", name, offset)
			}
			if n := forget(t, table, b); n != 401 || !bytes.Equal(table.AppendBinary(nil), want) {
				t.Errorf("%s at %d: forgot %d entries, want 401 and the table as it was before they came",
					name, offset, n)
			}
		}
	}
}

// Names that arrive again within two periods stay.
func TestForgetKeepsRecent(t *testing.T) {
	table := &trace.Table{}
	name := func(i int) trace.Symbol { return table.Symbol(fmt.Sprint("name ", i)) }
	name(0)
	if n, err := table.Forget(parts()); n != 0 || err != nil {
		t.Errorf("forgot %d without a period: %v", n, err)
	}
	for period := range 4 {
		table.Renew()
		name(period)
	}
	broken := errors.New("broken")
	if n, err := table.Forget(func(yield func([]byte, error) bool) { yield(nil, broken) }); n != 0 ||
		!errors.Is(err, broken) {
		t.Errorf("forgot %d without the whole state: %v", n, err)
	}
	if n, err := table.Forget(parts()); n != 2 || err != nil {
		t.Errorf("forgot %d names, want those of the first two periods: %v", n, err)
	}
	for i, want := range []string{trace.Overflow, trace.Overflow, "name 2", "name 3"} {
		if got := table.Text(trace.SymbolOf(fmt.Append(nil, "name ", i))); got != want {
			t.Errorf("name %d is %q, want %q", i, got, want)
		}
	}
}

// A full table has room for new names after it has forgotten others.
func TestForgetMakesRoom(t *testing.T) {
	table := &trace.Table{Limit: 50}
	for i := range 200 {
		table.Symbol(fmt.Sprint(i))
	}
	if !table.Crowded() || table.Refused() != 100 {
		t.Errorf("crowded %t, refused %d", table.Crowded(), table.Refused())
	}
	if n := forget(t, table, nil); n != 100 || table.Crowded() {
		t.Errorf("forgot %d, crowded %t", n, table.Crowded())
	}
	if got := table.Text(table.Symbol("new")); got != "new" {
		t.Errorf("a new name is %q", got)
	}
}

// A frozen table keeps the entries that it had when it was frozen. It may be read while others are added and forgotten.
func TestFreeze(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		table := &trace.Table{}
		for i := range 100 {
			table.Op(table.Symbol("shop"), table.Symbol(fmt.Sprint("order ", i)), trace.Server)
		}
		before := table.AppendBinary(nil)
		if n := table.EncodedSize(); len(before) > n {
			t.Errorf("%d bytes, at most %d expected", len(before), n)
		}
		frozen, read := table.Freeze(), make(chan []byte)
		go func() { read <- frozen.AppendBinary(nil) }()
		op := table.Op(table.Symbol("cart"), table.Symbol("GET /cart"), trace.Server)
		table.Symbol("order 5")
		if forgets {
			forget(t, table, binary.LittleEndian.AppendUint64(nil, uint64(op)))
		}
		if got := <-read; !bytes.Equal(got, before) {
			t.Error("the frozen table changed")
		}
		table.Thaw()
		want := 201 + 3
		if forgets {
			want = 3
		}
		if table.Len() != want || table.OpName(op) != "GET /cart" {
			t.Errorf("%d entries, want %d; the new operation is %q", table.Len(), want, table.OpName(op))
		}
	}
}
