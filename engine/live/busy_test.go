package live

import (
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
)

// Requests are acknowledged while the core is busy, for example with a checkpoint of a large state. The shards
// continue, and their outputs wait. Nothing is lost.
func TestIntakeGoesOnWhileCoreIsBusy(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Shards = 2 })
	defer r.end()
	busy, free := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	answered := make(chan error)
	go func() {
		answered <- r.Ask(t.Context(), func(*engine.View) { close(busy); <-free })
	}()
	<-busy
	late := time.AfterFunc(time.Minute, func() {
		t.Error("requests wait for the core")
		release()
	})
	const traces = 6000
	x := &endless{}
	longest := time.Duration(0)
	for range traces {
		c.add(20 * time.Millisecond) // traces close after six seconds
		x.at = c.at()
		began := time.Now()
		if _, _, err := r.Take(t.Context(), x.request(t, 1), journal.Protobuf); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
	}
	t.Logf("%d requests acknowledged while the core was busy, each within %v; %d bytes wait",
		traces, longest, r.outputs.held.Load())
	late.Stop()
	release()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.add(time.Minute)
		r.settle()
	}
	if n := r.counted(); n != traces {
		t.Errorf("%d requests counted, want %d", n, traces)
	}
}
