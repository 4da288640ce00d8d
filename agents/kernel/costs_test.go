//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// The cost excludes runs while the agent doesn't measure, even if others make the kernel count them.
func TestCostOfMeasuredTime(t *testing.T) {
	p := open(t, Options{})
	apply(t, p, uint32(os.Getpid()), everything, waits.Thresholds{}) // the probes run on all switches of the machine
	m := NewMeter(p)
	if err := m.Keep(false); err != nil {
		t.Fatal(err)
	}
	others, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Skip(err)
	}
	waitForRuns := func() {
		before, err := p.runs()
		for after := before; err == nil && after.count < before.count+100; after, err = p.runs() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	waitForRuns()
	if err := others.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := m.Since(); err != nil || c != (waits.Cost{}) {
		t.Errorf("unmeasured: %+v, %v", c, err)
	}
	if err := m.Keep(true); err != nil {
		t.Fatal(err)
	}
	waitForRuns()
	if c, err := m.Since(); err != nil || c.Hits < 100 || c.NsPerHit <= 0 || c.CPUShare <= 0 {
		t.Errorf("measured: %+v, %v", c, err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
