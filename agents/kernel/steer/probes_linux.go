//go:build amd64 || arm64

package steer

import (
	"sync"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// sharedProbes guards probes with a mutex, because one goroutine reads them while others change the targets.
type sharedProbes struct {
	mu     sync.Mutex // guards the use of probes
	probes *kernel.Probes
}

// Apply applies a specification; see [kernel.Probes.Apply].
func (p *sharedProbes) Apply(s kernel.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Apply(s)
}

// Renew renews the lease of the probes.
func (p *sharedProbes) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Renew()
}

// Events removes all intervals from the ring buffer and calls each for every interval.
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

// Changes returns the total number of targets that the programs have changed; see [kernel.Probes.Changes].
func (p *sharedProbes) Changes() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Changes()
}

// ForgetStacks deletes all stacks.
func (p *sharedProbes) ForgetStacks() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.ForgetStacks()
}

// Missing returns the number and total duration of the individual intervals lost since the previous call, by process,
// class and cause.
func (p *sharedProbes) Missing() (map[waits.MissingKey]waits.Missed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Missing()
}

// Losses returns the number of records lost so far.
func (p *sharedProbes) Losses() (waits.Losses, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.Losses()
}

// sharedJoiner guards a Joiner with a mutex, because it is shared by the same goroutines as sharedProbes.
type sharedJoiner struct {
	mu     sync.Mutex // guards the fields below
	joiner *join.Joiner
	used   map[uint32]int // by process ID, number of sweeps before the last use
	sweeps int
}

// Service returns the service of a process, or nil if it is unknown.
func (j *sharedJoiner) Service(pid uint32) *join.Service {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.used[pid] = j.sweeps
	return j.joiner.Service(pid)
}

// Context returns the location of the spans of a process's threads.
func (j *sharedJoiner) Context(pid uint32) (join.Context, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, _, err := j.joiner.Context(pid)
	return c, err
}

// Program returns the path of the program that a process runs, or "" if it is unknown.
func (j *sharedJoiner) Program(pid uint32) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.joiner.Program(pid)
}

// Join returns an event with its span and its service, and whether both are known.
func (j *sharedJoiner) Join(e *waits.Event) (join.Wait, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.joiner.Join(e)
}

// keptSweeps is the number of sweeps that a process is kept after its last use, because its last events arrive late.
const keptSweeps = 5

// Sweep forgets processes that have not been used for more than keptSweeps sweeps.
func (j *sharedJoiner) Sweep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweeps++
	for pid, used := range j.used {
		if j.sweeps-used > keptSweeps {
			j.joiner.Forget(pid)
			delete(j.used, pid)
		}
	}
}
