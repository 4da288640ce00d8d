package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Strategies with goals.
const (
	ours  = "adaptive"
	plain = "hierarchical"
)

// localized renders the output of `sibylbench localize`: a row for each strategy, the goals, the faults with our
// strategy, and a plot.
func localized(out []byte) (*content, error) {
	r, err := readReport(out)
	if err != nil {
		return nil, err
	}
	names := strategies(r)
	text := strategyTable(r, names) + "\n" + goalTable(r) + "\n`" + ours + "`, by fault:\n\n" +
		faultTable(r.Strategies[ours])
	return &content{text: text, plot: strategyPlot(r, names)}, nil
}

// localizedSmall renders the strategies and the goals only.
func localizedSmall(out []byte) (*content, error) {
	r, err := readReport(out)
	if err != nil {
		return nil, err
	}
	return &content{text: strategyTable(r, strategies(r)) + "\n" + goalTable(r)}, nil
}

func readReport(out []byte) (*eval.Report, error) {
	r := &eval.Report{}
	if err := json.Unmarshal(out, r); err != nil {
		return nil, err
	}
	if r.Strategies[ours] == nil {
		return nil, errors.New("it has no strategy " + ours)
	}
	return r, nil
}

// strategies returns the names of the strategies, ours first.
func strategies(r *eval.Report) []string {
	names := slices.Sorted(maps.Keys(r.Strategies))
	i := slices.Index(names, ours)
	return append([]string{ours}, slices.Delete(names, i, i+1)...)
}

var scoreHeader = []string{
	"locatable", "first (95 %)", "in three", "raised", "ever enabled", "peak", "extra spans", "epochs",
}

func scoreCells(s *eval.Score) []string {
	none := units.Unknown
	if s.Locatable == 0 {
		return []string{fmt.Sprintf("0 of %d", s.Cases), none, none, none, none, none, none, none}
	}
	return []string{
		fmt.Sprintf("%d of %d", s.Locatable, s.Cases),
		fmt.Sprintf("%s (%s)", percent(float64(s.Top1)), units.Range(float64(s.Top1Low), float64(s.Top1High))),
		percent(float64(s.Top3)), percent(float64(s.Raised)), tenths(float64(s.EnabledMedian)),
		tenths(float64(s.PeakMedian)),
		units.Count(int(math.Round(float64(s.SpanHitsMedian)))), number(float64(s.EpochsMedian)),
	}
}

func strategyTable(r *eval.Report, names []string) string {
	var rows [][]string
	for _, name := range names {
		rows = append(rows, append([]string{"`" + name + "`"}, scoreCells(r.Strategies[name])...))
	}
	return table(append([]string{"strategy"}, scoreHeader...), rows)
}

func faultTable(s *eval.Score) string {
	var rows [][]string
	for _, fault := range slices.Sorted(maps.Keys(s.ByFault)) {
		rows = append(rows, append([]string{fault}, scoreCells(s.ByFault[fault])...))
	}
	return table(append([]string{"fault"}, scoreHeader...), rows)
}

func goalTable(r *eval.Report) string {
	s := r.Strategies[ours]
	rows := [][]string{
		goalRow("first, of the locatable", float64(s.Top1), percent, atLeast(0.95)),
		goalRow("in three", float64(s.Top3), percent, atLeast(0.99)),
		goalRow("tracepoints ever enabled, median", float64(s.EnabledMedian), tenths, atMost(0.02)),
		goalRow("epochs from alarm to answer, median", float64(s.EpochsMedian), number, atMost(5)),
		goalRow("false alarms in 1 000 group-hours, of "+units.Count(int(math.Round(s.GroupHours))),
			float64(s.FalseAlarms), number, atMost(1)),
	}
	if s.Watched > 0 {
		rows = append(rows, goalRow("false incidents in a week, by "+units.Plural(int(math.Round(s.Watched)), "hour"),
			float64(s.FalseIncidents), number, atMost(2)))
	}
	if p := r.Strategies[plain]; p != nil {
		rows = append(rows, goalRow("extra spans relative to `"+plain+"`", float64(s.SpanHitsMedian/p.SpanHitsMedian),
			times, atMost(1)))
	}
	rows = append(rows,
		goalRow("faults on which another strategy is significantly better", float64(beaten(r)), number, atMost(0)))
	return table(append([]string{"`" + ours + "`"}, goalHeader[1:]...), rows)
}

// beaten counts the faults for which the interval of another strategy lies above ours.
func beaten(r *eval.Report) int {
	n := 0
	for fault, s := range r.Strategies[ours].ByFault {
		for _, other := range r.Strategies {
			if o := other.ByFault[fault]; o != nil && o.Top1Low > s.Top1High { // false if either is NaN
				n++
				break
			}
		}
	}
	return n
}

// strategyPlot plots the accuracy and the cost of the strategies.
func strategyPlot(r *eval.Report, names []string) []byte {
	found := panel{title: "ranked first, % (95 %)", top: 100}
	spent := panel{title: "extra spans per 1 000 requests, median", bars: true}
	epochs := panel{title: "epochs from alarm to answer, median", bars: true}
	for _, name := range names {
		s := r.Strategies[name]
		found.values = append(found.values,
			interval{100 * float64(s.Top1), 100 * float64(s.Top1Low), 100 * float64(s.Top1High)})
		spent.values = append(spent.values, exactly(float64(s.SpanHitsMedian)))
		epochs.values = append(epochs.values, exactly(float64(s.EpochsMedian)))
	}
	title := fmt.Sprintf("Accuracy and cost of the strategies on %d locatable simulated faults",
		r.Strategies[ours].Locatable)
	return plot(title, names, found, spent, epochs)
}
