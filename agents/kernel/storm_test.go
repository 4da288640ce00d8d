//go:build linux

package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// stormWorkload makes pairs of threads wake each other through pipes as fast as they can.
func stormWorkload(in *bufio.Reader, out io.Writer) error {
	const pairs, rounds = 8, 1500
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var done sync.WaitGroup
	for range pairs {
		if err := pingPong(&done, rounds); err != nil {
			return err
		}
	}
	done.Wait()
	fmt.Fprintln(out, "done")
	_, _ = in.ReadString('\n')
	return nil
}

// pingPong starts two threads that send a byte to each other, rounds times.
func pingPong(done *sync.WaitGroup, rounds int) error {
	var there, back [2]int
	if err := unix.Pipe2(there[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	play := func(from, to int, first bool) {
		runtime.LockOSThread()
		b := keep(new([1]byte))
		for i := range rounds {
			if !first || i > 0 {
				_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(from), b, 1)
			}
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(to), b, 1)
		}
	}
	done.Go(func() { play(back[0], there[1], true) })
	done.Go(func() { play(there[0], back[1], false) })
	return nil
}

// threadsWorkload starts many threads that wait at the same time.
func threadsWorkload(in *bufio.Reader, out io.Writer) error {
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	debug.SetMaxThreads(20_000)
	var begun sync.WaitGroup
	for range manyThreads {
		begun.Add(1)
		go func() {
			runtime.LockOSThread()
			begun.Done()
			for {
				_ = unix.Nanosleep(&unix.Timespec{Sec: 60}, nil)
			}
		}()
	}
	begun.Wait()
	fmt.Fprintln(out, "done")
	_, _ = in.ReadString('\n')
	return nil
}

// forksWorkload starts generations of processes that end within a millisecond or so.
func forksWorkload(in *bufio.Reader, out io.Writer) error {
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	c := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do (:) & (: | :) ; i=$((i+1)); done; wait")
	if err := c.Run(); err != nil {
		return err
	}
	fmt.Fprintln(out, "done")
	_, _ = in.ReadString('\n')
	return nil
}

// finish runs the named workload to its end while an observer reads, and returns the report of the whole time.
func finish(t *testing.T, name string, s Settings) *waits.Report {
	t.Helper()
	open(t, s.Options) // or skip
	w := start(t, name)
	if s.Selection.Cgroup == "" {
		s.Selection.PIDs = []uint32{w.pid}
	} else {
		enter(t, s.Selection.Cgroup+"/below", w.pid)
	}
	s.Classes, s.Stacks = waits.All, true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports, failed := make(chan *waits.Report, 1), make(chan error, 1)
	observing := make(chan struct{})
	s.began = func() { close(observing) }
	go func() {
		failed <- Observe(ctx, s, func(r *waits.Report) error {
			reports <- r
			return nil
		})
	}()
	select {
	case <-observing:
	case err := <-failed:
		t.Fatal(err)
	}
	w.goOn()
	w.line()
	cancel()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return <-reports
}

// totals returns the sums of all processes.
func totals(r *waits.Report) (all waits.Totals, threads int) {
	for i := range r.Processes {
		for c := range r.Processes[i].Totals {
			all[c].Add(r.Processes[i].Totals[c])
		}
		threads += len(r.Processes[i].Threads)
	}
	return all, threads
}

// No wait is lost in a storm of wake-ups.
func TestStorm(t *testing.T) {
	r := finish(t, "storm", Settings{})
	all, _ := totals(r)
	t.Logf("%d waits for pipes, %d hits, losses %+v", all[waits.Pipe].Count, r.Cost.Hits, r.Losses)
	if all[waits.Pipe].Count < 1000 || r.Losses.Sums != 0 || r.Losses.Threads != 0 {
		t.Errorf("%d waits for pipes, losses %+v", all[waits.Pipe].Count, r.Losses)
	}
	if r.Cost.Hits == 0 || r.Cost.NsPerHit <= 0 || r.Cost.CPUShare <= 0 {
		t.Errorf("cost %+v", r.Cost)
	}
}

// Each of ten thousand threads has sums.
func TestThreads(t *testing.T) {
	r := finish(t, "threads", Settings{})
	all, threads := totals(r)
	t.Logf("%d threads, %d sleeps, losses %+v", threads, all[waits.Sleep].Count, r.Losses)
	if missing := manyThreads - threads; missing > int(r.Losses.Sums+r.Losses.Threads+r.Losses.Missed) {
		t.Errorf("%d threads are missing, losses %+v", missing, r.Losses)
	}
}

// Ended children are forgotten, so that later processes with their numbers cost no more than before.
func TestForgetsEndedChildren(t *testing.T) {
	p := open(t, Options{})
	w := start(t, "forks")
	target := everything
	target.Children = true
	apply(t, p, w.pid, target, waits.Thresholds{})
	w.goOn()
	w.line()
	var even, odd [1024]uint64
	if err := errors.Join(p.objects.InheritedEven.Get(&even), p.objects.InheritedOdd.Get(&odd)); err != nil {
		t.Fatal(err)
	}
	if even == [1024]uint64{} || odd != [1024]uint64{} {
		t.Fatal("children are not among those of the first rotation")
	}
	for range 2 {
		p.rotatedAt -= rotateAfter // as if there had been many more
		apply(t, p, w.pid, target, waits.Thresholds{})
	}
	if err := errors.Join(p.objects.InheritedEven.Get(&even), p.objects.InheritedOdd.Get(&odd)); err != nil {
		t.Fatal(err)
	}
	if even != [1024]uint64{} || odd != [1024]uint64{} {
		t.Error("children that have ended are not forgotten")
	}
}

// If there is room for fewer sums than threads, the rest is counted as lost.
func TestFewSums(t *testing.T) {
	r := finish(t, "threads", Settings{Options: Options{Sums: 1000}})
	_, threads := totals(r)
	t.Logf("%d threads, losses %+v", threads, r.Losses)
	if r.Losses.Sums == 0 {
		t.Error("no losses")
	}
}

// Processes that end within a millisecond are observed from their first instruction to their end, and their entries are
// removed.
func TestShortProcesses(t *testing.T) {
	r := finish(t, "forks", Settings{Children: true})
	all, _ := totals(r)
	t.Logf("%d processes, %d children, losses %+v", len(r.Processes), all[waits.Child].Count, r.Losses)
	if n := len(r.Processes); n < 300 && r.Losses.Children == 0 {
		t.Errorf("%d processes, want at least 300", n)
	}
	for i := range r.Processes {
		if p := &r.Processes[i]; p.Comm == "" || p.Totals.Ns() == 0 {
			t.Errorf("process %d is called %q and has %d ns", p.PID, p.Comm, p.Totals.Ns())
		}
	}
}

// A target that doesn't exist costs nothing, and a target that ends leaves no entry behind.
func TestTargetsEnd(t *testing.T) {
	p := open(t, Options{})
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	apply(t, p, uint32(c.Process.Pid), everything, waits.Thresholds{})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	left, err := p.targets()
	if err != nil || len(left) != 0 {
		t.Errorf("targets %v, %v", left, err)
	}
	if err := p.Apply(Spec{}); err != nil {
		t.Fatal(err)
	}
	if len(p.links) != 0 {
		t.Error("programs stay attached without targets")
	}
}

// A former target costs no more than a process that was never one: the programs look up only targets in the map.
func TestFormerTargets(t *testing.T) {
	p := open(t, Options{})
	mayBeTarget := func(pid uint32) bool {
		var words [1024]uint64
		if err := p.objects.Named.Get(&words); err != nil {
			t.Fatal(err)
		}
		return words[pid/64%1024]>>(pid%64)&1 == 1
	}
	own, parent := uint32(os.Getpid()), uint32(os.Getppid())
	apply(t, p, own, everything, waits.Thresholds{})
	if !mayBeTarget(own) {
		t.Fatal("the target is not looked up")
	}
	apply(t, p, parent, everything, waits.Thresholds{})
	if mayBeTarget(own) || !mayBeTarget(parent) {
		t.Error("after a change of targets the former one is looked up, or the new one is not")
	}
}

// A target that changes keeps its time on CPUs. A process that becomes a target again starts from scratch.
func TestTargetChanges(t *testing.T) {
	p := open(t, Options{})
	onCPU := func() (ns uint64) {
		t.Helper()
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil) // ends the current interval
		r, err := p.Read()
		if err != nil {
			t.Fatal(err)
		}
		for k, s := range r.Sums {
			if k.Class == waits.OnCPU {
				ns += s.TotalNs
			}
		}
		return ns
	}
	own := uint32(os.Getpid())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	apply(t, p, own, everything, waits.Thresholds{})
	measure(spin, &[6]uintptr{uintptr(100 * time.Millisecond)})
	before := onCPU()
	apply(t, p, own, everything, waits.Thresholds{waits.File: 1e6})
	if changed := onCPU(); before < uint64(time.Millisecond) || changed < before {
		t.Errorf("%d ns on CPUs, then %d", before, changed)
	}
	if err := p.Apply(Spec{}); err != nil {
		t.Fatal(err)
	}
	apply(t, p, own, everything, waits.Thresholds{})
	if again := onCPU(); again >= before {
		t.Errorf("%d ns on CPUs in the first observation, %d in the second", before, again)
	}
}

// An agent that hangs observes nothing once its lease has expired, and starts from scratch when it continues.
func TestLease(t *testing.T) {
	p := open(t, Options{})
	apply(t, p, uint32(os.Getpid()), everything, waits.Thresholds{})
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.setUntil(now); err != nil { // as if the lease were over
		t.Fatal(err)
	}
	before, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	pauseThread()
	after, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range after.Sums {
		if s.Count != before.Sums[k].Count {
			t.Errorf("%+v: %d intervals after the end, %d before", k, s.Count, before.Sums[k].Count)
		}
	}
	if err := p.Renew(); err != nil {
		t.Fatal(err)
	}
	pauseThread()
	if l, err := p.Losses(); err != nil || l.Gaps != 1 {
		t.Errorf("losses %+v, %v; want a gap", l, err)
	}
	again, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range again.Open {
		if o.Since < now {
			t.Errorf("thread %d is in a state from before the gap", o.TID)
		}
	}
}

// Leases don't run while nothing is observed, so a later observation starts without a gap.
func TestNoLeaseWithoutTargets(t *testing.T) {
	p := open(t, Options{})
	target := Spec{Targets: map[uint32]Target{uint32(os.Getpid()): everything}}
	for _, s := range []Spec{target, {}, target} {
		p.until = min(p.until, 1) // as if longer than a lease had passed
		if err := p.Apply(s); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := p.Losses(); err != nil || l.Gaps != 0 {
		t.Errorf("losses %+v, %v; want no gap", l, err)
	}
}

// A second agent on the machine detects the first.
func TestOthers(t *testing.T) {
	p, err := Open(Options{})
	if err != nil {
		t.Skip(err)
	}
	if second := open(t, Options{}); !second.Others() {
		t.Error("it does not see the first one")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// pauseThread blocks the thread of the test for a moment.
func pauseThread() { _ = unix.Nanosleep(&unix.Timespec{Nsec: int64(2 * time.Millisecond)}, nil) }

// Targets beyond the limit are skipped and counted once. The others stay.
func TestManyTargets(t *testing.T) {
	p := open(t, Options{})
	const beyond = 1 << 22 // above the numbers of processes
	spec := Spec{Targets: make(map[uint32]Target)}
	for i := range uint32(MaxTargets) {
		spec.Targets[beyond+i] = Target{Classes: waits.All}
	}
	lost := func() uint64 {
		if err := p.Apply(spec); err != nil {
			t.Fatal(err)
		}
		losses, err := p.Losses()
		if err != nil {
			t.Fatal(err)
		}
		return losses.Children
	}
	if n := lost(); n != 0 {
		t.Fatalf("%d of %d are lost", n, MaxTargets)
	}
	const more = 10
	for i := range uint32(more) {
		spec.Targets[beyond+MaxTargets+i] = Target{Classes: waits.All}
	}
	for range 2 {
		if n := lost(); n != more {
			t.Errorf("%d targets are lost, want %d", n, more)
		}
	}
	for i := range uint32(more) {
		delete(spec.Targets, beyond+i)
	}
	if n := lost(); n != more || len(p.applied) != MaxTargets {
		t.Errorf("%d lost, %d applied, although there is room", n, len(p.applied))
	}
}
