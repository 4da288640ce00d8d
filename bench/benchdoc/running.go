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

// demos renders what `sibylbench demo` writes, a result a line: a line for each fault, and the goals below.
func demos(out []byte) (*page, error) {
	of := make(map[string][]*demo.Result)
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
		of[string(r.Fault)], all = append(of[string(r.Fault)], &r), append(all, &r)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no result")
	}
	var rows [][]string
	worst := 1.0
	for _, fault := range slices.Sorted(maps.Keys(of)) {
		s := sumOf(of[fault])
		worst = min(worst, s.right/float64(s.n))
		rows = append(rows, append([]string{"`" + fault + "`"}, s.cells()...))
	}
	s := sumOf(all)
	rows = append(rows, append([]string{"all"}, s.cells()...))
	text := table([]string{
		"fault", "right", "seconds, median", "at most", "tracepoints ever on, median", "at most", "together, at most", "extra spans, median", "left on",
	}, rows)
	text += "\n" + table(goalHeader, [][]string{
		judged("right, of all runs", s.right/float64(s.n), percent, atLeast(0.9)),
		judged("right, of the runs with the fault that is found least", worst, percent, atLeast(0.9)),
		judged("from the fault to the answer, median", median(s.seconds), seconds, atMost(90)),
		judged("tracepoints ever on in a run, at most", slices.Max(s.ever), tenths, atMost(0.15)),
		judged("tracepoints on a minute after the end, in any run", s.left, number, atMost(0)),
	})
	return &page{text: text}, nil
}

// runs sums up runs of the demo.
type runs struct {
	n                          int
	right, left                float64 // left: on at the end, at most
	seconds, ever, peak, extra []float64
}

func sumOf(results []*demo.Result) *runs {
	s := &runs{n: len(results)}
	for _, r := range results {
		if r.Correct {
			s.right++
		}
		s.left = max(s.left, float64(r.RemainingEnabled))
		s.seconds, s.peak, s.extra = append(s.seconds, r.Seconds), append(s.peak, float64(r.EnabledPeak)), append(s.extra, r.ExtraSpans)
		s.ever = append(s.ever, float64(r.EnabledEver)/float64(max(r.Tracepoints, 1)))
	}
	return s
}

func (s *runs) cells() []string {
	return []string{
		fmt.Sprintf("%.0f of %d", s.right, s.n), fmt.Sprintf("%.0f", median(s.seconds)), fmt.Sprintf("%.0f", slices.Max(s.seconds)),
		tenths(median(s.ever)), tenths(slices.Max(s.ever)), fmt.Sprintf("%.0f", slices.Max(s.peak)), percent(median(s.extra)), fmt.Sprintf("%.0f", s.left),
	}
}

// median returns the median of figures; NaN if there are none.
func median(of []float64) float64 { return float64(eval.Median(of)) }

// overheadGoal is the least throughput with adaptive, to that with nothing on.
const overheadGoal = 0.98

// overhead renders what `sibylbench overhead` writes: a line for each selection.
func overhead(out []byte) (*page, error) {
	var o demo.Overhead
	if err := json.Unmarshal(out, &o); err != nil {
		return nil, err
	}
	verdict := units.Unknown
	var ratio demo.Compared
	var rows [][]string
	for _, l := range o.Loads {
		rows = append(rows, []string{
			string(l.On), fmt.Sprint(l.Tracepoints), fmt.Sprintf("%.1f", l.ExtraSpans),
			fmt.Sprintf("%.0f", l.Throughput.Median), compared(&l.Throughput, l.On), fmt.Sprintf("%.0f ms", l.P99.Median), compared(&l.P99, l.On),
			fmt.Sprintf("%.1f ms", l.CPU.Median), compared(&l.CPU, l.On),
		})
		if l.On == demo.Adaptive {
			ratio, verdict = l.Throughput, within(&l.Throughput)
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("it has no selection")
	}
	text := table([]string{
		"on", "tracepoints", "extra spans a request", "requests/s", "to none", "P99", "to none", "CPU of the shop a request", "to none",
	}, rows)
	text += "\n" + table(goalHeader, [][]string{
		{"throughput with adaptive, to none", compared(&ratio, demo.Adaptive), fmt.Sprintf("≥ %.2f", overheadGoal), verdict},
	})
	input := fmt.Sprintf("%d customers who do not think; %d rounds of %.0f s; adaptive is what a search for %s (seed %d) had on at most",
		o.Customers, o.Rounds, o.Seconds, o.Fault, o.Seed)
	return &page{input: input, text: text}, nil
}

// within says whether the interval of a ratio keeps the goal.
func within(c *demo.Compared) string {
	switch {
	case math.IsNaN(c.Ratio) || c.Ratio == 0:
		return units.Unknown
	case c.Low >= overheadGoal:
		return "yes"
	case c.High < overheadGoal:
		return "**no**"
	}
	return "open: the interval holds the goal"
}

func compared(c *demo.Compared, on demo.Selection) string {
	if on == demo.Nothing {
		return "1"
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", c.Ratio, c.Low, c.High)
}
