package throughput

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// kernelRounds is the number of interleaved rounds of the benchmark of the kernel agent.
const kernelRounds = 21

// probing is a state of the kernel agent whose cost is measured.
type probing struct {
	name   string
	target func(own ...uint32) kernel.Spec
}

// probings lists the states. The first one has no probes.
var probings = []probing{
	{"nothing attached", func(...uint32) kernel.Spec { return kernel.Spec{} }},
	{"another process observed", func(...uint32) kernel.Spec {
		return observed(0, kernel.Target{Classes: waits.All}, 1)
	}},
	{"observed: sums", func(own ...uint32) kernel.Spec {
		return observed(0, kernel.Target{Classes: waits.All}, own...)
	}},
	{"observed: sums and stacks", func(own ...uint32) kernel.Spec {
		return observed(0, kernel.Target{Classes: waits.All, Stacks: true}, own...)
	}},
	{"observed: sums, stacks, and an event for every wait", func(own ...uint32) kernel.Spec {
		return observed(1,
			kernel.Target{Classes: waits.All, Stacks: true, Events: waits.All, MaxEvents: 1 << 30}, own...)
	}},
	{"observed: the same, and the span of every wait by goroutine labels", func(own ...uint32) kernel.Spec {
		s := observed(1, kernel.Target{Classes: waits.All, Stacks: true, Events: waits.All, MaxEvents: 1 << 30}, own...)
		t := s.Targets[own[0]] // this program; the other one is not in Go
		t.Context, _, _ = join.NewJoiner("/proc", "benchmark", "").Context(own[0])
		s.Targets[own[0]] = t
		return s
	}},
}

// observed returns the specification that makes t the target for all pids, with the same threshold for all classes.
func observed(threshold uint64, t kernel.Target, pids ...uint32) kernel.Spec {
	s := kernel.Spec{Targets: make(map[uint32]kernel.Target)}
	for _, pid := range pids {
		s.Targets[pid] = t
	}
	for c := range s.Thresholds {
		s.Thresholds[c] = threshold
	}
	return s
}

// Kernel measures the cost of the kernel agent. Two processes send a byte to and fro through pipes, which switches
// threads as often as possible. The agent is not attached, or observes another process, or observes both. These states
// alternate, so that other work on the machine affects all of them.
func Kernel(ctx context.Context, o Options) (_ *Result, err error) {
	o = o.withDefaults()
	probes, err := kernel.Open(kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, probes.Close()) }()
	p, err := newPingPong()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	rounds := kernelRounds
	if o.Small {
		rounds = 1
	}
	times := make([][]float64, len(probings))
	for range rounds {
		for i := range probings {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := probes.Apply(probings[i].target(uint32(os.Getpid()), p.pid)); err != nil {
				return nil, err
			}
			ns, err := p.play(o.Time / 5)
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], ns)
		}
	}
	return kernelResult(times), nil
}

// kernelResult returns the medians of the times, and of their ratios to the time without probes in the same round.
func kernelResult(times [][]float64) *Result {
	r := &Result{Benchmark: "kernel", Input: fmt.Sprintf("a byte to and fro through pipes between two processes on "+
		"one CPU, CPU time, medians of %d alternating rounds", len(times[0]))}
	for i := range times {
		r.add(probings[i].name, compared("round_trip_ns", times[i], times[0])...)
	}
	return r
}

// compared returns the median of the times of all rounds, and the median and the quartiles of the ratios of these times
// to the times without probes, minus 1.
func compared(name string, times, without []float64) []Value {
	ratios := make([]float64, len(times))
	for round := range ratios {
		ratios[round] = times[round] / without[round]
	}
	ns, ratio := middle(times), middle(ratios)
	return []Value{
		{name, ns, units.Nanos(ns)},
		{"added", ratio - 1, units.Percent(ratio-1) + " more"},
		{"added_p25", quarter(ratios) - 1, ""},
		{"added_p75", threeQuarters(ratios) - 1, ""},
	}
}

func middle(x []float64) float64        { return ranked(x, 2, 4) }
func quarter(x []float64) float64       { return ranked(x, 1, 4) }
func threeQuarters(x []float64) float64 { return ranked(x, 3, 4) }

// ranked returns the element at the fraction of/in of sorted x, such as the median for 2 and 4.
func ranked(x []float64, of, in int) float64 {
	sorted := slices.Sorted(slices.Values(x))
	return sorted[min(len(sorted)*of/in, len(sorted)-1)]
}
