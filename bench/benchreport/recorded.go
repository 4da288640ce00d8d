package benchreport

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// JSON writes v as indented JSON.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// RecordedTable writes a report for terminals: a row for each kind of fault, then a row for each case.
func RecordedTable(w io.Writer, r *recorded.Report) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "fault\tcases\tfirst\tin three\tin five")
	for _, fault := range slices.Sorted(maps.Keys(r.ByFault)) {
		s := r.ByFault[fault]
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n",
			terminal.Printable(fault), s.Cases, units.Percent(s.Top1), units.Percent(s.Top3), units.Percent(s.Top5))
	}
	fmt.Fprintf(t, "all\t%d\t%s\t%s\t%s\n",
		len(r.Cases), units.Percent(r.Top1), units.Percent(r.Top3), units.Percent(r.Top5))
	fmt.Fprintln(t)
	fmt.Fprintln(t, "rank\tcase\tlabelled\tfirst suspect\tscore\town\tin\tout\tshape")
	for i := range r.Cases {
		recordedLine(t, &r.Cases[i])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	out.WriteString(`
Scores are per request: extra time in mean durations of normal requests, plus the fraction of requests with a changed shape. own: in
the service itself; in: on the way into it; out: on the ways to its callees; shape: errors, missing or new calls.
`)
	told(&out, r)
	_, err := io.WriteString(w, out.String())
	return err
}

// told writes the results of the localiser, which knows the window, and of backtests.
func told(out *strings.Builder, r *recorded.Report) {
	fmt.Fprintf(out, "\ntold     first %s, among three %s of %s\n",
		units.Percent(r.Top1), units.Percent(r.Top3), units.Plural(len(r.Cases), "case"))
	if s := r.Noticed; s != nil {
		fmt.Fprintf(out, "noticed  raised %s, first %s, among three %s of %s; %s in %.1f healthy hours\n",
			units.Percent(s.All.Raised), units.Percent(s.All.Top1),
			units.Percent(s.All.Top3), units.Plural(s.All.Cases, "case"),
			units.Plural(len(s.False), "false incident"), s.HealthyHours)
	}
	if p := r.Pairs; p != nil {
		fmt.Fprintf(out, "two at once  both first %s, at least one %s of %s; %s in %.1f healthy hours\n",
			units.Percent(p.Both), units.Percent(p.One),
			units.Plural(p.Pairs, "pair"), units.Plural(p.FalseIncidents, "false incident"), p.HealthyHours)
	}
}

// recordedLine writes the row of a case.
func recordedLine(w io.Writer, c *recorded.Result) {
	fmt.Fprintf(w, "%s\t%s\t%s\t", rank(c.RankService, units.Unknown), terminal.Printable(c.Name),
		terminal.Printable(c.Target.Service))
	if len(c.Ranking) == 0 {
		fmt.Fprintf(w, "(%s)\n", c.Reason)
		return
	}
	first := &c.Ranking[0]
	s := first.Whole
	fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\t%s\t%s\n",
		terminal.Printable(first.Service), terminal.Printable(first.Operation),
		score(s.Score), score(s.Own), score(s.In), score(s.Out), score(s.Shape))
}

func score(x float64) string {
	if x == 0 {
		return "0"
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

func rank(r *int, none string) string {
	if r == nil {
		return none
	}
	return strconv.Itoa(*r)
}

// RecordedCSV writes a line for each entry of each case's ranking, and a line without an entry for each empty ranking.
func RecordedCSV(w io.Writer, r *recorded.Report) error {
	out := csv.NewWriter(w)
	lines := [][]string{{
		"case", "fault", "labelled_service", "labelled_operation", "rank_service", "rank_operation", "position",
		"service", "operation", "score",
	}}
	for i := range r.Cases {
		c := &r.Cases[i]
		prefix := []string{
			c.Name, c.Fault, c.Target.Service, c.Target.Operation, rank(c.RankService, ""), rank(c.RankOperation, ""),
		}
		if len(c.Ranking) == 0 {
			lines = append(lines, append(slices.Clone(prefix), "", "", "", ""))
		}
		for k, e := range c.Ranking {
			lines = append(lines,
				append(slices.Clone(prefix), strconv.Itoa(k+1), e.Service, e.Operation, number(e.Score)))
		}
	}
	return out.WriteAll(lines) // flushes
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// RecordedSVG plots the fractions of each kind of fault.
func RecordedSVG(w io.Writer, r *recorded.Report) error {
	p := plot{
		title:  "Labelled service among the first suspects, " + units.Plural(len(r.Cases), "recorded case"),
		series: []string{"first", "in three", "in five"},
	}
	for _, fault := range slices.Sorted(maps.Keys(r.ByFault)) {
		s := r.ByFault[fault]
		p.rows = append(p.rows,
			row{label: fmt.Sprintf("%s (%d)", fault, s.Cases), values: fractions(s.Top1, s.Top3, s.Top5)})
	}
	p.rows = append(p.rows, row{label: "all", values: fractions(r.Top1, r.Top3, r.Top5)})
	return p.write(w)
}
