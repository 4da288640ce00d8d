//go:build amd64 || arm64

package steer

import (
	"sync"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// sharedProbes are probes for the goroutine that reads them and for those that change their targets.
type sharedProbes struct {
	mu     sync.Mutex // guards the use of probes
	probes *kernel.Probes
}

// Apply makes a specification true.
func (p *sharedProbes) Apply(s kernel.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Apply(s)
}

// Renew lets the probes go on.
func (p *sharedProbes) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Renew()
}

// Events calls each for all intervals in the ring buffer.
func (p *sharedProbes) Events(each func(waits.Event)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Events(each)
}

// Read returns the sums and the states of threads.
func (p *sharedProbes) Read() (waits.Reading, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Read()
}

// Delete deletes sums of threads that have ended.
func (p *sharedProbes) Delete(keys []waits.Key) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Delete(keys)
}

// Stack returns the addresses of a stack.
func (p *sharedProbes) Stack(id int32) ([]uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Stack(id)
}

// Losses returns the records lost so far.
func (p *sharedProbes) Losses() (waits.Losses, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Losses()
}
