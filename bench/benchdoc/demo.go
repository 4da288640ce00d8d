package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// demos renders the output of `sibylbench demo`, one result per line, as a row for each fault, followed by the goals.
func demos(out []byte) (*content, error) {
	byFault := make(map[string][]*demo.Result)
	var all []*demo.Result
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var r demo.Result
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if r.Fault == "" {
			return nil, errors.New("it has a result without a fault")
		}
		byFault[string(r.Fault)], all = append(byFault[string(r.Fault)], &r), append(all, &r)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no result")
	}
	var rows [][]string
	worst := 1.0
	for _, fault := range slices.Sorted(maps.Keys(byFault)) {
		s := demo.Summarize(byFault[fault])
		worst = min(worst, fractionCorrect(s))
		rows = append(rows, append([]string{"`" + fault + "`"}, demoCells(s)...))
	}
	s := demo.Summarize(all)
	rows = append(rows, append([]string{"all"}, demoCells(s)...))
	text := table([]string{
		"fault", "correct", "incidents, median", "max", "opened, median", "located, median", "max",
		"tracepoints ever enabled, median", "max", "peak, max", "extra spans, median", "remaining",
	}, rows)
	text += "\n" + table(goalHeader, [][]string{
		goalRow("correct, all runs", fractionCorrect(s), percent, atLeast(0.9)),
		goalRow("correct, worst fault", worst, percent, atLeast(0.9)),
		goalRow("exactly one incident", float64(s.Single)/float64(s.Runs), percent, atLeast(0.9)),
		goalRow("from the fault to the answer, median", float64(eval.Median(s.Seconds)), seconds, atMost(180)),
		goalRow("tracepoints ever enabled in a run, max", slices.Max(s.Ever), tenths, atMost(0.15)),
		goalRow("tracepoints enabled a minute after the end, max", float64(s.Remaining), number, atMost(0)),
	})
	return &content{text: text}, nil
}

// demoCells returns the table cells of a summary.
func demoCells(s *demo.Summary) []string {
	median := func(xs []float64) float64 { return float64(eval.Median(xs)) }
	return []string{
		fmt.Sprintf("%d of %d", s.Correct, s.Runs), fmt.Sprintf("%.0f", median(s.Incidents)),
		fmt.Sprintf("%.0f", slices.Max(s.Incidents)), s.OpenedMedian(),
		fmt.Sprintf("%.0f s", median(s.Seconds)), fmt.Sprintf("%.0f s", slices.Max(s.Seconds)),
		tenths(median(s.Ever)), tenths(slices.Max(s.Ever)), fmt.Sprintf("%.0f", slices.Max(s.Peak)),
		percent(median(s.Extra)), fmt.Sprint(s.Remaining),
	}
}

func fractionCorrect(s *demo.Summary) float64 { return float64(s.Correct) / float64(s.Runs) }

// overheadGoal is the minimum throughput with the adaptive selection, relative to the throughput without tracepoints.
const overheadGoal = 0.98

// overhead renders the output of `sibylbench overhead`, a row for each selection of tracepoints.
func overhead(out []byte) (*content, error) {
	var o demo.Overhead
	if err := json.Unmarshal(out, &o); err != nil {
		return nil, err
	}
	met := units.Unknown
	var ratio demo.Compared
	var rows [][]string
	for _, l := range o.Loads {
		rows = append(rows, []string{
			string(l.On), fmt.Sprint(l.Tracepoints), fmt.Sprintf("%.1f", l.ExtraSpans),
			fmt.Sprintf("%.0f", l.Throughput.Median), compared(&l.Throughput, l.On),
			fmt.Sprintf("%.0f ms", l.P99.Median), compared(&l.P99, l.On),
			fmt.Sprintf("%.1f ms", l.CPU.Median), compared(&l.CPU, l.On),
		})
		if l.On == demo.Adaptive {
			ratio, met = l.Throughput, overheadMet(&l.Throughput)
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("it has no selection")
	}
	text := table([]string{
		"enabled", "tracepoints", "extra spans per request", "requests/s", "ratio to none", "P99", "ratio to none",
		"shop CPU per request", "ratio to none",
	}, rows)
	text += "\n" + table(goalHeader, [][]string{
		{
			"throughput with adaptive, ratio to none",
			compared(&ratio, demo.Adaptive), fmt.Sprintf("≥ %.2f", overheadGoal), met,
		},
	})
	input := fmt.Sprintf("%d customers without think time; %d rounds of %.0f s; "+
		"adaptive is the largest plan of a search for %s (seed %d)",
		o.Customers, o.Rounds, o.Seconds, o.Fault, o.Seed)
	return &content{input: input, text: text}, nil
}

// overheadMet returns the table cell for whether the whole interval of a ratio meets overheadGoal.
func overheadMet(c *demo.Compared) string {
	switch {
	case math.IsNaN(c.Ratio) || c.Ratio == 0:
		return units.Unknown
	case c.Low >= overheadGoal:
		return "yes"
	case c.High < overheadGoal:
		return "**no**"
	}
	return "inconclusive: the interval includes the goal"
}

// compared returns the table cell for a ratio with its interval, or "1" for demo.Nothing, which all others are compared
// with.
func compared(c *demo.Compared, on demo.Selection) string {
	if on == demo.Nothing {
		return "1"
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", c.Ratio, c.Low, c.High)
}
