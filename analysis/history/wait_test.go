package history

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestWaitInQueue counts the time between a producer and its consumer at a site of the queue, which belongs to the
// consumer, and both requests.
func TestWaitInQueue(t *testing.T) {
	table := &trace.Table{}
	shop, billing := table.Symbol("shop"), table.Symbol("billing")
	queue := table.Op(table.Symbol("orders"), table.Symbol("orders"), trace.External)
	send := table.Op(shop, table.Symbol("send"), trace.Producer)
	process := table.Op(billing, table.Symbol("process"), trace.Consumer)
	const ms = trace.Nanos(time.Millisecond)
	x := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{
		{ID: 1, Op: send, Service: shop, Kind: trace.Producer, Peer: queue, Start: 100 * ms, End: 102 * ms},
		{ID: 2, Parent: 1, Op: process, Service: billing, Kind: trace.Consumer, Start: 152 * ms, End: 160 * ms},
	}}
	tally := NewTally()
	tally.Observe(critpath.NewExtractor(critpath.DefaultOptions()).Extract(x))
	h := NewSites(table)
	h.Merge(tally)
	if n := h.Requests.Total().Calls(); n != 2 {
		t.Errorf("%d requests, want that of the producer and that of the consumer", n)
	}
	number, known := h.numbers[SiteKey{Op: queue, Parent: process}]
	if !known || h.Services.names[h.sites[number].Service] != billing {
		t.Fatalf("site %d, known: %t, want one of billing", number, known)
	}
	if got := h.series[number].Unpack(nil); len(got) != 1 || got[0].Calls != 1 || got[0].Nanos != int64(50*ms) {
		t.Errorf("the wait is %+v, want one of 50 ms", got)
	}
}
