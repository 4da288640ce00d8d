//go:build linux && (amd64 || arm64)

package kernel

import (
	"strconv"
	"strings"
	"testing"

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
