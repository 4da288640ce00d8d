//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// A thread that runs another program takes the number of the first thread of its process. Its time on CPUs before and
// after is neither lost nor counted twice.
func TestExecOnAnotherThread(t *testing.T) {
	p := open(t, Options{})
	w := start(t, "exec")
	l := waits.NewLedger(waits.Thresholds{}, waits.All)
	var onCPU uint64
	read := func() {
		r, err := p.Read()
		if err != nil {
			t.Fatal(err)
		}
		changes, ended := l.Update(r)
		for i := range changes {
			if changes[i].Class == waits.OnCPU {
				onCPU += changes[i].TotalNs
			}
		}
		if err := p.Delete(ended); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, p, w.pid, everything, waits.Thresholds{})
	read()
	w.goOn()
	text := w.line()
	read()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	read()
	used, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// The process also used CPUs before it was observed, and after it wrote the line.
	if onCPU < 400e6 || onCPU > used+100e6 {
		t.Errorf("%d ms on CPUs; the process counts %d ms, of which it computed for 400", onCPU/1e6, used/1e6)
	}
}

// Processes selected by name are observed from the start of their program, however short they are, and even if none
// runs when the observation starts.
func TestProcessesFromTheirStart(t *testing.T) {
	open(t, Options{}) // or skip
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("short%d", os.Getpid())
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	const processes = 8
	began := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		<-began
		for range processes {
			if err := exec.Command(program, "0.1").Run(); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	var report *waits.Report
	err = Observe(t.Context(), Settings{
		Selection: Selection{Comm: name}, Classes: waits.All, Duration: 4 * time.Second,
		began: func() { close(began) },
	}, func(r *waits.Report) error {
		report = r
		return nil
	})
	if err != nil || <-failed != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range report.Processes {
		if p := &report.Processes[i]; p.Totals[waits.Sleep].TotalNs >= 100e6 && p.Totals[waits.OnCPU].TotalNs > 0 {
			seen++
		}
	}
	if seen != processes {
		t.Errorf("%d of %d processes were observed throughout", seen, processes)
	}
}
