//go:build linux

package kernel

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// nap is a request that consists of many short sleeps.
type nap struct {
	TID      int64
	From, To int64 // of the monotonic clock
	Trace    [16]byte
	Slept    int64 // ns, including the waits for CPUs
}

const (
	napThreads  = 4
	napRequests = 50 // of each thread
	napCount    = 40 // of each request
)

// napsWorkload serves requests with many short sleeps and writes the requests.
func napsWorkload(in *bufio.Reader, out io.Writer) error { return serveNaps(in, out, 0, 1) }

// turnsWorkload is like napsWorkload, but four requests take turns in each thread, like goroutines.
func turnsWorkload(in *bufio.Reader, out io.Writer) error { return serveNaps(in, out, 0, 4) }

// crowdedWorkload is like napsWorkload, but on one CPU, so that the threads also wait for the CPU. Nearly all of their
// time consists of short waits of two classes.
func crowdedWorkload(in *bufio.Reader, out io.Writer) error {
	return serveNaps(in, out, 60*time.Microsecond, 1)
}

// serveNaps serves several requests at a time in each thread. If busy isn't 0, the threads also compute for busy after
// each sleep, and all run on one CPU.
func serveNaps(in *bufio.Reader, out io.Writer, busy time.Duration, several int) error {
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	all := make([]nap, napThreads*napRequests)
	var done sync.WaitGroup
	for thread := range napThreads {
		done.Go(func() {
			runtime.LockOSThread()
			if busy > 0 {
				_ = bindToFirstCPU() // if this fails, there are fewer waits
			}
			for few := range slices.Chunk(all[thread*napRequests:(thread+1)*napRequests], several) {
				takeNaps(few, busy)
			}
		})
	}
	done.Wait()
	fmt.Fprintln(out, "done")
	if err := binary.Write(out, binary.LittleEndian, all); err != nil {
		return err
	}
	_, _ = in.ReadString('\n')
	return nil
}

func takeNaps(requests []nap, busy time.Duration) {
	labels := make([]pprof.LabelSet, len(requests))
	for i := range requests {
		n := &requests[i]
		binary.LittleEndian.PutUint64(n.Trace[:], rand.Uint64())
		labels[i] = pprof.Labels("trace_id", hex.EncodeToString(n.Trace[:]), "span_id", "0000000000000001")
		n.TID, n.From = int64(unix.Gettid()), clock()
	}
	for range napCount {
		for i := range requests {
			pprof.Do(context.Background(), labels[i], func(context.Context) {
				requests[i].Slept += measure(unix.SYS_NANOSLEEP,
					&[6]uintptr{keep(&unix.Timespec{Nsec: 20e3 + rand.Int64N(100e3)})})
				if busy > 0 {
					measure(spin, &[6]uintptr{uintptr(busy)})
				}
			})
		}
	}
	for i := range requests {
		requests[i].To = clock()
	}
}

// Waits shorter than the threshold are sent as sums. They add up to nearly all of the time that a request slept, but
// no more, and lie within its span without overlaps.
func TestShortWaitsAddUp(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("goroutines are read on amd64 only")
	}
	t.Run("naps", func(t *testing.T) { checkNaps(t, "naps", 1e6) })
	t.Run("turns", func(t *testing.T) { checkNaps(t, "turns", 150e3) })
	t.Run("crowded", func(t *testing.T) { checkNaps(t, "crowded", 300e3) })
}

// checkNaps observes a workload of naps with a threshold in ns.
func checkNaps(t *testing.T, workload string, threshold uint64) {
	t.Helper()
	p := open(t, Options{RingBytes: 1 << 22})
	w := start(t, workload)
	joiner := join.NewJoiner("/proc", "naps", "here")
	joiner.Inspector.Patience = time.Minute // the machine may be busy
	joiner.Service(w.pid)
	wanted := waits.Set(0).With(waits.Sleep).With(waits.RunQueue)
	target := Target{Classes: wanted, Events: wanted, InSpans: true, MaxEvents: 1 << 30}
	var err error
	if target.Context, _, err = joiner.Context(w.pid); err != nil {
		t.Fatal(err)
	}
	thresholds := waits.Thresholds{waits.Sleep: threshold, waits.RunQueue: threshold}
	apply(t, p, w.pid, target, thresholds)
	w.goOn()
	w.line()
	all := make([]nap, napThreads*napRequests)
	if err := binary.Read(w.out, binary.LittleEndian, all); err != nil {
		t.Fatal(err)
	}
	requests := make(map[[16]byte]*nap)
	for i := range all {
		requests[all[i].Trace] = &all[i]
	}
	arrived, asleep := make(map[[16]byte]int64), make(map[[16]byte]int64)
	parts := make(map[uint32][]waits.Part)
	sums := 0
	err = p.Events(func(e waits.Event) {
		joined, ok := joiner.Join(&e)
		n := requests[joined.Trace]
		if !ok || n == nil || int64(e.TID) != n.TID {
			t.Errorf("%+v: no request", e)
			return
		}
		if e.More > 0 {
			sums++
		}
		for _, part := range e.Parts(wanted, thresholds.InSpans()) {
			if int64(part.Start) < n.From || int64(part.End) > n.To {
				t.Errorf("%s from %d to %d: of a request from %d to %d", part.Class, part.Start, part.End, n.From, n.To)
			}
			parts[e.TID] = append(parts[e.TID], part)
			arrived[n.Trace] += int64(part.End - part.Start)
			if part.Class == waits.Sleep {
				asleep[n.Trace] += int64(part.End - part.Start)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range parts {
		slices.SortFunc(list, func(a, b waits.Part) int { return cmp.Compare(a.Start, b.Start) })
		for i := 1; i < len(list); i++ {
			if list[i].Start < list[i-1].End {
				t.Errorf("%+v overlaps %+v", list[i], list[i-1])
			}
		}
	}
	var slept, got int64
	for id, n := range requests {
		// Between two sleeps, the thread may wait for Go's runtime, such as its collector, and then for a CPU as well.
		slept, got = slept+n.Slept, got+min(arrived[id], n.Slept)
		if asleep[id] > n.Slept {
			t.Errorf("%d ns of %d ns of sleep", asleep[id], n.Slept)
		}
	}
	t.Logf("%d of %d ms arrived in %d sums", got/1e6, slept/1e6, sums)
	if missing := slept - got; missing > slept/6 {
		t.Errorf("%d ns are missing of %d, in %d sums", missing, slept, sums)
	}
	if l, err := p.Losses(); err != nil || l.Events+l.Limited != 0 {
		t.Errorf("losses %+v, %v", l, err)
	}
}

// Missing events are counted by process and class. Together with the events that arrive they add up to all events.
func TestMissing(t *testing.T) {
	p := open(t, Options{RingBytes: 4096})
	w := start(t, "storm")
	target := everything
	target.Events = waits.Set(0).With(waits.Pipe)
	apply(t, p, w.pid, target, waits.Thresholds{waits.Pipe: 1})
	w.goOn()
	w.line()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	arrived := uint64(0)
	if err := p.Events(func(waits.Event) { arrived++ }); err != nil {
		t.Fatal(err)
	}
	all, err := p.Missing()
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	over := uint64(0)
	for k, s := range r.Sums {
		if k.Class == waits.Pipe {
			over += uint64(s.Over)
		}
	}
	missing := all[waits.MissingKey{TGID: w.pid, Class: waits.Pipe, Cause: waits.RingFull}]
	if len(all) != 1 || missing.Count == 0 || arrived == 0 || arrived+missing.Count != over ||
		missing.TotalNs < missing.Count {
		t.Errorf("%d waits: %d arrived, missing %v", over, arrived, all)
	}
	if again, err := p.Missing(); err != nil || len(again) != 0 {
		t.Errorf("%v, %v: counted again", again, err)
	}
}
