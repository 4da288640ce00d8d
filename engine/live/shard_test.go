package live

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// A request has the records of its own trace only, even if it reuses the memory of an earlier request.
func TestRecordsOfRequests(t *testing.T) {
	options := DefaultOptions()
	options.Shards = 1
	to := &shardOutputs{waiting: make(chan *shardOutput, 1)}
	sh := newShard(0, nil, &options, nil, to, new(Counts))
	now := start
	for i := range byte(3) {
		first := uint64(2*i + 1)
		batch := ingest.Batch{
			Traces: []trace.ID{{i, 1}, {i, 1}},
			Spans: []trace.Span{
				{ID: 1, Op: 1, Kind: trace.Server, Start: now, End: now + 10},
				{ID: 2, Parent: 1, Op: 2, Start: now + 1, End: now + 2},
			},
		}
		for k := range int32(2) { // each span in its own record
			sh.open.Add(now, first+uint64(k), &batch, assemble.Run{From: k, To: k + 1})
		}
		now = now.Add(options.Assembly.Settle)
		sh.close(now)
		sh.flush()
		o := <-to.waiting
		if o.n != 1 {
			t.Fatalf("%d requests, want 1", o.n)
		}
		if got, want := o.requests[0].Records, []uint64{first, first + 1}; !slices.Equal(got, want) {
			t.Errorf("the records of trace %d are %v, want %v", i, got, want)
		}
		sh.out.requests = o.requests // as from the pool
	}
}

// The memory for open traces is divided among the shards.
func TestShardsShareMemory(t *testing.T) {
	options := DefaultOptions()
	options.Shards, options.Assembly.Memory = 4, 64<<10
	var total int64
	for number := range options.Shards {
		sh := newShard(number, nil, &options, nil, nil, new(Counts))
		for i := range byte(200) {
			batch := ingest.Batch{
				Traces: []trace.ID{{i, 1}}, Spans: []trace.Span{{ID: 1, Op: 1, Start: start, End: start + 1}},
			}
			sh.open.Add(start, uint64(i), &batch, assemble.Run{To: 1})
			sh.close(start)
		}
		total += sh.open.Stats().Bytes
	}
	if most := options.Assembly.Memory; total > most || total < most/2 {
		t.Errorf("open traces take %d bytes, want nearly %d", total, most)
	}
}
