// Package kernel uses BPF programs in the Linux kernel to find out why threads of chosen processes do not run.
//
// [Probes] holds the programs. [Probes.Apply] applies a [Spec], which lists the processes to observe and the classes of
// waits to observe in each. Nothing is pinned, so the kernel removes the programs whenever the agent ends, for whatever
// reason. If the agent hangs, the programs stop observing after [Lease].
package kernel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Lease is the time that the programs keep running unless the agent renews the lease.
const Lease = 10 * time.Second

// MaxTargets is the maximum number of processes that can be observed at a time, as in bpf/wait.bpf.c.
const MaxTargets = 4096

// Target configures the observation of one process.
type Target struct {
	Classes   waits.Set // to sum up
	Events    waits.Set // to send when they exceed a threshold
	InSpans   bool      // send only events within spans that Context locates
	MaxEvents uint32    // approximate maximum per second
	Stacks    bool      // sample stacks
	Children  bool      // observe the processes that it starts, too
	Context   join.Context
}

// Spec is the desired state: targets by process ID. Programs named Comm become targets like Started when they start.
type Spec struct {
	Targets    map[uint32]Target
	Thresholds waits.Thresholds
	Comm       string // empty: none
	Started    Target
}

// Options determine the sizes and rates of the probes. Zero values select the defaults, which are given after the
// colons.
type Options struct {
	Sums        uint32        // sums by process, thread, class and system call in the kernel, at most: 65 536 (16 MB)
	RingBytes   uint32        // size of the buffer for single intervals, a power of two: 1 MiB
	StackPeriod time.Duration // minimum time between two stacks of a thread: 1 ms
	SampleRate  uint64        // stack samples per second on each CPU: 49
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
		o.SampleRate = 49 // like all profilers, not a divisor of timer frequencies
	}
	return o
}

// Settings configure [Observe].
type Settings struct {
	Selection  Selection
	Thresholds waits.Thresholds
	Classes    waits.Set
	Stacks     bool
	Children   bool          // observe the children of processes selected by ID, too
	Duration   time.Duration // if 0, until the context ends
	Interval   time.Duration // between reports; if 0, one report at the end
	Options    Options
	Join       *Join // if nil, waits are not joined to spans

	began func() // for tests: called once the processes are observed
}

// Join configures the joining of waits above a threshold to spans.
type Join struct {
	*join.Joiner
	Waits  func([]join.Wait)           // receives waits whose spans were found
	Cannot func(pid uint32, err error) // called once if the spans of a process cannot be found
}

// ErrMissing is wrapped by errors about requirements that the kernel, the machine or the capabilities of the process
// don't meet.
var ErrMissing = errors.New("the kernel agent cannot observe threads here")

// MissingError is an error that lists the requirements that are not met.
type MissingError struct {
	Reasons []string // each with the remedy
}

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s", ErrMissing, strings.Join(e.Reasons, "; "))
}

// Unwrap returns [ErrMissing].
func (e *MissingError) Unwrap() error { return ErrMissing }
