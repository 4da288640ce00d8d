package live

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// Exemplars for which an epoch had no time are stored in a later one.
func TestPostponedExemplars(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention = Retention{} })
	defer r.end()
	for _, s := range traffic(t, 1, 10) {
		r.send(s.bodies)
	}
	k, err := newExemplarStore(r.options, new(atomic.Pointer[Retention]), &r.counts)
	if err != nil {
		t.Fatal(err)
	}
	k.size = 3
	k.retained.Store(&Retention{Exemplars: k.size})
	group := &group.Group{ID: analysis.Hash{Lo: 1}}
	decoder := newDecoder(ingest.AllKeys())
	n := 0
	for record, err := range r.journal.Read(1) {
		if err != nil {
			t.Fatal(err)
		}
		var b ingest.Batch
		if record.Kind != journal.Protobuf || n == k.size {
			continue
		}
		if err := decoder.Protobuf(record.Data, &b); err != nil {
			t.Fatal(err)
		}
		o := observation.Observation{Trace: b.Traces[0], Root: b.Spans[0].ID, Start: c.at(), Duration: time.Second}
		k.observe(group, &request{Observation: o, records: []uint64{record.Seq}})
		n++
	}
	known := func(analysis.Hash) bool { return true }
	kept := func() (n int) {
		e, err := r.store.Exemplars(group.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(e.Slow)
	}
	refs := make(map[trace.ID]int)

	k.epoch(c.at(), known)
	c.add(k.options.Core.Epoch) // before run received the task
	if err := k.applyAll(<-k.work, refs); err != nil || kept() != 0 {
		t.Errorf("%d exemplars were stored after their time, error %v", kept(), err)
	}
	k.epoch(c.at(), known)
	if err := k.applyAll(<-k.work, refs); err != nil || kept() != k.size {
		t.Errorf("%d exemplars are stored, want %d, error %v", kept(), k.size, err)
	}
	k.epoch(c.at(), known)
	if len(k.work) != 0 {
		t.Error("unchanged exemplars are stored again")
	}
}
