package live

import (
	"context"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
)

// Requests are acknowledged while the core is busy, as with a checkpoint of a large state: the shards go on, and their
// outputs wait. Nothing is lost.
func TestIntakeGoesOnWhileCoreIsBusy(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Shards = 2 })
	defer r.end()
	busy, release, free := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		free <- r.Ask(t.Context(), func(*engine.Core) { close(busy); <-release })
	}()
	<-busy
	const traces = 6000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x := &endless{}
	longest, acknowledged := time.Duration(0), 0
	for ; acknowledged < traces; acknowledged++ {
		c.add(20 * time.Millisecond) // traces close after six seconds
		x.at = c.at()
		began := time.Now()
		if _, _, err := r.Take(ctx, x.request(t, 1), journal.Protobuf); err != nil {
			t.Errorf("after %d traces: %v", acknowledged, err)
			break
		}
		longest = max(longest, time.Since(began))
	}
	t.Logf("%d requests acknowledged while the core was busy, each within %v; %d wait", acknowledged, longest, r.outputs.held.Load())
	close(release)
	if err := <-free; err != nil {
		t.Fatal(err)
	}
	c.add(time.Minute)
	r.settle()
	c.add(time.Minute)
	r.settle()
	if n := r.counted(); n != uint64(acknowledged) {
		t.Errorf("%d requests counted, %d acknowledged", n, acknowledged)
	}
}
