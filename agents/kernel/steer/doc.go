// Package steer lets Sibyl control the observation by the kernel agent. It announces each class of waits of each
// service on this machine as a tracepoint of layer kernel, turns plans into targets of the probes, and reports hits
// and costs.
//
// The kernel cannot select a thread's waits by request. The probes therefore pass on the waits of a process if any arm
// of the plan enables their class, and the agent then selects waits by trace ID, as all agents do.
//
// The agent observes less while it costs more than its limit: see [level].
package steer

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Settings of a steered agent.
type Settings struct {
	Endpoint  string // URL of Sibyl's API for agents
	Token     string // bearer token; may be empty
	ID        string // unique ID of this agent
	Host      string // name of this machine
	Selection kernel.Selection
	// Everything selects all processes that name their service, instead of Selection.
	Everything bool
	Service    string           // service of selected processes that don't name theirs; if empty, they are not observed
	Thresholds waits.Thresholds // minimum durations of individual waits to send; 0: send no waits of the class
	Stacks     bool
	CPULimit   float64 // share of the machine's CPUs that probes and agent may use together; 0 means no limit
	Options    kernel.Options
	Send       func([]join.Wait) // sends waits as spans
	// Unsent returns the number of waits that could not be sent since the previous call, by tracepoint. It may be nil.
	Unsent func() map[string]uint64
	Client *http.Client
	Logger *slog.Logger
}

// DefaultCPULimit is the default for [Settings.CPULimit]. It is a share of all CPUs because the probes run on each of
// them.
const DefaultCPULimit = 0.01

// StackPeriod is the default time between two stacks of a thread. Sampling a stack costs several times as much as
// recording a wait, and the stacks of a few of a problem's many waits are enough to show the cause.
const StackPeriod = 20 * time.Millisecond

// Threshold is the default minimum duration of individual waits to send. It is short, because Sibyl enables few classes
// at a time. Shorter waits of the same span and class are added up until they reach the threshold.
const Threshold = 100 * time.Microsecond

// DefaultThresholds returns the default minimum durations of individual waits to send, by class.
func DefaultThresholds() (t waits.Thresholds) {
	for class := range t {
		t[class] = uint64(Threshold)
	}
	return t
}

// Intervals of the loop.
const (
	tick       = 200 * time.Millisecond // between readings of the ring buffer
	scanTicks  = 5                      // between searches for processes, and readings of sums
	judgeTicks = 25                     // between judgements of the cost, which is measured in only one of these ticks
)
