//go:build linux

package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// open opens probes, or skips the test if the machine or the rights don't allow it.
func open(t *testing.T, o Options) *Probes {
	t.Helper()
	p, err := Open(o)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// everything is the target with all classes.
var everything = Target{Classes: waits.All, Events: waits.All, MaxEvents: 1 << 30, Stacks: true}

// apply makes process pid the only target.
func apply(t *testing.T, p *Probes, pid uint32, target Target, thresholds waits.Thresholds) {
	t.Helper()
	if err := p.Apply(Spec{Targets: map[uint32]Target{pid: target}, Thresholds: thresholds}); err != nil {
		t.Fatal(err)
	}
}

// processesOf returns the sums of all processes of the first reading.
func processesOf(r waits.Reading, thresholds waits.Thresholds) []waits.ProcessReport {
	c := waits.NewCollector()
	changes, _ := waits.NewLedger(thresholds, waits.All).Update(r)
	c.Add(changes)
	return c.Processes()
}

// tolerance returns the allowed difference, in ns, to a time of ns nanoseconds.
func tolerance(ns int64) int64 { return max(ns/50, 2e6) }

// Threads that measure their own waits agree with the sums of the probes, for every class. The scheduler's own times
// on CPUs and on run queues agree as well. The sums of each thread add up to the time of the observation.
func TestTruth(t *testing.T) {
	p := open(t, Options{})
	w := start(t, "truth")
	tids := ready(t, w)
	var s [4]map[int]times // before and after the start, before and after the end
	from := time.Now()
	s[0] = schedule(t, w.pid, tids)
	apply(t, p, w.pid, everything, waits.Thresholds{})
	applied := time.Now()
	s[1] = asleep(t, w.pid, tids)
	w.goOn()
	var results []timed
	if err := json.Unmarshal(w.line(), &results); err != nil {
		t.Fatal(err)
	}
	s[2] = schedule(t, w.pid, tids)
	stopping := time.Now()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	r, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	s[3] = asleep(t, w.pid, tids)
	processes := processesOf(r, waits.Thresholds{})
	shortest, longest := stopping.Sub(applied), stopped.Sub(from)
	if len(processes) != 1 || len(results) < 17 {
		t.Fatalf("%d processes, %d threads", len(processes), len(results))
	}
	threads := make(map[int]*waits.Totals)
	for i := range processes[0].Threads {
		threads[int(processes[0].Threads[i].TID)] = &processes[0].Threads[i].Totals
	}
	for _, x := range results {
		t.Run(x.Name, func(t *testing.T) {
			if x.Missing != "" {
				t.Skip(x.Missing)
			}
			totals := threads[x.TID]
			if totals == nil {
				t.Fatal("the thread has no sums")
			}
			if all := time.Duration(totals.Ns()); all < shortest-2*time.Millisecond || all > longest {
				t.Errorf("the classes add up to %s, want %s to %s", all, shortest, longest)
			}
			compareScheduler(t, totals, s[2][x.TID].since(s[1][x.TID]), s[3][x.TID].since(s[0][x.TID]))
			compareWaits(t, x,
				r.Sums[waits.Key{TGID: w.pid, TID: uint32(x.TID), Syscall: x.Syscall, Class: x.Class}], totals)
		})
	}
	l, err := p.Losses()
	// The kernel may temporarily refuse memory for a thread's state. If that matters, the comparisons notice.
	if err != nil || l.Lost()-l.Stacks-l.Threads != 0 {
		t.Errorf("losses: %+v, %v", l, err)
	}
	t.Logf("%d switches to a CPU were not reported", l.Unseen)
}

// ready returns the threads of the truth workload once they run.
func ready(t *testing.T, w *workload) []int {
	t.Helper()
	var results []timed
	if err := json.Unmarshal(w.first, &results); err != nil {
		t.Fatal(err)
	}
	tids := make([]int, len(results))
	for i := range results {
		tids[i] = results[i].TID
	}
	return tids
}

// times are a thread's times counted by the scheduler, in ns.
type times struct{ cpu, runQueue int64 }

func (t times) since(before times) times {
	return times{t.cpu - before.cpu, t.runQueue - before.runQueue}
}

// schedule returns the times of threads up to now.
func schedule(t *testing.T, pid uint32, tids []int) map[int]times {
	t.Helper()
	all := make(map[int]times)
	for _, tid := range tids {
		all[tid] = scheduleOf(t, pid, tid)
	}
	return all
}

// asleep returns the times of each thread once it sleeps. The scheduler counts an interval on a run queue at its end,
// so these times contain only whole intervals. All threads sleep now and then.
func asleep(t *testing.T, pid uint32, tids []int) map[int]times {
	t.Helper()
	all := make(map[int]times)
	for len(all) < len(tids) {
		for _, tid := range tids {
			if _, ok := all[tid]; !ok && sleeps(t, pid, tid) {
				all[tid] = scheduleOf(t, pid, tid)
			}
		}
	}
	return all
}

func scheduleOf(t *testing.T, pid uint32, tid int) (x times) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &x.cpu, &x.runQueue); err != nil {
		t.Fatal(err)
	}
	return x
}

// sleeps reports whether a thread waits for something and not for a CPU.
func sleeps(t *testing.T, pid uint32, tid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(text, []byte(") S "))
}

// compareScheduler compares totals with the scheduler's times: they must be at least the whole intervals within the
// observation, and at most the intervals that overlap it. The scheduler doesn't count time in which another virtual
// machine has the CPU as time on the CPU, nor time in which a thread is preempted on its way into a wait.
func compareScheduler(t *testing.T, totals *waits.Totals, least, most times) {
	t.Helper()
	waited := int64(totals[waits.Preempted].TotalNs + totals[waits.RunQueue].TotalNs)
	most.runQueue += int64(totals[waits.Preempted].MaxNs)
	const late = 10e3 // ns: the scheduler decides some µs before the probe runs
	queued := late * int64(totals[waits.Preempted].Count+totals[waits.RunQueue].Count)
	if waited < least.runQueue-tolerance(waited)-queued || waited > most.runQueue+tolerance(waited) {
		t.Errorf("%s waiting for a CPU, the scheduler counts %s to %s",
			time.Duration(waited), time.Duration(least.runQueue), time.Duration(most.runQueue))
	}
	ran := int64(totals[waits.OnCPU].TotalNs)
	// A virtual machine may be stopped before the probe runs.
	stopped := 5_000_000 + late*int64(totals[waits.OnCPU].Count)
	if ran < least.cpu-int64(totals[waits.OnCPU].MaxNs)-tolerance(ran)-stopped {
		t.Errorf("%s on CPUs, the scheduler counts %s", time.Duration(ran), time.Duration(least.cpu))
	}
}

// compareWaits compares totals with the time that the thread has measured around its calls: the wait itself, the
// run-queue time after it, and the usually negligible time on the CPU before and after. Only waits in the measured
// system call count, because Go's runtime waits in other calls on the same thread.
func compareWaits(t *testing.T, r timed, x waits.Sum, totals *waits.Totals) {
	t.Helper()
	measured, waited := r.WaitedNs, int64(x.TotalNs+x.RunqNs)
	most := waited + int64(totals[waits.Preempted].TotalNs+totals[waits.OnCPU].TotalNs)
	if r.Kind == busy {
		most += int64(totals[waits.RunQueue].TotalNs)
	}
	t.Logf("measured %s; %d intervals, %s for the thing, %s for a CPU",
		time.Duration(measured), x.Count, time.Duration(x.TotalNs), time.Duration(x.RunqNs))
	if r.Class == waits.OnCPU {
		waited = 0
		if preempted := int64(totals[waits.Preempted].TotalNs); preempted < measured/4 {
			t.Errorf("preempted for %s of %s, want about a half: two threads want the CPU",
				time.Duration(preempted), time.Duration(measured))
		}
	}
	if measured < waited-tolerance(measured) || measured > most+tolerance(measured) {
		t.Errorf("measured %s, the sums are %s to %s",
			time.Duration(measured), time.Duration(waited), time.Duration(most))
	}
	// While a thread is preempted on its way into a wait, the time of the wait may pass.
	if r.Kind == pure && x.Count+totals[waits.Preempted].Count < uint64(r.Rounds) {
		t.Errorf("%d intervals, want at least %d", x.Count, r.Rounds)
	}
}

// A wait above the threshold that doesn't fit in the ring buffer is counted. The events, the lost events and the
// events above the rate add up to the sums. Switches that the kernel didn't report are an exception. We replace them
// by the scheduler's times, which may leave a wait of 0 ns, and this is above no threshold.
func TestLostEventsAreCounted(t *testing.T) {
	var thresholds waits.Thresholds
	for c := range thresholds {
		thresholds[c] = 1
	}
	for _, c := range []struct {
		name string
		rate uint32
	}{{"tiny ring buffer", 1 << 30}, {"rate", 5}} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, Options{RingBytes: 4096})
			w := start(t, "truth")
			target := everything
			target.MaxEvents, target.Classes = c.rate, waits.All
			target.Events = waits.All &^ waits.Set(0).With(waits.OnCPU)
			apply(t, p, w.pid, target, thresholds)
			w.goOn()
			w.line()
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
			r, err := p.Read()
			if err != nil {
				t.Fatal(err)
			}
			var over, received uint64
			for k, s := range r.Sums {
				if k.Class != waits.OnCPU {
					over += s.Count // any wait that takes time exceeds the threshold
				}
			}
			if err := p.Events(func(waits.Event) { received++ }); err != nil {
				t.Fatal(err)
			}
			l, err := p.Losses()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d waits, %d received, %d lost, %d above the rate; %d switches not reported",
				over, received, l.Events, l.Limited, l.Unseen)
			if told := received + l.Events + l.Limited; told > over || told+l.Unseen < over {
				t.Errorf("want %d received, lost and above the rate in all, or up to %d fewer", over, l.Unseen)
			}
			if received == 0 || l.Events+l.Limited == 0 {
				t.Error("want both received and lost events")
			}
		})
	}
}
