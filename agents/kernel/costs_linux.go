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

// costs measures the runs of the programs. The kernel keeps statistics of runs only on request, for all programs of the
// machine, and they add to each run; so they are kept for parts of the time.
type costs struct {
	probes  *Probes
	keeping io.Closer // nil: not now
	from    time.Time // since when
	kept    time.Duration

	begun time.Time // of the present report
	count uint64    // at its begin
	total time.Duration
}

// keep begins or ends to keep statistics.
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
	case !on:
		return c.stop()
	}
	return nil
}

func (c *costs) stop() error {
	if c.keeping == nil {
		return nil
	}
	c.kept += time.Since(c.from)
	err := c.keeping.Close()
	c.keeping = nil
	return err
}

// since returns the cost since the previous call.
func (c *costs) since() (waits.Cost, error) {
	count, total, err := c.probes.Runs()
	if err != nil {
		return waits.Cost{}, err
	}
	now := time.Now()
	if c.keeping != nil {
		c.kept += now.Sub(c.from)
		c.from = now
	}
	elapsed, runs, ran := now.Sub(c.begun), count-c.count, total-c.total
	cost := waits.Cost{}
	if c.kept > 0 && runs > 0 {
		cost.Hits = uint64(float64(runs) * float64(elapsed) / float64(c.kept))
		cost.NsPerHit = float64(ran) / float64(runs)
		cost.CPUShare = float64(ran) / float64(c.kept)
	}
	c.begun, c.count, c.total, c.kept = now, count, total, 0
	return cost, nil
}
