package kafka

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// The value of a record of the topic starts with its format, its kind and a number. In a record of the journal, the
// number is its own; the rest is whether more records continue its data, its time, and the data. Data longer than
// maxChunk takes several records of one transaction. A record about the lead contains the number of the next record of
// the journal, and the URL of the replica that wrote it.
const (
	format = 1
	start  = 2 + 8
	head   = start + 1 + 8
	// maxChunk is the maximum size in bytes of the data in one record of the topic. Kafka refuses records above 1 MiB
	// by default.
	maxChunk = 900_000
)

// Kinds of records about the lead.
const (
	leadClaimed journal.Kind = 0x80 + iota // the replica leads from here on
	leadAlive                              // the leader is alive
	leadLeft                               // the leader has stopped
)

// appendRecord appends the records of the topic for r.
func appendRecord(all []*kgo.Record, r *journal.Packed) []*kgo.Record {
	for data := r.Data; ; {
		n := min(len(data), maxChunk)
		value := make([]byte, 0, head+n)
		value = binary.LittleEndian.AppendUint64(append(value, format, byte(r.Kind)), r.Seq)
		more := byte(0)
		if n < len(data) {
			more = 1
		}
		value = binary.LittleEndian.AppendUint64(append(value, more), uint64(r.At))
		all = append(all, &kgo.Record{Value: append(value, data[:n]...), Timestamp: time.Unix(0, int64(r.At))})
		if data = data[n:]; more == 0 {
			return all
		}
	}
}

// control returns a record about the lead.
func control(kind journal.Kind, next uint64, url string) *kgo.Record {
	value := binary.LittleEndian.AppendUint64([]byte{format, byte(kind)}, next)
	return &kgo.Record{Value: append(value, url...), Timestamp: time.Now()}
}

// entry is a record of the topic.
type entry struct {
	journal.Packed        // of a record about the lead: Seq is the number of the next record
	more           bool   // the next record continues the data
	url            string // of the replica that wrote a record about the lead
}

// parse returns the content of r, or false if this version of Sibyl didn't write it.
func parse(r *kgo.Record) (x entry, ok bool) {
	v := r.Value
	if len(v) < start || v[0] != format {
		return x, false
	}
	x.Kind, x.Seq = journal.Kind(v[1]), binary.LittleEndian.Uint64(v[2:])
	switch {
	case x.Kind >= leadClaimed:
		x.url = string(v[start:])
		return x, x.Kind <= leadLeft
	case len(v) < head:
		return x, false
	}
	x.more, x.At, x.Data = v[start] != 0, trace.Nanos(binary.LittleEndian.Uint64(v[start+1:])), v[head:]
	return x, true
}
