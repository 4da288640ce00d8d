package live

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/journal/kafka"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// start is the start time of the tests, a multiple of the epoch length.
const start = trace.Nanos(1_700_000_000_000_000_000)

// clock is a clock that tests can set.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time      { return time.Unix(0, c.now.Load()) }
func (c *clock) set(t trace.Nanos)   { c.now.Store(int64(t)) }
func (c *clock) add(d time.Duration) { c.now.Add(int64(d)) }
func (c *clock) at() trace.Nanos     { return trace.Nanos(c.now.Load()) }

// running is a running service with its databases.
type running struct {
	*Service
	t       testing.TB
	dir     string
	change  func(*Options)
	clock   *clock
	stop    context.CancelFunc
	stopped chan error
	journal *journal.Journal
	store   *store.Store
}

// noErrors is a log handler that fails the test for every error.
type noErrors struct {
	slog.Handler // discards records
	t            testing.TB
}

func (h noErrors) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (h noErrors) Handle(_ context.Context, r slog.Record) error {
	message := r.Message
	r.Attrs(func(a slog.Attr) bool {
		message += " " + a.String()
		return true
	})
	h.t.Error("logged: " + message)
	return nil
}

// run starts a service in dir and waits until it is ready. Call end or crash to stop it. The test fails if the service
// logs an error, unless change replaces the log.
func run(t testing.TB, dir string, c *clock, change func(*Options)) *running {
	t.Helper()
	r := begin(t, dir, c, change)
	r.lead()
	return r
}

// lead waits until r is ready.
func (r *running) lead() {
	r.t.Helper()
	for !r.Ready() {
		select {
		case err := <-r.stopped:
			if !errors.Is(err, journal.ErrNotLeading) {
				r.t.Fatal(err)
			}
			r.t.Log(err)
			r.stopped <- nil
			r.end()
			*r = *begin(r.t, r.dir, r.clock, r.change) // as the server does
		case <-time.After(time.Millisecond):
		}
	}
}

// begin is like run, but doesn't wait until the service is ready.
func begin(t testing.TB, dir string, c *clock, change func(*Options)) *running {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, dir: dir, change: change, clock: c, stopped: make(chan error, 1)}
	log := slog.New(noErrors{slog.DiscardHandler, t})
	r.journal, err = journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if r.store, err = store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: log}); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Journal, o.Store, o.Clock, o.Log = r.journal, r.store, c.Now, log
	o.Core.Learning = 30 * time.Second
	o.tick = 2 * time.Millisecond
	if change != nil {
		change(&o)
	}
	if r.Service, err = Open(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.stopped <- r.Run(ctx) }()
	return r
}

// end stops the service and closes its databases.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	if err := errors.Join(<-r.stopped, r.options.Journal.Close(), r.store.Close()); err != nil {
		r.t.Fatal(err)
	}
}

// crash copies the files of the running service as a kill would leave them, and stops the service. It returns the
// folder with the copy.
func (r *running) crash(dir string) string {
	r.t.Helper()
	for {
		to, before := r.t.TempDir(), listing(r.t, dir)
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil && listing(r.t, dir) == before { // nothing was written in between
			r.end()
			return to
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// listing returns the names, sizes and times of all files below dir.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		// A file was deleted meanwhile. The result must differ from all other listings.
		return err.Error() + time.Now().String()
	}
	return b.String()
}

// settle waits until everything sent, and everything due by now, has reached the core.
func (r *running) settle() {
	r.t.Helper()
	if err := r.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// requests returns the export requests of app between from and to, two for each trace, and the number of traces.
func requests(t testing.TB, app *sim.App, from, to trace.Nanos) (bodies [][]byte, traces int) {
	t.Helper()
	for x := range app.Requests(from, to, &sim.Plan{}) {
		traces++
		half := len(x.Spans) / 2
		for _, spans := range [][]trace.Span{x.Spans[:half], x.Spans[half:]} {
			if len(spans) == 0 {
				continue
			}
			body, err := tracegen.Protobuf([]*trace.Trace{{ID: x.ID, Spans: spans}}, app.Table())
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, body)
		}
	}
	return bodies, traces
}

func (r *running) send(bodies [][]byte) {
	r.t.Helper()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := i; k < len(bodies); k += 4 {
				if _, _, err := r.Take(context.Background(), bodies[k], journal.Protobuf); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// until waits until holds returns true, and fails the test if that takes too long.
func (r *running) until(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("timed out: " + what)
		}
	}
}

// counted returns the number of requests in the groups of request types.
func (r *running) counted() (n uint64) {
	r.t.Helper()
	err := r.Ask(r.t.Context(), func(c *engine.View) {
		for _, g := range c.Groups.Groups() {
			if g.Level == group.LevelRequestType {
				for _, w := range g.Windows() {
					n += w.Total.N
				}
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// stretch holds the export requests of an application in a few seconds.
type stretch struct {
	bodies [][]byte
	traces int
}

// deployed sets the version and the host of all services in bodies.
func deployed(t testing.TB, bodies [][]byte, version, host string) {
	t.Helper()
	for i, body := range bodies {
		traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, rs := range traces.ResourceSpans().All() {
			rs.Resource().Attributes().PutStr("service.version", version)
			rs.Resource().Attributes().PutStr("host.name", host)
		}
		if bodies[i], err = (&ptrace.ProtoMarshaler{}).MarshalTraces(traces); err != nil {
			t.Fatal(err)
		}
	}
}

// stretchSpan is the duration of a stretch. It is half an epoch, so that some stops are in the middle of an epoch.
const stretchSpan = 5 * time.Second

// traffic returns n stretches of an application with a fault that starts at the stretch with index fault.
func traffic(t testing.TB, n, fault int) []stretch {
	t.Helper()
	app := sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Tracepoints: 100, Rate: 30, Messages: -1})
	all := make([]stretch, n)
	for i := range all {
		from := start.Add(time.Duration(i) * stretchSpan)
		if i == fault {
			app.Inject(from)
		}
		all[i].bodies, all[i].traces = requests(t, app, from, from.Add(stretchSpan))
		// In the middle stretch, half of the requests have the new version.
		rollout := len(all[i].bodies) * max(0, min(2, i-n/2)) / 2
		host := fmt.Sprint("host ", i) // a name that the state doesn't mention
		deployed(t, all[i].bodies[:rollout], "2", host)
		deployed(t, all[i].bodies[rollout:], "1", host)
	}
	return all
}

// mail returns an export request with two traces. One sends message i, and the other receives the previous message and
// only links to its sender.
func mail(t testing.TB, i int, at trace.Nanos) []byte {
	t.Helper()
	traces := ptrace.NewTraces()
	span := func(service string, kind ptrace.SpanKind, id byte, at trace.Nanos) ptrace.Span {
		rs := traces.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", service)
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetKind(kind)
		s.SetName(kind.String() + " orders")
		s.SetTraceID(pcommon.TraceID{1, id, byte(i)})
		s.SetSpanID(pcommon.SpanID{id, byte(i)})
		s.SetStartTimestamp(pcommon.Timestamp(at))
		s.SetEndTimestamp(pcommon.Timestamp(at.Add(10 * time.Millisecond)))
		return s
	}
	span("mailer", ptrace.SpanKindProducer, 1, at).Attributes().PutStr("messaging.destination.name", "orders")
	link := span("printer", ptrace.SpanKindConsumer, 2, at).Links().AppendEmpty()
	link.SetTraceID(pcommon.TraceID{1, 1, byte(i - 1)})
	link.SetSpanID(pcommon.SpanID{1, byte(i - 1)})
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// decide changes overrides and settings, differently for each i, and returns the settings.
func (r *running) decide(i int) *engine.Settings {
	r.t.Helper()
	o := r.options.Core
	s := o.Settings()
	s.Budget.Tracepoints = 3 + i
	id := trace.Symbol(1)
	err := r.Ask(r.t.Context(), func(c *engine.View) {
		for _, t := range c.Trees.All() {
			for k := range t.Nodes {
				if x := &t.Nodes[k]; x.Tracepoint > id {
					id = x.Tracepoint
				}
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range []engine.Change{
		{Settings: &s},
		{Override: &search.Override{Tracepoint: id, Kind: search.Pin, By: "ann"}},
		{Override: &search.Override{Tracepoint: trace.SymbolOf([]byte("point 1")), Kind: search.Pin}},
		{Override: &search.Override{Tracepoint: trace.Symbol(i), Kind: search.Forbid}},
		{Withdraw: trace.Symbol(i - 5), By: "bob"},
	} {
		if changed, err := r.Change(r.t.Context(), x); err != nil || !changed && (x.Withdraw == 0 || i > 5) {
			r.t.Errorf("%+v: changed %t, error %v", x, changed, err)
		}
	}
	return &s
}

// feedback returns the agents' reports by stretch. They arrive at the end of the stretch.
func feedback() map[int]*search.Feedback {
	var points []search.Announced
	for i := range 5 {
		points = append(points, search.Announced{
			ID: fmt.Sprintf("point %d", i), Name: fmt.Sprintf("operation %d", i), Bytes: 100,
		})
	}
	return map[int]*search.Feedback{
		5:  {Catalogues: []search.Catalogue{{Service: "shop", Tracepoints: points}}},
		9:  {Measured: &search.Measured{Plan: 1, Hits: 1e3, Bytes: 1e9, CPU: 7}},
		10: {Costs: []search.Cost{{ID: "point 1", CPU: time.Millisecond, Bytes: 1 << 20}}},
		17: {Unavailable: []search.Unavailable{{ID: "point 1", For: 20 * time.Second}}},
		23: {Catalogues: []search.Catalogue{{Service: "shop", Tracepoints: points[2:]}}},
	}
}

// Every trace is counted once, and state and decisions are the same for any number of shards, after stops and kills,
// and whether or not names are forgotten.
func TestShardsAndRestartsChangeNothing(t *testing.T) {
	all := traffic(t, 28, 14)
	sent := 0
	for i := range all {
		s := &all[i]
		s.bodies = append(s.bodies, mail(t, i, start.Add(time.Duration(i)*stretchSpan)))
		sent += s.traces + 2
	}
	var names time.Duration // period and age of names; 0: names aren't forgotten
	var brokers []string    // nil: no replicas
	play := func(shards int, stops func(int) string) (state []byte, decisions string, marks []engine.Annotation) {
		dir, other := t.TempDir(), t.TempDir()
		c := &clock{}
		c.set(start)
		var decided *engine.Settings // nil before the first change
		change := func(o *Options) {
			o.Shards, o.names, o.Core.NamesAge = shards, names, names
			o.Assembly.MaxAge = 15 * time.Second
			if decided != nil { // the next start has the changed configuration
				o.Core.Budget = decided.Budget
			}
			if brokers != nil {
				o.Journal = replicated(t, brokers, o.Journal)
			}
		}
		r := run(t, dir, c, change)
		for i, s := range all {
			r.send(s.bodies)
			if f := feedback()[i]; f != nil {
				if changed, err := r.Change(t.Context(), engine.Change{Feedback: f}); !changed || err != nil {
					t.Fatal(changed, err)
				}
			}
			if i == 3 {
				x := engine.Annotation{At: start, Kind: engine.KindFlag, Source: engine.SourceAPI, Text: "on"}
				flag := engine.NewReport(x, "cron", "")
				if changed, err := r.Change(t.Context(), engine.Change{Report: flag}); !changed || err != nil {
					t.Fatal(changed, err)
				}
			}
			c.add(stretchSpan)
			r.settle()
			if i%5 == 2 {
				decided = r.decide(i)
			}
			switch stops(i) {
			case "stop":
				r.end()
				r = run(t, dir, c, change)
			case "kill":
				if forgotten := r.Counts().Names.Load(); (forgotten > 0) != (names > 0) {
					t.Errorf("%d names forgotten", forgotten)
				}
				dir = r.crash(dir)
				r = run(t, dir, c, change)
			case "replica leads":
				standby := begin(t, other, c, change)
				if i%2 == 0 {
					standby.until("the standby follows", func() bool { return standby.Leader() != "" })
				}
				r.end()
				standby.lead()
				if r, dir, other = standby, other, dir; i%4 == 0 {
					other = t.TempDir() // the next standby has to read the whole topic
				}
			}
		}
		c.add(20 * time.Second)
		r.settle()
		c.add(20 * time.Second)
		r.settle()
		if n := r.counted(); n != uint64(sent) {
			t.Errorf("%d shards: %d traces counted, %d sent", shards, n, sent)
		}
		if err := r.Ask(t.Context(), func(core *engine.View) {
			state, marks = r.loop.core.AppendState(nil), slices.Clone(core.Annotations)
			if service := core.Table.Text(marks[0].Service); marks[0].Kind != engine.KindFlag || service != "cron" {
				t.Errorf("%+v of %s, want the flag of cron, which has no spans", marks[0], service)
			}
			if joined, _ := core.History.Messages.Joined(); joined != uint64(len(all)-1) {
				t.Errorf("%d messages joined, want %d", joined, len(all)-1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		logged, err := r.store.Decisions.Between(0, c.at(), 1<<20, false)
		if err != nil {
			t.Fatal(err)
		}
		r.end()
		return state, fmt.Sprintf("%+v", logged), marks
	}
	never := func(int) string { return "" }
	state, decisions, known := play(1, never)
	second, first := trace.SymbolOf([]byte("2")), trace.SymbolOf([]byte("1"))
	for _, d := range known[1:] {
		if d.At < start.Add(15*stretchSpan) || d.Version != second || d.Before != first {
			t.Errorf("deploy %+v, want version 2 after 1 during the rollout", d)
		}
	}
	if len(known) < 3 {
		t.Errorf("%d annotations, want a flag and at least 2 deploys", len(known))
	}
	for _, want := range []string{
		"ann pins ", "bob withdraws the override of ", search.WhyUnavailable, "From:opened To:exhausted",
	} {
		if !strings.Contains(decisions, want) {
			t.Errorf("no decision contains %q", want)
		}
	}
	for _, c := range []struct {
		name   string
		shards int
		stops  func(int) string
	}{
		{"eight shards", 8, never},
		{"stopped", 2, func(i int) string {
			if i%17 == 9 {
				return "stop"
			}
			return ""
		}},
		{"killed", 3, func(i int) string {
			if i%7 == 3 {
				return "kill"
			}
			return ""
		}},
		{"names forgotten", 2, func(i int) string {
			if i == 24 {
				return "kill"
			}
			return ""
		}},
		{"replicas", 2, func(i int) string {
			if i%3 == 1 {
				return "replica leads"
			}
			return ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "replicas" {
				cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
				if err != nil {
					t.Fatal(err)
				}
				defer cluster.Close()
				brokers, names = cluster.ListenAddrs(), 0
			}
			if c.name == "names forgotten" {
				names = 10 * time.Second
			}
			s, d, x := play(c.shards, c.stops)
			if d != decisions {
				t.Error("the decisions differ")
			}
			if !reflect.DeepEqual(x, known) {
				t.Errorf("the annotations differ: %+v, want %+v", x, known)
			}
			if !bytes.Equal(s, state) {
				t.Error("the states differ")
			}
		})
	}
}

// replicated returns a journal that shares the records of own, a [*journal.Journal], by the given brokers.
func replicated(t testing.TB, brokers []string, own Journal) Journal {
	t.Helper()
	j, err := kafka.New(own.(*journal.Journal), kafka.Options{
		Brokers:  brokers,
		Topic:    "sibyl",
		URL:      "http://" + rand.Text(),
		Patience: 500 * time.Millisecond,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Overrides survive a kill. Settings come from the last start.
func TestChangesSurviveKill(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	var settings engine.Settings
	var overrides []search.Override
	look := func(r *running) {
		t.Helper()
		err := r.Ask(t.Context(), func(core *engine.View) {
			o := core.Options
			settings, overrides = o.Settings(), slices.Clone(core.Searches.State().Overrides)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tight := func(o *Options) { o.Core.Budget.Tracepoints = 7 }
	r := run(t, dir, c, tight)
	pin := search.Override{Tracepoint: 1 << 63, Kind: search.Pin, By: "ann"}
	if changed, err := r.Change(t.Context(), engine.Change{Override: &pin}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err := r.Change(t.Context(), engine.Change{Withdraw: 5}); err != nil || changed {
		t.Errorf("Withdraw without an override: changed %v, %v", changed, err)
	}
	records := r.options.Journal.Next()
	dir = r.crash(dir)
	r = run(t, dir, c, tight)
	if look(r); len(overrides) != 1 || overrides[0] != pin || settings.Budget.Tracepoints != 7 {
		t.Errorf("after a kill: overrides %+v, settings %+v", overrides, settings)
	}
	if n := r.options.Journal.Next(); n != records {
		t.Errorf("unchanged settings are recorded again: %d records, want %d", n, records)
	}
	r.end() // with a checkpoint
	r = run(t, dir, c, nil)
	r.settle()
	if look(r); len(overrides) != 1 || settings.Budget.Tracepoints != 0 {
		t.Errorf("after a start with other settings: overrides %+v, settings %+v", overrides, settings)
	}
	r.end()
	if _, err := r.Change(t.Context(), engine.Change{Override: &pin}); err == nil {
		t.Error("Change on a stopped service returned no error")
	}
}

// A service refuses to start with a checkpoint or a journal that uses a strategy that only the benchmarks have.
func TestRemovedStrategy(t *testing.T) {
	yardsticks := []search.Strategy{{Name: "random", Pick: search.Hierarchical}}
	removed := func(o *Options) { o.Core.Strategy, o.Core.Strategies = "random", yardsticks }
	const want = "start that version once more with a strategy that both have, stop it, and start this one"
	stopped, killed, c := t.TempDir(), t.TempDir(), &clock{}
	c.set(start)
	run(t, stopped, c, removed).end()
	o, closing := options(t, stopped, c)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("on a checkpoint: error %v, want one with %q", err, want)
	}
	closing()

	r := run(t, killed, c, removed)
	r.settle()
	killed = r.crash(killed)
	o, closing = options(t, killed, c)
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("on a journal: error %v, want one with %q", err, want)
	}
	closing()

	run(t, stopped, c, func(o *Options) { o.Core.Strategies = yardsticks }).end() // as the error advises
	run(t, stopped, c, nil).end()
}

// options returns the options of a service in dir, and a function that closes its databases.
func options(t *testing.T, dir string, c *clock) (Options, func()) {
	t.Helper()
	o := DefaultOptions()
	o.Clock, o.Log, o.tick = c.Now, slog.New(slog.DiscardHandler), 2*time.Millisecond
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Journal, err = journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: o.Log})
	if err != nil {
		t.Fatal(err)
	}
	if o.Store, err = store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: o.Log}); err != nil {
		t.Fatal(err)
	}
	return o, func() {
		if err := errors.Join(o.Journal.Close(), o.Store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// The error for a checkpoint from another build contains a remedy that works.
func TestCheckpointOfAnotherBuild(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	r := run(t, dir, c, nil)
	r.end()
	o, closing := options(t, dir, c)
	checkpoint, err := o.Store.Checkpoints.Load()
	if err != nil {
		t.Fatal(err)
	}
	checkpoint.State[0]++
	if err := o.Store.Checkpoints.Save(checkpoint, 0); err != nil {
		t.Fatal(err)
	}
	_, err = Open(o)
	const remedy = "use the build that wrote it, or start over with the rest of the journal by moving the folder store"
	if err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("error %v, want one with the remedy", err)
	}
	closing()
	if err := os.Rename(filepath.Join(dir, "store"), filepath.Join(t.TempDir(), "store")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, c, nil).end()
}

// A start skips and counts the requests of the journal that cannot be decoded, or that the intake would refuse.
func TestUnusableRecords(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	o, closing := options(t, dir, c)
	add := func(kind journal.Kind, body string) { o.Journal.Add(start, kind, journal.Pack(nil, []byte(body))) }
	add(journal.Protobuf, "no request")
	add(journal.Protobuf, strings.Repeat("\n\x00", 2000)) // empty resources
	add(journal.JSON, `{"resourceSpans":[{"scopeSpans":[{"spans":[{`+
		`"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","name":"list","kind":2,`+
		`"startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000100000000"}]}]}]}`)
	if err := o.Journal.Append(); err != nil {
		t.Fatal(err)
	}
	closing()
	r := run(t, dir, c, nil)
	defer r.end()
	if damaged, spans := r.counts.Damaged.Load(), r.counts.Spans.Load(); damaged != 2 || spans != 1 {
		t.Errorf("%d records are damaged and %d spans were read, want 2 and 1", damaged, spans)
	}
}

// A start doesn't wait for a heap that the statistics fill.
func TestStartWithFullHeap(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	o, closing := options(t, dir, c)
	const requests = 20
	for range requests {
		o.Journal.Add(start, journal.JSON, journal.Pack(nil, []byte("{}")))
	}
	if err := o.Journal.Append(); err != nil {
		t.Fatal(err)
	}
	closing()
	began := time.Now()
	run(t, dir, c, func(o *Options) { o.Heap = 1 }).end()
	if took := time.Since(began); took > requests/2*time.Second {
		t.Errorf("the start took %v", took)
	}
}

// A start is logged if its checkpoint is older than the journal or missing. The missing records are counted.
func TestOlderCheckpointIsLogged(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	run(t, dir, c, nil).end()
	o, closing := options(t, dir, c)
	checkpoint, err := o.Store.Checkpoints.Load()
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for range 5 {
		last = o.Journal.Add(start, journal.Epoch, nil)
	}
	err = errors.Join(o.Journal.Append(), o.Journal.Trim(t.Context(), last)) // as after a later checkpoint
	if err != nil {
		t.Fatal(err)
	}
	closing()
	begin := func(dir, want string) {
		t.Helper()
		o, closing := options(t, dir, c)
		defer closing()
		var log strings.Builder
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), want) {
			t.Errorf("log %q, want a warning with %q", log.String(), want)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Started()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := int64(last - 1 - checkpoint.Seq); s.restored > 0 && s.counts.Damaged.Load() < want {
			t.Errorf("%d records missing, want at least %d", s.counts.Damaged.Load(), want)
		}
	}
	lost := t.TempDir()
	if err := os.CopyFS(filepath.Join(lost, "journal"), os.DirFS(filepath.Join(dir, "journal"))); err != nil {
		t.Fatal(err)
	}
	begin(lost, "starts over with the rest of the journal")
	begin(dir, fmt.Sprintf("continues from an older one\" of=%s lost_records=%d",
		time.Unix(0, int64(checkpoint.At)).Format("2006-01-02T15:04:05.000Z07:00"), last-1-checkpoint.Seq))
}

// Flush waits while the core loop is busy, and fails after the service has stopped.
func TestFlush(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, nil)
	busy, proceed := make(chan struct{}), make(chan struct{})
	queries := make(chan error, 1)
	go func() {
		queries <- r.Ask(context.Background(), func(*engine.View) {
			close(busy)
			<-proceed
		})
	}()
	<-busy
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Flush(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush while the core loop is busy: error %v, want a timeout", err)
	}
	close(proceed)
	if err := errors.Join(<-queries, r.Flush(t.Context())); err != nil {
		t.Error(err)
	}
	r.end()
	if err := r.Flush(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("Flush of a stopped service: error %v, want %v", err, errStopped)
	}
}

// Refused requests leave nothing behind, and accepted requests are stored.
func TestOverload(t *testing.T) {
	c := &clock{}
	c.set(start)
	full := &atomic.Bool{}
	r := run(t, t.TempDir(), c, func(o *Options) {
		o.InFlight = 1
		o.Full = func(time.Time) bool { return full.Load() }
	})
	defer r.end()
	bodies, _ := requests(t, sim.New(sim.Config{Seed: 1, Tracepoints: 100}), start, start.Add(time.Second))
	var taken atomic.Int64
	var wg sync.WaitGroup
	for _, b := range bodies {
		wg.Go(func() {
			_, _, err := r.Take(context.Background(), b, journal.Protobuf)
			if err == nil {
				taken.Add(1)
			} else if !errors.Is(err, refusal.Overloaded) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	full.Store(true)
	if _, _, err := r.Take(t.Context(), bodies[0], journal.Protobuf); !errors.Is(err, errFull) {
		t.Errorf("full disk: error %v, want %v", err, errFull)
	}
	full.Store(false)
	r.settle()
	if n := r.counts.Requests.Load(); n != taken.Load() || n == 0 ||
		r.counts.Refused.Busy.Load()+n != int64(len(bodies)) {
		t.Errorf("%d requests sent, %d acknowledged, %d stored, %d refused",
			len(bodies), taken.Load(), n, r.counts.Refused.Busy.Load())
	}
	if n := r.intake.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes in flight, want 0", n)
	}
	r.intake.inFlight.Store(r.options.InFlight)
	if why := r.Refuse(); why != errBusy {
		t.Errorf("without room: refusal %v, want %v", why, errBusy)
	}
	r.intake.inFlight.Store(0)
	if why := r.Refuse(); why != nil {
		t.Errorf("with room: refusal %v, want none", why)
	}
}

// The log has one entry when space runs out, and one when it is back.
func TestLackOfSpaceIsLogged(t *testing.T) {
	var log strings.Builder
	var space Space
	q := &sequencer{intake: &intake{}, overfull: new(atomic.Bool), options: &Options{
		Clock: time.Now, Full: func(time.Time) bool { return space >= SpaceLow }, Fits: func(time.Time, uint64) bool {
			return space < SpaceNone
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}}
	for _, space = range []Space{
		SpaceEnough, SpaceLow, SpaceLow, SpaceNone, SpaceNone, SpaceLow, SpaceEnough, SpaceEnough,
	} {
		q.watchSpace()
	}
	got := log.String()
	if strings.Count(got, "\n") != 4 {
		t.Errorf("log:\n%s\nwant one line at each start and one at each end", got)
	}
	for _, want := range []string{
		"refused", "accepted again", "the disk is full", "nothing is judged", "judged again",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("log:\n%s\nlacks %q", got, want)
		}
	}
}

// While the disk has no room at all, epochs don't end, but the core answers. When there is room again, epochs end
// again.
func TestSpent(t *testing.T) {
	c := &clock{}
	c.set(start)
	spent := &atomic.Bool{}
	r := run(t, t.TempDir(), c, func(o *Options) { o.Fits = func(time.Time, uint64) bool { return !spent.Load() } })
	defer r.end()
	r.settle()
	spent.Store(true)
	before, appended := r.counts.Epochs.Load(), r.options.Journal.Next()
	c.set(start.Add(time.Minute))
	r.settle()
	if err := r.Ask(t.Context(), func(*engine.View) {}); err != nil {
		t.Error(err)
	}
	if n := r.counts.Epochs.Load(); n != before || r.options.Journal.Next() != appended {
		t.Errorf("%d epochs ended without room, want none", n-before)
	}
	spent.Store(false)
	r.settle()
	if n := r.counts.Epochs.Load(); n != before+1 {
		t.Errorf("%d epochs ended with room again, want one", n-before)
	}
}

// A checkpoint that doesn't fit on the disk isn't started. The log mentions this once. The next checkpoint that fits is
// stored.
func TestCheckpointWithoutRoom(t *testing.T) {
	c := &clock{}
	c.set(start)
	var log strings.Builder
	fits := &atomic.Bool{}
	r := run(t, t.TempDir(), c, func(o *Options) {
		o.Checkpoint = time.Nanosecond
		o.Fits = func(_ time.Time, bytes uint64) bool { return bytes == 0 || fits.Load() }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	epoch := func(i int) {
		c.set(start.Add(time.Duration(i) * time.Minute))
		r.settle()
	}
	stored := func(n int64) {
		for r.counts.Checkpoints.Load() < n {
			r.settle()
		}
	}
	fits.Store(true)
	epoch(1)
	stored(1)
	fits.Store(false)
	epoch(2)
	epoch(3)
	fits.Store(true)
	epoch(4)
	stored(2)
	fits.Store(false)
	r.end()
	if n := r.counts.Checkpoints.Load(); n != 2 {
		t.Errorf("%d checkpoints, want two: none without room", n)
	}
	if n := strings.Count(log.String(), "no checkpoint is stored"); n != 2 {
		t.Errorf("logged %d times, want twice:\n%s", n, &log)
	}
}

// Malformed requests aren't refused as overload, and rejected spans are counted.
func TestRejected(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, nil)
	defer r.end()
	for body, kind := range map[string]journal.Kind{
		"no request":                   journal.Protobuf,
		strings.Repeat("\n\x00", 2000): journal.Protobuf, // empty resources
		`{"resourceSpans":[` + strings.Repeat("{},", 2000) + "{}]}": journal.JSON,
	} {
		_, _, err := r.Take(t.Context(), []byte(body), kind)
		if _, bad := errors.AsType[*ingest.RecordError](err); !bad {
			t.Errorf("malformed request %.20q: %v", body, err)
		}
	}
	orphan := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"0102030405060708"}]}]}]}`
	n, why, err := r.Take(t.Context(), []byte(orphan), journal.JSON)
	if n != 1 || why == "" || err != nil {
		t.Errorf("span without a trace: %d rejected, %q, %v, want one", n, why, err)
	}
	if n := r.counts.Rejected.Load(); n != 1 {
		t.Errorf("%d rejected spans counted, want 1", n)
	}
	if n, why, err := r.Take(t.Context(), nil, journal.Protobuf); n != 0 || why != "" || err != nil {
		t.Errorf("empty request: %d rejected, %q, %v, want none", n, why, err)
	}
}

// A decoder returns each name only once. So the names in a malformed request, or in a request whose spans are all
// rejected, must be known when valid requests use them.
func TestNamesOfFailedRequests(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, nil)
	defer r.end()
	for _, x := range []struct{ service, failing string }{
		{"cart", `,"traceId":"0102030405060708090a0b0c0d0e0f10"}]}]}]}x`},
		{"stock", `,"traceId":"00"}]}]}]}`},
	} {
		body := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name",` +
			`"value":{"stringValue":"` + x.service + `"}}]},` +
			`"scopeSpans":[{"spans":[{"spanId":"0102030405060708","name":"list","kind":2,` +
			`"startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000100000000"`
		for range 2 * cap(r.intake.decoders) { // each decoder gets the failing request
			if n, _, err := r.Take(t.Context(), []byte(body+x.failing), journal.JSON); n == 0 && err == nil {
				t.Fatalf("%s: failing request accepted", x.service)
			}
		}
		valid := body + `,"traceId":"0102030405060708090a0b0c0d0e0f10"}]}]}]}`
		if _, _, err := r.Take(t.Context(), []byte(valid), journal.JSON); err != nil {
			t.Fatal(err)
		}
		r.settle()
		var got string
		op := trace.OpOf(trace.SymbolOf([]byte(x.service)), trace.SymbolOf([]byte("list")), trace.Server)
		err := r.Ask(t.Context(), func(core *engine.View) {
			got = core.Table.ServiceName(op) + " " + core.Table.OpName(op)
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := x.service + " list"; got != want {
			t.Errorf("operation %q, want %q", got, want)
		}
	}
}

// Spans of closed traces that are sent again after a restart are late. No trace is counted twice.
func TestRestartKnowsClosedTraces(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	r := run(t, dir, c, nil)
	bodies, sent := requests(t, sim.New(sim.Config{
		Seed: 3, Tracepoints: 100, Rate: 30, Messages: -1,
	}), start, start.Add(stretchSpan))
	for restart := range 3 { // the second checkpoint includes the closed traces of the first
		if restart > 0 {
			r.end()
			r = run(t, dir, c, nil)
		}
		r.send(bodies)
		for range 3 { // close all traces and end the learning period
			c.add(20 * time.Second)
			r.settle()
		}
		if n := r.counted(); n != uint64(sent) {
			t.Errorf("after %d restarts: %d traces counted, want %d", restart, n, sent)
		}
	}
	r.end()
}

// Exemplars are stored with all their spans and attributes and survive a restart.
func TestExemplars(t *testing.T) {
	dir := t.TempDir()
	c := &clock{}
	c.set(start)
	r := run(t, dir, c, nil)
	for _, s := range traffic(t, 5, 100) {
		r.send(s.bodies)
		c.add(stretchSpan)
		r.settle()
	}
	c.add(20 * time.Second)
	r.settle()
	check := func() {
		t.Helper()
		n := 0
		err := r.store.Exemplars.Each(func(_ analysis.Hash, e *store.Exemplars) error {
			if !slices.IsSortedFunc(e.Slow, func(a, b store.Exemplar) int {
				return cmp.Compare(b.Duration,
					a.Duration)
			}) {
				t.Error("the slow exemplars are not in order")
			}
			for x := range e.All() {
				n++
				request, err := r.store.Traces.Get(x.Trace)
				if err != nil {
					return err
				}
				var b ingest.Batch
				if err := newDecoder(ingest.AllKeys(), 1<<18).Protobuf(request, &b); err != nil ||
					!slices.ContainsFunc(b.Spans, func(s trace.Span) bool { return s.ID == x.Root }) {
					t.Errorf("trace %s is stored without its root: %v", x.Trace, err)
				}
			}
			return nil
		})
		if err != nil || n == 0 {
			t.Errorf("%d exemplars, want some, error %v", n, err)
		}
	}
	r.end()
	r = run(t, dir, c, nil)
	check()
	r.end()
}

// The time of the last arrival is known from the journal after a crash and, approximately, from a checkpoint. Requests
// without spans, and repeated ones, don't count.
func TestLastArrival(t *testing.T) {
	dir, c := t.TempDir(), &clock{}
	c.set(start)
	r := run(t, dir, c, nil)
	if at := r.Counts().Arrived.Load(); at != 0 {
		t.Errorf("before the first spans: %d", at)
	}
	bodies, traces := requests(t, sim.New(sim.Config{Seed: 3, Tracepoints: 100, Rate: 30, Messages: -1}),
		start, start.Add(time.Second))
	r.send(bodies)
	c.add(r.options.Assembly.Settle)
	r.until("all traces are closed",
		func() bool { return r.Counts().Closed[assemble.Complete].Load() == int64(traces) })
	at := trace.Nanos(r.Counts().Arrived.Load())
	if late := at.Sub(start); late < 0 || late > time.Second {
		t.Errorf("arrived %v after the time at which spans were sent", late)
	}
	if n := r.Counts().Duplicates(); n != 0 {
		t.Errorf("%d duplicates of spans that arrived once", n)
	}
	r.send([][]byte{{}})
	r.send(bodies)
	r.until("half of the spans are duplicates",
		func() bool { return 2*r.Counts().Duplicates() == r.Counts().Spans.Load() })
	if late := r.Counts().Open().Late; late != 0 {
		t.Errorf("%d duplicates are taken for late spans", late)
	}
	if got := trace.Nanos(r.Counts().Arrived.Load()); got != at {
		t.Errorf("after duplicates: %d, want %d", got, at)
	}
	r = run(t, r.crash(dir), c, nil)
	if got := trace.Nanos(r.Counts().Arrived.Load()); got != at {
		t.Errorf("after a crash: %d, want %d", got, at)
	}
	for range 2 { // until no journal is left to read
		c.add(time.Hour)
		r.end()
		r = run(t, dir, c, nil)
	}
	if got := trace.Nanos(r.Counts().Arrived.Load()); got < at.Add(-time.Minute) || got > at.Add(time.Minute) {
		t.Errorf("after restarts: %v from the arrival, want a minute at most", got.Sub(at))
	}
	r.end()
}
