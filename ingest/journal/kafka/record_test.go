package kafka

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// A record of the journal is the same after its way through the topic, however large it is.
func TestRecords(t *testing.T) {
	kinds := []journal.Kind{journal.Protobuf, journal.JSON, journal.Epoch, journal.Change}
	sizes := []int{0, 1, maxChunk - 1, maxChunk, maxChunk + 1, 2 * maxChunk}
	rapid.Check(t, func(t *rapid.T) {
		want := journal.Packed{
			Seq:  rapid.Uint64().Draw(t, "seq"),
			At:   trace.Nanos(rapid.Int64().Draw(t, "at")),
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
			Data: bytes.Repeat([]byte{7}, rapid.SampledFrom(sizes).Draw(t, "size")),
		}
		var got journal.Packed
		all := appendRecord(nil, &want)
		for i, r := range all {
			x, ok := parse(r)
			if !ok || x.more != (i+1 < len(all)) || len(r.Value) > maxChunk+head {
				t.Fatalf("record %d of %d: %v, more %v, %d bytes", i, len(all), ok, x.more, len(r.Value))
			}
			x.Data = append(got.Data, x.Data...)
			got = x.Packed
		}
		if got.Seq != want.Seq || got.At != want.At || got.Kind != want.Kind || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("got %d %d %d with %d bytes", got.Seq, got.At, got.Kind, len(got.Data))
		}
	})
}

// Any value is either refused or has a known kind.
func FuzzParse(f *testing.F) {
	f.Add(control(leadClaimed, 7, "http://a").Value)
	f.Add(appendRecord(nil, &journal.Packed{Seq: 1, Kind: journal.JSON, Data: []byte("x")})[0].Value)
	f.Fuzz(func(t *testing.T, value []byte) {
		x, ok := parse(&kgo.Record{Value: value})
		if ok && x.Kind > leadLeft {
			t.Errorf("kind %d", x.Kind)
		}
	})
}
