package live

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/store"
)

var (
	length = flag.Duration("length", time.Second, "minimum duration of each case of TestHostileDisk")
	seed   = flag.Uint64("seed", 0, "seed of TestHostileDisk; 0: the time")
)

// hostility is a setting of the service, and what the disk does to it.
type hostility struct {
	name  string
	quick bool          // the journal isn't synced
	power bool          // crashes lose data that wasn't synced; otherwise they only end the process
	errno syscall.Errno // error of some operations; 0: none
}

// Whatever the disk does, an acknowledged trace counts exactly once, an event is delivered at least once, and the
// service goes on, refuses requests or gives up with the error of the disk. Only if power fails while the journal isn't
// synced, traces that no checkpoint covers may be lost.
func TestHostileDisk(t *testing.T) {
	for _, h := range []hostility{
		{name: "power fails", power: true},
		{name: "killed without sync", quick: true},
		{name: "power fails without sync", quick: true, power: true},
		{name: "errors", power: true, errno: syscall.EIO},
		{name: "errors without sync", quick: true, errno: syscall.EIO},
		{name: "full", power: true, errno: syscall.ENOSPC},
		{name: "full without sync", quick: true, errno: syscall.ENOSPC},
	} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.test(t)
		})
	}
}

// fewestLives is the number of lives on a busy machine.
const fewestLives = 4

func (h hostility) test(t *testing.T) {
	seed := *seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	w := newWorld(t, h, seed)
	lives := 0
	for began := time.Now(); (time.Since(began) < *length || lives < fewestLives) && !t.Failed(); lives++ {
		w.live(w.newLife())
	}
	if t.Failed() {
		return
	}
	last := &life{world: w, disk: w.disk, rng: w.rng, last: true, gone: make(chan struct{})}
	w.live(last)
	t.Logf("seed %d: %d lives, %d given up, %d failed starts, %d faults, %d traces, %d refused requests, %d events",
		seed, lives, w.givenUp, w.failedStarts, w.faults.Load(), len(w.traces), w.refused.Load(), len(w.ended))
}

// world is what outlives the process: the disk, the senders, and the receiver of events.
type world struct {
	hostility

	t       *testing.T
	rng     *rand.Rand
	clock   clock
	faults  atomic.Int64 // injected
	refused atomic.Int64 // requests

	mu           sync.Mutex // guards the following
	disk         *hostileFS
	traces       []*sentTrace
	ended        map[string]bool // events that must be delivered
	delivered    map[string]bool
	settled      map[string]bool // names of traces in a durable checkpoint
	log          strings.Builder
	givenUp      int
	failedStarts int
}

// sentTrace is a trace that is sent in two requests.
type sentTrace struct {
	bodies [2][]byte
	acked  [2]bool
}

const dataDir = "/data"

func newWorld(t *testing.T, h hostility, seed uint64) *world {
	w := &world{
		hostility: h,
		t:         t,
		rng:       rand.New(rand.NewPCG(seed, 1)),
		ended:     make(map[string]bool),
		delivered: make(map[string]bool),
		settled:   make(map[string]bool),
	}
	w.clock.set(start)
	disk := vfs.NewCrashableMem()
	if err := disk.MkdirAll(dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
	w.disk = newHostileFS(disk)
	t.Cleanup(func() {
		if t.Failed() {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Logf("seed %d; the end of the log:\n%s", seed, w.log.String()[max(0, w.log.Len()-8000):])
		}
	})
	return w
}

// Write implements [io.Writer] for the log of the service.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// hostileFS is a file system in memory that can crash and fail.
type hostileFS struct {
	vfs.FS // mem, with faults

	mem    *vfs.MemFS
	inject atomic.Pointer[func(errorfs.Op) error] // called before each operation; nil: nothing
}

func newHostileFS(mem *vfs.MemFS) *hostileFS {
	h := &hostileFS{mem: mem}
	h.fill(false)
	h.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if inject := h.inject.Load(); inject != nil {
			return (*inject)(op)
		}
		return nil
	}))
	return h
}

// fill sets the reported free space. The size of the disk makes memtables so small that many are written.
func (h *hostileFS) fill(full bool) {
	usage := vfs.DiskUsage{TotalBytes: 4 << 20, AvailBytes: 1 << 40}
	if full {
		usage.AvailBytes = 0
	}
	h.mem.TestingSetDiskUsage(usage)
}

// Truncate implements [pebbledb.FS]. A crash keeps the old or the new size, and in both cases all data.
func (h *hostileFS) Truncate(name string, size int64) error {
	f, err := h.mem.Open(name)
	if err != nil {
		return err
	}
	kept, err := io.ReadAll(io.LimitReader(f, size))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if f, err = h.mem.Create(name+".new", vfs.WriteCategoryUnspecified); err != nil {
		return err
	}
	_, err = f.Write(kept)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return h.mem.Rename(name+".new", name)
}

// life is one process.
type life struct {
	*world

	disk     *hostileFS
	rng      *rand.Rand
	last     bool // without faults; everything must be counted and delivered in the end
	ops      atomic.Int64
	crashAt  int64 // number of the operation during which it crashes
	failFrom int64 // number of the first operation that may fail
	left     atomic.Int64
	fails    func(errorfs.OpKind) bool
	filled   sync.Once // the disk
	lost     vfs.CrashCloneCfg
	gone     chan struct{} // closed when a database has given up
	service  *Service

	over    bool       // it has crashed: nothing that it does from now on counts; guarded by the mutex of the world
	next    *vfs.MemFS // the disk after the crash; likewise
	gaveUp  bool       // likewise
	started atomic.Bool
}

// newLife returns a life with random faults.
func (w *world) newLife() *life {
	l := &life{world: w, disk: w.disk, gone: make(chan struct{})}
	l.rng = rand.New(rand.NewPCG(w.rng.Uint64(), 2))
	l.lost = vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 3))}
	if w.power {
		l.lost.UnsyncedDataPercent = []int{0, 20, 50, 90}[w.rng.IntN(4)]
	}
	some := func() int64 { return w.rng.Int64N(16 << w.rng.IntN(10)) }
	l.crashAt = some()
	l.failFrom = some()
	switch w.errno {
	case syscall.EIO:
		l.left.Store(1 + w.rng.Int64N(8))
		l.fails = kinds[w.rng.IntN(len(kinds))]
	case syscall.ENOSPC:
		l.left.Store(1 << 40) // until there is room again
		l.fails = takesSpace
	}
	inject := l.inject
	l.disk.inject.Store(&inject)
	return l
}

// kinds are kinds of operations that fail together.
var kinds = []func(errorfs.OpKind) bool{
	func(k errorfs.OpKind) bool { return k.ReadOrWrite() == errorfs.OpIsRead },
	func(k errorfs.OpKind) bool { return k.ReadOrWrite() == errorfs.OpIsWrite },
	func(k errorfs.OpKind) bool {
		return slices.Contains([]errorfs.OpKind{
			errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo,
		}, k)
	},
	func(errorfs.OpKind) bool { return true },
}

func takesSpace(k errorfs.OpKind) bool {
	switch k {
	case errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
		return true
	}
	return false
}

func (l *life) inject(op errorfs.Op) error {
	n := l.ops.Add(1)
	if n == l.crashAt {
		l.crash()
	}
	if l.errno == 0 || n < l.failFrom || op.Kind == errorfs.OpGetDiskUsage || !l.fails(op.Kind) || l.left.Add(-1) < 0 {
		return nil
	}
	if l.faults.Add(1); l.errno == syscall.ENOSPC {
		l.filled.Do(func() {
			if l.rng.IntN(2) == 0 { // otherwise the reported space is out of date
				l.disk.fill(true)
			}
			time.AfterFunc(time.Duration(l.rng.IntN(100))*time.Millisecond, l.makeRoom)
		})
	}
	return &os.PathError{Op: "test", Path: path.Base(op.Path), Err: l.errno}
}

// makeRoom ends all faults.
func (l *life) makeRoom() {
	l.left.Store(0)
	l.disk.fill(false)
}

// crash ends the process, or the power: the next life gets the disk as it is now.
func (l *life) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		l.next = l.disk.mem.CrashClone(l.lost)
	}
}

// happens calls f unless the process has crashed. f must not use the disk.
func (l *life) happens(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		f()
	}
}

func (l *life) crashed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// giveUp is called by a database that cannot continue.
func (l *life) giveUp(err error) {
	l.crash()
	switch {
	case l.errno == 0:
		l.t.Errorf("a database gave up on a working disk: %v", err)
	case !strings.Contains(err.Error(), l.errno.Error()):
		l.t.Errorf("a database gave up without the reason: %v", err)
	case l.errno == syscall.ENOSPC && l.started.Load():
		l.t.Errorf("a database did not wait for room: %v", err)
	}
	l.mu.Lock()
	if l.givenUp++; !l.gaveUp { // the other database may follow
		l.gaveUp = true
		close(l.gone)
	}
	l.mu.Unlock()
	select {}
}

// live lets l live, and sets the disk for the next life.
func (w *world) live(l *life) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run()
	}()
	select {
	case <-done:
	case <-l.gone:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<20)
		w.t.Fatalf("the service hangs:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disk.inject.Store(nil)
	if l.over {
		w.disk = newHostileFS(l.next)
	}
}

// run opens the databases and the service, uses them, and closes them.
func (l *life) run() {
	defer l.makeRoom()
	log := slog.New(slog.NewTextHandler(l.world, &slog.HandlerOptions{Level: slog.LevelWarn}))
	failed := func(err error) {
		if l.errno == 0 || !errors.Is(err, l.errno) {
			l.t.Errorf("the start failed: %v", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failedStarts++
	}
	disk, err := pebbledb.NewDiskOn(l.disk, dataDir)
	if err != nil {
		failed(err)
		return
	}
	o := DefaultOptions()
	o.Journal, err = journal.Open(journal.Options{
		Dir: path.Join(dataDir, "journal"), Sync: !l.quick, Disk: disk, Log: log, GiveUp: l.giveUp,
	})
	if err != nil {
		failed(err)
		return
	}
	closing := []func() error{o.Journal.Close}
	defer func() {
		l.makeRoom()
		for _, f := range closing {
			if err := f(); err != nil && l.errno == 0 {
				l.t.Error(err)
			}
		}
	}()
	o.Store, err = store.Open(store.Options{
		Dir: path.Join(dataDir, "store"), Disk: disk, Log: log, GiveUp: l.giveUp,
	})
	if err != nil {
		failed(err)
		return
	}
	closing = append(closing, o.Store.Close)
	outbox, err := o.Store.OpenOutbox(store.DefaultOutboxLimits())
	if err != nil {
		failed(err)
		return
	}
	o.Core.Epoch, o.Checkpoint = time.Second, time.Second
	o.Shards, o.tick = 1+l.rng.IntN(3), 2*time.Millisecond
	o.Full, o.Fits, o.Clock, o.Log = disk.Full, disk.Fits, l.clock.Now, log
	o.Epoch = l.reporter(outbox)
	if l.service, err = Open(o); err != nil {
		failed(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- l.service.Run(ctx) }()
	select {
	case err := <-stopped:
		failed(err)
		return
	case <-l.service.Started():
	}
	l.started.Store(true)
	l.use(outbox)
	if l.rng.IntN(2) == 0 && !l.last {
		l.crash()
	}
	l.makeRoom()
	stop()
	if err := <-stopped; err != nil && l.errno == 0 {
		l.t.Error(err)
	}
}

// reporter returns a function that puts an event into outbox at the end of an epoch.
func (l *life) reporter(outbox *store.Outbox) func(*engine.View, Ended) error {
	var unsaved []store.Message
	return func(_ *engine.View, e Ended) error {
		m := store.Message{ID: fmt.Sprint("epoch ", int64(e.At)), Endpoint: "hook", Body: []byte("{}")}
		expect := func(id string) { l.happens(func() { l.ended[id] = true }) }
		if !l.quick || !l.power { // otherwise a crash may undo the epoch
			expect(m.ID)
		}
		for unsaved = append(unsaved, m); len(unsaved) > 0; unsaved = unsaved[1:] {
			if _, err := outbox.Put(l.clock.at(), unsaved[:1]); err != nil {
				return err
			}
			expect(unsaved[0].ID)
		}
		return nil
	}
}

// use sends traces, delivers events and ends epochs for a while.
func (l *life) use(outbox *store.Outbox) {
	steps := 1 + l.rng.IntN(4)
	if l.last {
		steps = 1
	}
	for range steps {
		l.newTraces()
		for tries := 0; !l.send(false); tries++ {
			if l.crashed() || tries == 100 && !l.last {
				return
			}
			if tries == 1000 {
				l.t.Error("requests are refused forever")
				return
			}
			time.Sleep(2 * time.Millisecond)
			if l.errno == syscall.ENOSPC && tries < 3 { // if more time passes, traces that lack a request close
				l.pass(checkedAfter)
			}
		}
		seconds := []int{1, 2, 3, 8}[l.rng.IntN(4)]
		var sending sync.WaitGroup
		switch {
		case l.last:
			seconds = 30
		case l.rng.IntN(4) == 0:
			seconds = 12
		default:
			l.newTraces()
			sending.Go(func() { l.send(true) })
		}
		for range seconds {
			l.pass(time.Second)
			if err := l.service.Flush(context.Background()); err != nil {
				break
			}
			l.deliver(outbox)
		}
		sending.Wait()
		l.settle()
	}
	if l.last {
		l.check(outbox)
	}
}

// checkedAfter is the time after which a disk checks its free space again, rounded up.
const checkedAfter = 60 * time.Millisecond

// nameOf returns the name of trace n. It has no digits, which could be taken for an identifier.
func nameOf(n int) string {
	return strings.Map(func(digit rune) rune { return digit - '0' + 'a' }, strconv.Itoa(n))
}

// pass lets time pass, unless it passes for the next life.
func (l *life) pass(d time.Duration) { l.happens(func() { l.clock.add(d) }) }

// newTraces adds some traces to those to be sent.
func (l *life) newTraces() {
	l.happens(func() {
		for range l.rng.IntN(20) {
			l.newTrace()
		}
	})
}

// newTrace adds a trace of two spans.
func (l *life) newTrace() {
	n, at := len(l.traces), l.clock.at()
	x := &sentTrace{}
	for i := range x.bodies { // the child first
		traces := ptrace.NewTraces()
		rs := traces.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "shop")
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		var id pcommon.TraceID
		binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
		s.SetTraceID(id)
		s.SetSpanID(pcommon.SpanID{byte(2 - i)})
		s.SetStartTimestamp(pcommon.Timestamp(at))
		s.SetEndTimestamp(pcommon.Timestamp(at.Add(10 * time.Millisecond)))
		s.SetName(nameOf(n))
		s.SetKind(ptrace.SpanKindServer)
		if i == 0 {
			s.SetParentSpanID(pcommon.SpanID{1})
			s.SetName("child")
			s.SetKind(ptrace.SpanKindInternal)
		}
		// A record of a few KiB spans blocks of the disk, so a crash can keep a part of it.
		s.Attributes().PutStr("noise", strings.Repeat(strconv.FormatUint(l.rng.Uint64(), 36), l.rng.IntN(300)))
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
		if err != nil {
			l.t.Error(err)
		}
		x.bodies[i] = body
	}
	l.traces = append(l.traces, x)
}

// send sends all requests that aren't acknowledged, and reports whether all are now. If late is true, it omits the
// second request of some traces, so that younger traces close before them.
func (l *life) send(late bool) (all bool) {
	var refused atomic.Bool
	l.mu.Lock()
	traces := slices.Clone(l.traces)
	l.mu.Unlock()
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for k := i; k < len(traces); k += 4 {
				requests := 2
				if late && k%5 == 0 {
					requests = 1
				}
				if !l.sendTrace(traces[k], requests) {
					refused.Store(true)
				}
			}
		})
	}
	senders.Wait()
	return !refused.Load()
}

// sendTrace sends the first requests of x unless they are acknowledged, and reports whether they are now.
func (l *life) sendTrace(x *sentTrace, requests int) (acked bool) {
	for i := range requests {
		l.mu.Lock()
		acked := x.acked[i]
		l.mu.Unlock()
		if acked {
			continue
		}
		if _, _, err := l.service.Take(context.Background(), x.bodies[i], journal.Protobuf); err != nil {
			l.refused.Add(1)
			return false
		}
		l.happens(func() { x.acked[i] = true })
	}
	return true
}

// deliver delivers the due messages of outbox.
func (l *life) deliver(outbox *store.Outbox) {
	due, _, _ := outbox.Take("hook", l.clock.at(), 1+l.rng.IntN(8)) // after an error, the rest is still due
	for i := range due {
		l.happens(func() { l.delivered[due[i].ID] = true })
		_ = outbox.Done(&due[i]) // after an error, the next life delivers it again
	}
}

// counted returns how often each trace is counted, by its name.
func counted(core *engine.View) map[string]uint64 {
	all := make(map[string]uint64)
	for _, g := range core.Groups.Groups() {
		if g.Level == group.LevelRequestType {
			total, _ := g.Retained()
			all[core.Table.OpName(g.Entry)] += total.N
		}
	}
	return all
}

// settle records the traces that are counted in a checkpoint, if the last epoch has one.
func (l *life) settle() {
	for range 10 {
		err := l.service.Ask(context.Background(), func(core *engine.View) {
			if l.service.loop.saving == nil && l.service.loop.saved == core.Ended {
				names := counted(core)
				l.happens(func() {
					for name := range names {
						l.settled[name] = true
					}
				})
			}
		})
		if err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// check checks that every acknowledged trace is counted exactly once, and every event delivered.
func (l *life) check(outbox *store.Outbox) {
	for outbox.Stats().Waiting > 0 {
		l.deliver(outbox)
	}
	for id := range l.ended {
		if !l.delivered[id] {
			l.t.Errorf("the event of %s was not delivered", id)
		}
	}
	err := l.service.Ask(context.Background(), func(core *engine.View) {
		all, lost := counted(core), 0
		for i := range l.traces {
			name := nameOf(i)
			n := all[name]
			delete(all, name)
			switch {
			case n > 1:
				l.t.Errorf("trace %s is counted %d times", name, n)
			case n == 0 && (!l.quick || !l.power || l.settled[name]):
				lost++
			}
		}
		if lost > 0 {
			l.t.Errorf("%d of %d traces are lost", lost, len(l.traces))
		}
		if l.quick && l.power { // it may have lost the root of a trace
			delete(all, "child")
		}
		for name, n := range all {
			l.t.Errorf("%d traces are called %q", n, name)
		}
	})
	if err != nil {
		l.t.Error(err)
	}
	if n := l.service.Counts().Damaged.Load(); n > 0 && (!l.quick || !l.power) {
		l.t.Errorf("%d records of the journal are damaged", n)
	}
}
