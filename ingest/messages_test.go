package ingest_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestMessages links spans to spans of other traces. Spans that take messages keep the first eight links.
func TestMessages(t *testing.T) {
	keys := ingest.AllKeys()
	const destination, system = "messaging.destination.name", "messaging.system"
	own, other := trace.ID{1}, trace.ID{2}
	id := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	message := func(n uint64) trace.Join {
		return trace.Join{Message: true, Linked: trace.MessageID(other, trace.SpanID(n))}
	}
	first := make([]trace.Join, 8)
	for i := range first {
		first[i] = message(uint64(i + 1))
	}
	for name, test := range map[string]struct {
		kind  trace.Kind
		key   string
		links int
		want  []trace.Join
	}{
		"consumer":                       {trace.Consumer, "", 1, first[:1]},
		"a batch":                        {trace.Consumer, "", 100, first},
		"client that receives":           {trace.Client, destination, 1, first[:1]},
		"internal span that processes":   {trace.Internal, destination, 1, first[:1]},
		"producer, linked to its reason": {trace.Producer, destination, 1, nil},
		"server":                         {trace.Server, "", 1, nil},
		"client without a destination":   {trace.Client, system, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var batch ingest.Batch
			b := ingest.NewBuilder(&trace.Table{}, keys)
			b.Begin(&batch)
			b.Span()
			b.Trace, b.ID, b.End = own[:], id(7), 1
			b.Link(own[:], id(5), false)          // not marked as a join
			b.Link(make([]byte, 16), id(5), true) // no trace
			b.Link(other[:], id(0), true)         // no span
			for i := range test.links {
				b.Link(other[:], id(uint64(i+1)), false)
			}
			if test.key != "" {
				b.Attr(keys.Find([]byte(test.key)), []byte(test.key), ingest.Value{Text: []byte("orders")})
			}
			b.Kind = test.kind // may follow its links
			b.EndSpan()
			if fmt.Sprint(batch.Joins) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", batch.Joins, test.want)
			}
		})
	}
}
