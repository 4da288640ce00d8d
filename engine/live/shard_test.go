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
				{ID: 1, Op: 1, Kind: trace.Server, Start: now, End: now + 10}, {ID: 2, Parent: 1, Op: 2, Start: now + 1, End: now + 2},
			},
		}
		for k := range int32(2) { // each span in a record of its own
			sh.open.Add(now, first+uint64(k), &batch, assemble.Run{From: k, To: k + 1})
		}
		now = now.Add(options.Assembly.Settle)
		sh.close(now)
		sh.flush()
		o := <-to.waiting
		if o.n != 1 {
			t.Fatalf("%d requests, want 1", o.n)
		}
		if got, want := o.requests[0].records, []uint64{first, first + 1}; !slices.Equal(got, want) {
			t.Errorf("the records of trace %d are %v, want %v", i, got, want)
		}
		sh.out.requests = o.requests // as from the pool
	}
}
