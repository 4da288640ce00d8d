//go:build amd64 || arm64

package kernel

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// costs measures the cost of running the programs. The kernel keeps run statistics only on request, for all BPF
// programs on the machine, and this slows each run. We therefore request statistics only part of the time. Other
// processes may request them at other times, so we subtract the runs counted at those times.
type costs struct {
	probes  *Probes
	keeping io.Closer // nil while no statistics are kept
	from    time.Time // when keeping started
	before  runs      // runs at that time

	begun time.Time     // when the current report started
	kept  time.Duration // time with statistics in the current report
	runs  runs          // runs in that time
	last  waits.Cost    // cost in the previous report
}

// runs holds the number and the total duration of runs of the programs.
type runs struct {
	count uint64
	time  time.Duration
}

// keep starts or stops keeping statistics. Without CAP_SYS_ADMIN, it does nothing.
func (c *costs) keep(on bool) (err error) {
	if c.begun.IsZero() {
		c.begun = time.Now()
	}
	switch {
	case on && c.keeping == nil:
		if c.keeping, err = ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)); err != nil {
			if errors.Is(err, unix.EPERM) { // needs CAP_SYS_ADMIN
				return nil
			}
			return fmt.Errorf("keep statistics of the probes: %w", err)
		}
		c.from = time.Now()
		c.before, err = c.probes.runs()
	case !on:
		return c.stop()
	}
	return err
}

// take adds the runs and the time since c.from to the current report. It does nothing while no statistics are kept.
func (c *costs) take() error {
	if c.keeping == nil {
		return nil
	}
	after, err := c.probes.runs()
	if err != nil {
		return err
	}
	now := time.Now()
	c.kept += now.Sub(c.from)
	c.runs.count += after.count - c.before.count
	c.runs.time += after.time - c.before.time
	c.from, c.before = now, after
	return nil
}

func (c *costs) stop() error {
	if c.keeping == nil {
		return nil
	}
	err := errors.Join(c.take(), c.keeping.Close())
	c.keeping = nil
	return err
}

// since returns the cost since the previous call, extrapolated from the time with statistics. If nothing was measured
// since then, it assumes the previous cost per run and share of a CPU.
func (c *costs) since() (waits.Cost, error) {
	if err := c.take(); err != nil {
		return waits.Cost{}, err
	}
	now := time.Now()
	elapsed := now.Sub(c.begun)
	if c.kept > 0 && c.runs.count > 0 {
		c.last.NsPerHit = float64(c.runs.time) / float64(c.runs.count)
		c.last.CPUShare = float64(c.runs.time) / float64(c.kept)
	}
	cost := c.last
	if cost.NsPerHit > 0 {
		cost.Hits = uint64(cost.CPUShare * float64(elapsed) / cost.NsPerHit)
	}
	c.begun, c.kept, c.runs = now, 0, runs{}
	return cost, nil
}
