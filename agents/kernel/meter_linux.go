//go:build amd64 || arm64

package kernel

import "github.com/sibyl-trace/sibyl/agents/kernel/waits"

// Meter measures the cost of probes. It needs CAP_SYS_ADMIN; without, the cost is 0.
type Meter struct{ costs }

// NewMeter returns a meter of p that does not measure yet.
func NewMeter(p *Probes) *Meter { return &Meter{costs{probes: p}} }

// Keep begins or ends a part of the time in which the kernel keeps statistics of runs, which cost, too.
func (m *Meter) Keep(on bool) error { return m.keep(on) }

// Since returns the cost since the previous call, estimated from the measured parts of the time.
func (m *Meter) Since() (waits.Cost, error) { return m.since() }

// Close ends the measurement.
func (m *Meter) Close() error { return m.stop() }
