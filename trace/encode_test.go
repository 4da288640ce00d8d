package trace_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// filledTable returns a table with entries of every kind, some of them refused.
func filledTable() *trace.Table {
	t := &trace.Table{Limit: 12}
	for i := range 4 {
		op := t.Op(t.Symbol("shop"), t.Symbol(fmt.Sprintf("GET /%d", i)), trace.Kind(i))
		ctx := t.Child(trace.Context(i), t.Step(op, trace.Op(i)))
		t.AddEdge(trace.EdgeOf(ctx, op, 0), trace.EdgeInfo{Context: ctx, Before: op})
	}
	for i := range 20 {
		t.Symbol(fmt.Sprint(i))
	}
	return t
}

// A decoded table contains and refuses the same entries as the original.
func TestTableRoundTrip(t *testing.T) {
	for _, table := range []*trace.Table{{}, filledTable()} {
		b := table.AppendBinary(nil)
		if n := table.EncodedSize(); len(b) > n {
			t.Errorf("%d bytes, at most %d expected", len(b), n)
		}
		again, rest, err := trace.DecodeTable(append(bytes.Clone(b), 7), table.Limit)
		if err != nil || len(rest) != 1 {
			t.Fatalf("%d bytes left: %v", len(rest), err)
		}
		if !bytes.Equal(again.AppendBinary(nil), b) || again.Refused() != table.Refused() {
			t.Error("the decoded table differs")
		}
		for _, x := range []*trace.Table{table, again} {
			x.Symbol("one more")
			x.Op(1, 2, trace.Server)
		}
		if !bytes.Equal(again.AppendBinary(nil), table.AppendBinary(nil)) {
			t.Error("the tables differ after the same additions")
		}
	}
	if _, _, err := trace.DecodeTable(filledTable().AppendBinary(nil), 3); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("more entries than the limit: %v", err)
	}
}

func FuzzDecodeTable(f *testing.F) {
	f.Add(filledTable().AppendBinary(nil))
	f.Add((&trace.Table{}).AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, rest, err := trace.DecodeTable(b, 100)
		if err != nil {
			if table != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v with a result", err)
			}
			return
		}
		if again := table.AppendBinary(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Error("encoding the table again gives other bytes")
		}
		table.Path(table.Child(1, 2))
	})
}
