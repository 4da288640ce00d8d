package demo

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Summary summarizes demos. The slices have an element for each demo.
type Summary struct {
	Runs, Correct int
	Single        int       // demos with exactly one incident
	Remaining     int       // largest number of tracepoints that a demo left enabled for incidents
	Incidents     []float64 // number of incidents
	Opened        []float64 // seconds from the fault until the first incident opened, of demos with an incident
	Seconds       []float64 // from the fault to the answer
	Ever          []float64 // fraction of the tracepoints that were ever enabled
	Peak          []float64 // largest number of tracepoints enabled at once
	Extra         []float64 // fraction of the spans that were extra
}

// Summarize returns the summary of results.
func Summarize(results []*Result) *Summary {
	s := &Summary{Runs: len(results)}
	for _, r := range results {
		s.Correct += eval.Count(r.Correct)
		s.Single += eval.Count(len(r.Incidents) == 1)
		s.Remaining = max(s.Remaining, r.RemainingEnabled)
		s.Seconds = append(s.Seconds, r.Seconds)
		s.Peak = append(s.Peak, float64(r.EnabledPeak))
		s.Extra = append(s.Extra, r.ExtraSpans)
		s.Incidents = append(s.Incidents, float64(len(r.Incidents)))
		if len(r.Incidents) > 0 {
			s.Opened = append(s.Opened, r.Incidents[0].Seconds)
		}
		s.Ever = append(s.Ever, float64(r.EnabledEver)/float64(max(r.Tracepoints, 1)))
	}
	return s
}

// Table writes a table of demos with a row for each fault, in the order of their first results.
func Table(w io.Writer, results []*Result) error {
	var faults []shop.Fault
	byFault := make(map[shop.Fault][]*Result)
	for _, r := range results {
		if byFault[r.Fault] == nil {
			faults = append(faults, r.Fault)
		}
		byFault[r.Fault] = append(byFault[r.Fault], r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"fault\tcorrect\tincidents\tmax\topened\tlocated\tmax\tever enabled\tmax\tpeak\textra spans\tremaining\t")
	for _, f := range faults {
		s := Summarize(byFault[f])
		fmt.Fprintf(t, "%s\t%d of %d\t%.0f\t%.0f\t%s\t%.0f s\t%.0f s\t%.1f %%\t%.1f %%\t%.0f\t%.1f %%\t%d\t\n",
			f, s.Correct, s.Runs, eval.Median(s.Incidents), slices.Max(s.Incidents), s.OpenedMedian(),
			eval.Median(s.Seconds), slices.Max(s.Seconds), 100*eval.Median(s.Ever), 100*slices.Max(s.Ever),
			slices.Max(s.Peak), 100*eval.Median(s.Extra), s.Remaining)
	}
	return t.Flush()
}

// OpenedMedian returns the median of Opened as text.
func (s *Summary) OpenedMedian() string {
	if len(s.Opened) == 0 {
		return units.Unknown
	}
	return fmt.Sprintf("%.0f s", eval.Median(s.Opened))
}
