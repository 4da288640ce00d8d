//go:build amd64 || arm64

package kernel

import "github.com/sibyl-trace/sibyl/agents/kernel/waits"

// Meter measures the cost of probes. It needs CAP_SYS_ADMIN. Without this capability, the cost is 0.
type Meter struct{ costs }

// NewMeter returns a meter of p that does not measure yet.
func NewMeter(p *Probes) *Meter { return &Meter{costs{probes: p}} }

// Keep starts or stops keeping statistics of runs in the kernel. They have a cost, too, so keep them only part of the
// time.
func (m *Meter) Keep(on bool) error { return m.keep(on) }

// Since returns the cost since the previous call, estimated from the measured parts of the time.
func (m *Meter) Since() (waits.Cost, error) { return m.since() }

// Close ends the measurement.
func (m *Meter) Close() error { return m.stop() }
