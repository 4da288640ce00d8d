package demo

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// Table writes what came out of several demos, a line for each fault in the order of the first of its results.
func Table(w io.Writer, results []*Result) error {
	var faults []shop.Fault
	of := make(map[shop.Fault][]*Result)
	for _, r := range results {
		if of[r.Fault] == nil {
			faults = append(faults, r.Fault)
		}
		of[r.Fault] = append(of[r.Fault], r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fault\tright\tseconds\tat most\tever on\tat most\ttogether\textra spans\tleft on\t")
	for _, f := range faults {
		writeScores(t, f, of[f])
	}
	return t.Flush()
}

// writeScores writes the line of one fault: medians, and the worst.
func writeScores(w io.Writer, f shop.Fault, results []*Result) {
	right, left := 0, 0
	var seconds, ever, peak, extra []float64
	for _, r := range results {
		if r.Correct {
			right++
		}
		left = max(left, r.RemainingEnabled)
		seconds, peak, extra = append(seconds, r.Seconds), append(peak, float64(r.EnabledPeak)), append(extra, r.ExtraSpans)
		ever = append(ever, float64(r.EnabledEver)/float64(max(r.Tracepoints, 1)))
	}
	fmt.Fprintf(w, "%s\t%d of %d\t%.0f\t%.0f\t%.1f %%\t%.1f %%\t%.0f\t%.1f %%\t%d\t\n", f, right, len(results),
		lowerMedian(seconds), slices.Max(seconds), 100*lowerMedian(ever), 100*slices.Max(ever), slices.Max(peak), 100*lowerMedian(extra), left)
}

// lowerMedian returns the median of numbers, of an even number the lower of the middle two: one of those measured.
func lowerMedian(of []float64) float64 { return slices.Sorted(slices.Values(of))[(len(of)-1)/2] }
