package demo

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/eval"
)

// Places are the results of searches in running programs.
type Places struct {
	Runs []Place `json:"runs"`
}

// Place is the result of the search for one fault.
type Place struct {
	Program  string     `json:"program"`
	Fault    shop.Fault `json:"fault"`
	Strategy string     `json:"strategy"`
	First    bool       `json:"first"` // the right place is the first suspect
	// Seconds is the time from the opening of the fault's incident to its place: 0 if the incident opened with it, null
	// if it did not open or was not located.
	Seconds     *float64 `json:"seconds_from_incident"`
	Offered     int      `json:"offered"`
	EverEnabled int      `json:"ever_enabled"`
	ExtraSpans  float64  `json:"extra_spans_share"` // of all spans since the fault
	LeftEnabled int      `json:"left_enabled"`      // for incidents, a minute after the place was found
}

// PlaceOf converts the result of a demo to the result of a search in a program.
func PlaceOf(program, strategy string, r *Result) Place {
	p := Place{
		Program:     program,
		Fault:       r.Fault,
		Strategy:    strategy,
		First:       r.Correct,
		Offered:     r.Tracepoints,
		EverEnabled: r.EnabledEver,
		ExtraSpans:  r.ExtraSpans,
		LeftEnabled: r.RemainingEnabled,
	}
	for i := range r.Incidents {
		if x := &r.Incidents[i]; r.Located && x.OfFault && x.Seconds > 0 {
			p.Seconds = new(max(0, r.Seconds-x.Seconds))
			break
		}
	}
	return p
}

// Table writes a row for each program and strategy, in the order of their first runs.
func (p *Places) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "program\tstrategy\tfirst\tfrom incident\tmax\tever enabled\tmax\textra spans\tmax\tleft\t")
	type row struct{ program, strategy string }
	var rows []row
	runs := make(map[row][]*Place)
	for i := range p.Runs {
		x := &p.Runs[i]
		r := row{x.Program, x.Strategy}
		if runs[r] == nil {
			rows = append(rows, r)
		}
		runs[r] = append(runs[r], x)
	}
	for _, r := range rows {
		var seconds, ever, extra []float64
		first, left := 0, 0
		for _, x := range runs[r] {
			first += eval.Count(x.First)
			left = max(left, x.LeftEnabled)
			ever = append(ever, 100*float64(x.EverEnabled)/float64(max(x.Offered, 1)))
			extra = append(extra, 100*x.ExtraSpans)
			if x.Seconds != nil {
				seconds = append(seconds, *x.Seconds)
			}
		}
		if len(seconds) == 0 {
			seconds = append(seconds, 0)
		}
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%.0f s\t%.0f s\t%.1f %%\t%.1f %%\t%.1f %%\t%.1f %%\t%d\t\n",
			r.program, r.strategy, first, len(runs[r]), eval.Median(seconds), slices.Max(seconds),
			eval.Median(ever), slices.Max(ever), eval.Median(extra), slices.Max(extra), left)
	}
	return t.Flush()
}
