//go:build amd64 || arm64

package kernel

import "github.com/sibyl-trace/sibyl/agents/kernel/waits"

// Meter measures the cost of probes. It needs CAP_SYS_ADMIN; without this capability, it reports a cost of 0.
type Meter struct{ costs }

// NewMeter returns a Meter for p. It measures nothing until Keep is called.
func NewMeter(p *Probes) *Meter { return &Meter{costs{probes: p}} }

// Keep starts or stops the kernel's run statistics. Statistics have a cost, too, so keep them only part of the time.
func (m *Meter) Keep(on bool) error { return m.keep(on) }

// Since returns the cost since the previous call, extrapolated from the time with statistics.
func (m *Meter) Since() (waits.Cost, error) { return m.since() }

// Close ends the measurement.
func (m *Meter) Close() error { return m.stop() }
