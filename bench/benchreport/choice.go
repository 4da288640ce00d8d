package benchreport

import (
	"encoding/csv"
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

// ChoiceTable writes a report for terminals that follows a [RecordedTable]: a row for each strategy, and a row for each
// kind of fault. If there is only one strategy apart from "none", a row for each case follows.
func ChoiceTable(w io.Writer, r *recorded.ChoiceReport) error {
	var out strings.Builder
	fmt.Fprintf(&out, "\nWith spans hidden until their tracepoint is enabled. Baseline: %s; tracepoints beside it: "+
		"%d; history: %s.\n\n",
		r.Baseline, r.Tracepoints, units.Plural(r.History, "trace"))
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	const columns = "cases\tfirst\tin three\tvisible\traised\tunrepeated\tenabled\tslices\tspans"
	fmt.Fprintln(t, "strategy\t"+columns)
	names := slices.Sorted(maps.Keys(r.Strategies))
	for _, name := range names {
		fmt.Fprintf(t, "%s\t%s\n", name, choiceColumns(&r.Strategies[name].ChoiceSum))
	}
	for _, name := range names {
		if name == recorded.NoStrategy {
			continue
		}
		s := r.Strategies[name]
		fmt.Fprintf(t, "\n%s\t%s\n", name, columns)
		for _, fault := range slices.Sorted(maps.Keys(s.ByFault)) {
			sum := s.ByFault[fault]
			fmt.Fprintf(t, "%s\t%s\n", terminal.Printable(fault), choiceColumns(&sum))
		}
		if len(names) == 2 {
			fmt.Fprintln(t, "\nrank\tcase\tlabelled\tincident\tfirst suspect\tshare\traised\tstatus\tenabled\tslices")
			for i := range s.Cases {
				choiceLine(t, &s.Cases[i])
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&out, `
Fractions of cases. first, in three: rank of the labelled service among the suspects of the incident or, without one, of the labelled
place in the investigation of a problem; visible: its span was ever visible; raised: with a problem or incident; unrepeated: raised
before the window's traces were repeated. Medians over raised cases. enabled: fraction of the executed tracepoints that were ever
enabled; slices: of the window until the answer; spans: extra ones per 1 000 requests. A CLIENT span stands for the way to its callee (→). False alarms: %d in %s.
`, r.FalseAlarms, units.Plural(r.ControlSlices, "normal slice"))
	_, err := io.WriteString(w, out.String())
	return err
}

func choiceColumns(s *recorded.ChoiceSum) string {
	cost := strings.Join([]string{units.Unknown, units.Unknown, units.Unknown}, "\t")
	if s.Raised > 0 {
		cost = percent(s.EnabledMedian) + "\t" + ratioOf(s.SlicesMedian) + "\t" + ratioOf(s.SpanHitsMedian)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s",
		s.Count, units.Percent(s.Top1), units.Percent(s.Top3), units.Percent(s.Visible),
		units.Percent(s.Raised), units.Percent(s.RaisedFirst), cost)
}

// choiceLine writes the row of a case.
func choiceLine(w io.Writer, c *recorded.ChoiceResult) {
	incident, suspect, share := units.Unknown, units.Unknown, units.Unknown
	if len(c.Suspects) > 0 {
		incident = c.Suspects[0]
	}
	if len(c.Ranking) > 0 {
		e := &c.Ranking[0]
		suspect, share = e.Service+" "+e.Operation, score(e.Share)
		if e.Callee != "" {
			suspect += " → " + e.Callee
		}
	}
	status := c.Status
	if status == "" {
		status = units.Unknown
	}
	raised := rank(c.Raised, units.Unknown)
	if c.Repeated {
		raised += " of " + strconv.Itoa(c.Recorded)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\n",
		rank(c.Rank, units.Unknown), terminal.Printable(c.Name),
		terminal.Printable(c.Target.Service), terminal.Printable(incident), terminal.Printable(suspect), share, raised,
		status, c.Enabled, c.Executed, c.Slices)
}

// ChoiceCSV writes a line for each case and strategy.
func ChoiceCSV(w io.Writer, r *recorded.ChoiceReport) error {
	lines := [][]string{{
		"strategy", "case", "fault", "labelled_service", "labelled_operation", "traces", "window_slices", "raised",
		"status", "rank", "visible", "incident",
		"service", "operation", "kind", "callee", "share", "slices", "executed", "enabled", "requests", "span_hits",
	}}
	for _, name := range slices.Sorted(maps.Keys(r.Strategies)) {
		for i := range r.Strategies[name].Cases {
			c := &r.Strategies[name].Cases[i]
			line := []string{
				name, c.Name, c.Fault, c.Target.Service, c.Target.Operation, strconv.Itoa(c.Traces),
				strconv.Itoa(c.Recorded), rank(c.Raised, ""),
				c.Status, rank(c.Rank, ""), strconv.FormatBool(c.Visible), "",
			}
			if len(c.Suspects) > 0 {
				line[len(line)-1] = c.Suspects[0]
			}
			if len(c.Ranking) > 0 {
				e := &c.Ranking[0]
				line = append(line, e.Service, e.Operation, e.Kind, e.Callee, number(e.Share))
			} else {
				line = append(line, "", "", "", "", "")
			}
			for _, n := range []int{c.Slices, c.Executed, c.Enabled, c.Requests, c.SpanHits} {
				line = append(line, strconv.Itoa(n))
			}
			lines = append(lines, line)
		}
	}
	return csv.NewWriter(w).WriteAll(lines) // flushes
}

// ChoiceSVG plots, for each strategy, how often the labelled place was found and how often it was visible.
func ChoiceSVG(w io.Writer, r *recorded.ChoiceReport) error {
	p := plot{
		title:  "Labelled place among the first suspects, with chosen spans; baseline: " + string(r.Baseline),
		series: []string{"first", "in three", "visible"},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Strategies)) {
		s := &r.Strategies[name].ChoiceSum
		p.rows = append(p.rows,
			row{label: fmt.Sprintf("%s (%d)", name, s.Count), values: fractions(s.Top1, s.Top3, s.Visible)})
	}
	return p.write(w)
}
