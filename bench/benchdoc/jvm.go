package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// jvm renders the output of `sibylbench jvm`: the arms by phase, the runs, and the goals.
func jvm(out []byte) (*content, error) {
	var r demo.JVMReport
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	if len(r.Phases) == 0 || len(r.Runs) == 0 {
		return nil, errors.New("it has no run")
	}
	var rows [][]string
	cpu, p50 := units.Unknown, units.Unknown
	cpuMet, p50Met := units.Unknown, units.Unknown
	for _, p := range r.Phases {
		for _, a := range p.Arms {
			rows = append(rows, append([]string{
				string(p.Phase), "`" + string(a.Arm) + "`", fmt.Sprint(a.Requests), fmt.Sprintf("%.1f", a.Spans),
			}, armCells(a)...))
			if p.Phase == demo.Healthy && a.Arm == demo.SteeredAgent {
				cpu, cpuMet = ratioCell(&a.CPU), notWorse(&a.CPU)
				p50, p50Met = ratioCell(&a.P50), notWorse(&a.P50)
			}
		}
	}
	text := table([]string{
		"phase", "agents", "requests", "spans per request", "CPU per request", "ratio", "P50", "ratio", "P95", "ratio",
	}, rows)
	text += "\n" + table([]string{
		"fault", "seed", "answer", "correct", "time", "enabled before", "with the fault, peak", "after", "at the end",
	}, runRows(r.Runs))
	remaining := 0
	for _, x := range r.Runs {
		remaining = max(remaining, x.RemainingEnabled)
	}
	text += "\n" + table(goalHeader, [][]string{
		{
			"CPU per request, `adaptive` while all is well, ratio to OpenTelemetry's agent",
			cpu, fmt.Sprintf("≤ %.2f", notWorseGoal), cpuMet,
		},
		{"P50, the same", p50, fmt.Sprintf("≤ %.2f", notWorseGoal), p50Met},
		goalRow("runs in which the method at fault is located", float64(r.Located())/float64(len(r.Runs)),
			percent, atLeast(0.9)),
		goalRow("tracepoints enabled for incidents at the end, max", float64(remaining), number, atMost(0)),
	})
	input := fmt.Sprintf("%d customers, %s, windows of %.0f s", r.Customers, units.Plural(len(r.Runs), "run"), r.Window)
	return &content{input: input, text: text}, nil
}

// armCells returns the table cells for an arm's figures.
func armCells(a *demo.JVMArms) []string {
	cells := []string{
		fmt.Sprintf("%.2f ms", a.CPU.Median), ratioCell(&a.CPU), fmt.Sprintf("%.1f ms", a.P50.Median),
		ratioCell(&a.P50), fmt.Sprintf("%.1f ms", a.P95.Median), ratioCell(&a.P95),
	}
	if a.Arm == demo.OpenTelemetry {
		cells[1], cells[3], cells[5] = "1", "1", "1"
	}
	return cells
}

// runRows returns a row for each run.
func runRows(runs []*demo.JVMRun) (rows [][]string) {
	for _, x := range runs {
		answer, correct := units.Unknown, "**no**"
		if x.Edge != nil {
			answer = "`" + x.Edge.String() + "`"
		}
		if x.Correct {
			correct = "yes"
		}
		rows = append(rows, []string{
			"`" + string(x.Fault) + "`", fmt.Sprint(x.Seed), answer, correct, fmt.Sprintf("%.0f s", x.Seconds),
			fmt.Sprint(x.Applied[demo.Search]), fmt.Sprint(x.Applied[demo.Faulty]), fmt.Sprint(x.Applied[demo.After]),
			fmt.Sprint(x.AtEnd),
		})
	}
	return rows
}

// ratioCell returns the table cell of a ratio with its interval.
func ratioCell(c *demo.Compared) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", c.Ratio, c.Low, c.High)
}

// notWorseGoal is the largest ratio to OpenTelemetry's agent that counts as not worse.
const notWorseGoal = 1.05

// notWorse returns the table cell for whether the whole interval of a ratio meets notWorseGoal.
func notWorse(c *demo.Compared) string {
	switch {
	case math.IsNaN(c.Ratio) || c.Ratio == 0:
		return units.Unknown
	case c.High <= notWorseGoal:
		return "yes"
	case c.Low > notWorseGoal:
		return "**no**"
	}
	return "inconclusive: the interval includes the goal"
}
