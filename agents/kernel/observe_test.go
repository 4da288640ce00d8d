//go:build linux && (amd64 || arm64)

package kernel

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/symbols"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// observerIn returns an observer of processes below proc, without probes, that joins waits to spans.
func observerIn(proc string) *observer {
	return &observer{
		settings: Settings{
			Join: &Join{Joiner: join.NewJoiner(proc, "given", "b"), Cannot: func(uint32, error) {}}, Children: true,
		},
		resolver: symbols.NewResolver(proc, time.Now),
		names:    make(map[stackID][]string),
		alive:    make(map[uint32]bool),
		known:    make(map[uint32]int),
	}
}

// A process that ends before it is read is forgotten, once its last events have come.
func TestForgetsShortProcesses(t *testing.T) {
	proc := t.TempDir()
	folder := filepath.Join(proc, "7")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"stat": "7 (a) S " + strings.Repeat("0 ", 50), "environ": ""} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := observerIn(proc)
	o.contextOf(7)
	e := waits.Event{TGID: 7, End: 3e9, WaitNs: 1e6, Found: waits.Binary, Trace: [32]uint8{1}, Span: [16]uint8{1}}
	for i := range keptReads + 1 {
		if _, ok := o.settings.Join.Join(&e); !ok {
			t.Errorf("forgotten after %d readings", i)
		}
		o.follow(nil, 0)
	}
	if _, ok := o.settings.Join.Join(&e); ok || len(o.known) > 0 {
		t.Errorf("it is never forgotten: %v", o.known)
	}
}

// Processes that a selected one has started get a service and a context, too.
func TestChildrenAreJoined(t *testing.T) {
	o := observerIn(t.TempDir())
	o.follow([]waits.Open{{TGID: 7}, {TGID: 9}, {TGID: 9}}, 0)
	if got := o.withChildren([]uint32{7}); !slices.Equal(got, []uint32{7, 9}) {
		t.Errorf("%v", got)
	}
	o.settings.Children = false
	if got := o.withChildren([]uint32{7}); !slices.Equal(got, []uint32{7}) {
		t.Errorf("without children: %v", got)
	}
}

// Only intervals of the wanted classes are sent.
func TestClassesOfEvents(t *testing.T) {
	o := observerIn(t.TempDir())
	o.settings.Classes = waits.Set(0).With(waits.File)
	if got := o.target(7); got.Events != o.settings.Classes || got.Classes != o.settings.Classes {
		t.Errorf("%+v", got)
	}
}

// A process selected by ID that ends is reported, once.
func TestTellsEndedProcesses(t *testing.T) {
	o := &observer{
		settings: Settings{Selection: Selection{PIDs: []uint32{math.MaxInt32, uint32(os.Getpid())}}},
		gone:     make(map[uint32]bool),
	}
	if got := o.ended(); !slices.Equal(got, []uint32{math.MaxInt32}) {
		t.Errorf("%v", got)
	}
	if got := o.ended(); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
}

// Processes selected by name may all end and start again, for example when a service restarts.
func TestGoesOnWithoutProcesses(t *testing.T) {
	open(t, Options{}) // or skip
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("again%d", os.Getpid())
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	begin := func(seconds string) *exec.Cmd {
		c := exec.Command(program, seconds)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		return c
	}
	first := begin("60")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var second *exec.Cmd
	gone, seen := 0, false
	err = Observe(ctx, Settings{
		Selection: Selection{Comm: name}, Classes: waits.All, Interval: 300 * time.Millisecond,
	}, func(r *waits.Report) error {
		switch {
		case second == nil && gone == 0:
			_ = first.Process.Kill()
			_ = first.Wait()
			gone++
		case second == nil && len(r.Processes) == 0:
			second = begin("60")
		case second != nil && len(r.Processes) > 0:
			seen = seen || r.Processes[0].PID == uint32(second.Process.Pid)
			cancel()
		}
		return nil
	})
	if err != nil || !seen {
		t.Errorf("the process that starts later is seen: %t, %v", seen, err)
	}
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0\n": 1, "0-3\n": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("%q: %d CPUs, want %d", list, got, want)
		}
	}
}

// A process that may use only one CPU still gets the number of CPUs of the machine.
func TestCPUsOfMachine(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Skip(err)
	}
	want := CPUs()
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	if got := CPUs(); got != want || got < before.Count() {
		t.Errorf("%d CPUs, want %d", got, want)
	}
}

// Each missing right has a consequence; root lacks no right.
func TestNotes(t *testing.T) {
	if got := notesAbout(capabilitySet{1<<32 - 1, 1<<32 - 1}); len(got) > 0 {
		t.Errorf("root: %q", got)
	}
	if got := missingRights(capabilitySet{1 << unix.CAP_SYS_ADMIN, 0}); len(got) > 0 {
		t.Errorf("root lacks %q", got)
	}
	if got := missingRights(capabilitySet{0, 1 << (unix.CAP_BPF - 32)}); !slices.Equal(got, []string{"CAP_PERFMON"}) {
		t.Errorf("with CAP_BPF: %q", got)
	}
	got := strings.Join(notesAbout(capabilitySet{}), "\n")
	for _, want := range []string{
		"CAP_SYS_PTRACE is missing: the agent cannot find", "CAP_DAC_READ_SEARCH",
		"--cpu-limit counts the agent only",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
