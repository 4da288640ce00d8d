// Package kernel observes why threads of chosen processes do not run, with BPF programs in the kernel of Linux.
//
// [Probes] hold the programs. [Probes.Apply] makes a [Spec] true: which classes of which processes are observed.
// Nothing is pinned, so the kernel removes the programs when the agent ends, however it ends. The programs observe
// nothing once an agent that hangs has not renewed them for [Lease].
package kernel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Lease is the time after which the programs stop unless the agent renews them.
const Lease = 10 * time.Second

// MaxTargets is the number of processes that can be observed at a time, as in bpf/wait.bpf.c.
const MaxTargets = 4096

// Target selects parts of the observation of one process.
type Target struct {
	Classes   waits.Set // to sum up
	Events    waits.Set // to send when they exceed a threshold
	InSpans   bool      // send only those of spans that Context locates
	MaxEvents uint32    // per second, about
	Stacks    bool      // sample stacks
	Children  bool      // observe processes that it starts, too, in the same way
	Context   join.Context
}

// Spec is the wanted state: targets by process ID.
type Spec struct {
	Targets    map[uint32]Target
	Thresholds waits.Thresholds
}

// Options size the probes; zero values select the defaults.
type Options struct {
	Sums        uint32        // sums of (process, thread, class, system call) kept in the kernel: 65 536, 16 MB
	RingBytes   uint32        // of the buffer of single intervals, a power of two: 1 MiB
	StackPeriod time.Duration // each thread's stack is taken at most once in this time: 1 ms
	SampleRate  uint64        // samples per second of stacks on each CPU: 49
}

func (o Options) withDefaults() Options {
	if o.Sums == 0 {
		o.Sums = 1 << 16
	}
	if o.RingBytes == 0 {
		o.RingBytes = 1 << 20
	}
	if o.StackPeriod == 0 {
		o.StackPeriod = time.Millisecond
	}
	if o.SampleRate == 0 {
		o.SampleRate = 49 // not a divisor of the frequency of timers, like all profilers
	}
	return o
}

// Settings of an observation.
type Settings struct {
	Selection  Selection
	Thresholds waits.Thresholds
	Classes    waits.Set
	Stacks     bool
	Children   bool          // of selected process IDs, too
	Duration   time.Duration // 0: until the context ends
	Interval   time.Duration // between reports; 0: one at the end
	Options    Options
	Join       *Join // nil: waits are not joined to spans

	began func() // of tests: called once the processes are observed
}

// Join finds the spans of waits above a threshold.
type Join struct {
	*join.Joiner
	Waits  func([]join.Wait)           // takes those whose spans have been found
	Cannot func(pid uint32, err error) // takes the reason for which those of a process cannot be found, once
}

// ErrMissing is wrapped by errors about a missing requirement of the kernel, the machine or the rights of the process.
var ErrMissing = errors.New("the kernel agent cannot observe threads here")

// MissingError lists the requirements that are not met.
type MissingError struct {
	Reasons []string // each with the remedy
}

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s", ErrMissing, strings.Join(e.Reasons, "; "))
}

// Unwrap returns [ErrMissing].
func (e *MissingError) Unwrap() error { return ErrMissing }
