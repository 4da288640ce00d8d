package live

import (
	"iter"
	"slices"
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

// Exemplars that an epoch had no time for are stored in a later one.
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
	decoder := newDecoder(ingest.AllKeys(), 1<<18)
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
		o.Records = []uint64{record.Seq}
		k.observe(group, &request{Observation: o})
		n++
	}
	known := func(analysis.Hash) bool { return true }
	kept := func() (n int) {
		e, err := r.store.Exemplars.Of(group.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(e.Slow)
	}
	refs := make(map[trace.ID]int)

	k.epoch(c.at(), nil, known)
	c.add(k.options.Core.Epoch) // before run received the task
	if err := k.applyAll(<-k.work, refs); err != nil || kept() != 0 {
		t.Errorf("%d exemplars were stored after their time, error %v", kept(), err)
	}
	k.epoch(c.at(), nil, known)
	if err := k.applyAll(<-k.work, refs); err != nil || kept() != k.size {
		t.Errorf("%d exemplars are stored, want %d, error %v", kept(), k.size, err)
	}
	k.epoch(c.at(), nil, known)
	if len(k.work) != 0 {
		t.Error("unchanged exemplars are stored again")
	}
}

// Recent failed requests of a group are stored in addition to the others, and are still known after a restart. They can
// be replaced once a minute.
func TestFailedExemplars(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention = Retention{} })
	defer r.end()
	for _, s := range traffic(t, 1, 10) {
		r.send(s.bodies)
	}
	retained := new(atomic.Pointer[Retention])
	const size = 2
	retained.Store(&Retention{Exemplars: size})
	open := func() *exemplarStore {
		options := *r.options
		options.Retention.Exemplars = size
		k, err := newExemplarStore(&options, retained, &r.counts)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k, refs := open(), make(map[trace.ID]int)
	group := &group.Group{ID: analysis.Hash{Lo: 1}}
	decoder := newDecoder(ingest.AllKeys(), 1<<18)
	next, stop := iter.Pull2(r.journal.Read(1))
	defer stop()
	begun := c.at()
	observe := func(after time.Duration, failed bool) {
		t.Helper()
		for {
			record, err, ok := next()
			if !ok || err != nil {
				t.Fatal("no more requests", err)
			}
			var b ingest.Batch
			if record.Kind != journal.Protobuf {
				continue
			}
			if err := decoder.Protobuf(record.Data, &b); err != nil {
				t.Fatal(err)
			}
			o := observation.Observation{
				Trace:    b.Traces[0],
				Root:     b.Spans[0].ID,
				Start:    begun.Add(after),
				Duration: time.Second,
				Failed:   failed,
			}
			o.Records = []uint64{record.Seq}
			k.observe(group, &request{Observation: o})
			return
		}
	}
	kept := func() (seconds []float64) {
		t.Helper()
		k.epoch(c.at(), nil, func(analysis.Hash) bool { return true })
		if err := k.applyAll(<-k.work, refs); err != nil {
			t.Fatal(err)
		}
		e, err := r.store.Exemplars.Of(group.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range e.Failed {
			if data, err := r.store.Traces.Get(x.Trace); err != nil || data == nil {
				t.Errorf("the trace of a failed request is not stored: %v", err)
			}
			seconds = append(seconds, x.Start.Sub(begun).Seconds())
		}
		return seconds
	}
	observe(0, false)
	observe(1*time.Second, true)
	observe(2*time.Second, true)
	observe(3*time.Second, true)
	if got := kept(); !slices.Equal(got, []float64{1, 2}) {
		t.Errorf("failed requests stored from the first epoch: %v", got)
	}
	k = open()
	observe(61*time.Second, true)
	observe(61500*time.Millisecond, true)
	if got := kept(); !slices.Equal(got, []float64{2, 61}) {
		t.Errorf("failed requests stored after a restart and a minute: %v", got)
	}
}
