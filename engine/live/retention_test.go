package live

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	bench "github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// noise returns n incompressible bytes.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(trace.Mix(seed, uint64(i)))
	}
	return b
}

// The store stays within its limit. The oldest history is deleted first, except that history of open problems is last.
func TestEnforce(t *testing.T) {
	c := &clock{}
	c.set(start)
	dir := t.TempDir()
	r := run(t, dir, c, func(o *Options) { o.Retention = Retention{} })
	const each, minutes = 1 << 18, 24
	open := analysis.Hash{Lo: 99}
	group := func(i int) analysis.Hash {
		if i%4 == 0 {
			return open
		}
		return analysis.Hash{Lo: uint64(i)}
	}
	refs := make(map[trace.ID]int)
	var ofOpen store.Exemplars
	for i := range minutes {
		at := start.Add(time.Duration(i) * time.Minute)
		e := store.Exemplar{Trace: trace.ID{15: byte(i + 1)}, Start: at}
		refs[e.Trace]++
		kept := &store.Exemplars{Slow: []store.Exemplar{e}}
		if group(i) == open {
			ofOpen.Slow = append(ofOpen.Slow, e)
			kept = &ofOpen
		}
		for _, err := range []error{
			r.store.Traces.Put(e.Trace, noise(each, uint64(i))), r.store.Exemplars.Put(group(i), kept),
			r.store.Decisions.Put(at, []search.Decision{{
				At: at, Subject: search.OfProblem(group(i)), Reason: fmt.Sprintf("%x", noise(each/2, uint64(i)+100)),
			}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() (exemplars, decisions []int) {
		t.Helper()
		all, err := r.loop.exemplars.all()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			exemplars = append(exemplars, int(e.Trace[15])-1)
			if b, err := r.store.Traces.Get(e.Trace); err != nil || len(b) != each {
				t.Errorf("trace %s: %d bytes, %v", e.Trace, len(b), err)
			}
		}
		for d, err := range r.store.Decisions.Epochs() {
			if err != nil {
				t.Fatal(err)
			}
			decisions = append(decisions, int(d.At.Sub(start)/time.Minute))
		}
		return exemplars, decisions
	}
	takes := func() int64 {
		t.Helper()
		n, err := r.store.EstimateSize()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	held := evidence{map[search.Subject]bool{search.OfProblem(open): true}, map[analysis.Hash]bool{open: true}}
	enforce := func(most int64, aged trace.Nanos) {
		t.Helper()
		err := r.loop.exemplars.enforce(t.Context(), &cleanup{bytes: most, before: aged, open: held}, refs)
		if err != nil {
			t.Fatal(err)
		}
		if n := takes(); most > 0 && n > most {
			t.Errorf("%d bytes, want at most %d", n, most)
		}
	}
	if err := r.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	enforce(1<<30, 0)
	if e, d := left(); len(e) != minutes || len(d) != minutes {
		t.Errorf("%d exemplars and %d decisions left, want all", e, d)
	}
	enforce(20*each, 0)
	exemplars, decisions := left()
	for name, all := range map[string][]int{"exemplars": exemplars, "decisions": decisions} {
		var evidence, others []int
		for _, i := range all {
			if i%4 == 0 {
				evidence = append(evidence, i)
			} else {
				others = append(others, i)
			}
		}
		if !slices.Equal(evidence, []int{0, 4, 8, 12, 16, 20}) || len(others) == 0 || others[0] < 17 ||
			others[len(others)-1] != minutes-1 {
			t.Errorf("%s left: %d", name, all)
		}
	}
	enforce(0, start.Add(6*time.Minute))
	if e, d := left(); len(e) != len(exemplars)-2 || e[0] != 8 || !slices.Equal(d, decisions) {
		t.Errorf("young exemplars left: %d, decisions %d", e, d)
	}
	enforce(3*each, 0)
	if e, d := left(); len(e)+len(d) > 2 || len(d) == 0 || d[len(d)-1] != 20 {
		t.Errorf("with little room: exemplars %d and decisions %d left", e, d)
	}
	if r.counts.Forgotten.Decisions.Load() == 0 || r.counts.Forgotten.Exemplars.Load() == 0 {
		t.Error("deletions are not counted")
	}
	r.end()
}

// A running service enforces its limits after checkpoints.
func TestEnforceWhileRunning(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention.Bytes = 1 })
	defer r.end()
	for _, s := range traffic(t, 4, 100) {
		r.send(s.bodies)
		c.add(stretchSpan)
		r.settle()
	}
	if err := r.store.Compact(t.Context()); err != nil { // the size doesn't include the last writes yet
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for ; r.counts.Forgotten.Exemplars.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was deleted within a minute")
		}
		c.add(time.Second)
	}
}

// Records beyond the maximum age are deleted, even if an open trace has spans in them.
func TestJournalAges(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) {
		o.Assembly.Idle, o.Assembly.MaxAge, o.MaxJournalAge = time.Hour, time.Hour, time.Minute
	})
	defer r.end()
	lonely := []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00000000000000000000000000000001",` +
		`"spanId":"0102030405060708","parentSpanId":"0102030405060709",` +
		`"name":"x","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}`)
	if _, _, err := r.Take(t.Context(), lonely, journal.JSON); err != nil {
		t.Fatal(err)
	}
	first := r.options.Journal.Next() - 1
	there := func() bool {
		x, err := r.options.Journal.Get(first, nil)
		return err == nil && bytes.Equal(x.Data, lonely)
	}
	for range 4 {
		c.add(10 * time.Second)
		r.settle()
	}
	if !there() {
		t.Fatal("a young record of an open trace was deleted")
	}
	for deadline := time.Now().Add(time.Minute); there(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the old record was not deleted within a minute")
		}
		c.add(10 * time.Second)
		r.settle()
	}
}

// Decisions beyond the maximum age are deleted, but younger ones are kept.
func TestDecisionsAge(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention.Age = time.Hour })
	defer r.end()
	old, young := start.Add(-2*time.Hour), start.Add(-30*time.Minute)
	for _, at := range []trace.Nanos{old, young} {
		if err := r.store.Decisions.Put(at, []search.Decision{{At: at}}); err != nil {
			t.Fatal(err)
		}
	}
	there := func() (all []trace.Nanos) {
		for d, err := range r.store.Decisions.Epochs() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d.At)
		}
		return all
	}
	for r.Counts().Checkpoints.Load() == 0 {
		c.add(10 * time.Second)
		r.settle()
	}
	if got := there(); !slices.Equal(got, []trace.Nanos{young}) {
		t.Errorf("decisions of %v are left, want only the one of %v", got, young)
	}
}

// Exemplars are deleted by age at the first checkpoint and then every ten minutes, or never if there is no maximum age.
func TestAgeInterval(t *testing.T) {
	const age = time.Hour
	var retained atomic.Pointer[Retention]
	core := engine.NewCore(&trace.Table{}, engine.DefaultOptions())
	limited, unlimited := &loop{core: core, retained: &retained}, &loop{core: core, retained: &retained}
	for _, c := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {ageInterval - 1, false}, {ageInterval, true}, {2*ageInterval - 1, false}, {3 * ageInterval, true}} {
		now, want := start.Add(c.after), trace.Nanos(0)
		if c.due {
			want = now.Add(-age)
		}
		retained.Store(&Retention{Age: age})
		if got := limited.retention(now).before; got != want {
			t.Errorf("after %v: exemplars before %v are deleted, want %v", c.after, got, want)
		}
		retained.Store(&Retention{})
		if got := unlimited.retention(now).before; got != 0 {
			t.Errorf("after %v, without a maximum age: exemplars before %v are deleted, want none", c.after, got)
		}
	}
}

// The history of open problems, of their groups and of their request types is deleted last.
func TestHistoryOfOpenProblems(t *testing.T) {
	late, healthy := bench.Plain(1, 1, start, time.Second), bench.Plain(2, 2, start, time.Second)
	options := engine.DefaultOptions()
	options.Learning = options.Epoch
	options.Watch.Chronic = detect.Thresholds{Objectives: map[trace.Op]time.Duration{late.Entry: time.Millisecond}}
	core := engine.NewCore(&trace.Table{}, options)
	for range 100 {
		core.Observe(late, nil)
		core.Observe(healthy, nil)
	}
	core.Epoch(start.Add(options.Epoch))
	var retained atomic.Pointer[Retention]
	retained.Store(&Retention{Bytes: 1})
	if len(core.View().Problems.Open()) != 1 {
		t.Fatalf("%d problems, want that of the late requests", len(core.View().Problems.Open()))
	}
	p := core.View().Problems.Open()[0]
	want := evidence{
		map[search.Subject]bool{search.OfProblem(p.ID): true},
		map[analysis.Hash]bool{p.Group: true, p.RequestType: true},
	}
	if got := (&loop{core: core, retained: &retained}).retention(start).open; !reflect.DeepEqual(got, want) {
		t.Errorf("deletes the history of %v last, want %v", got, want)
	}
}
