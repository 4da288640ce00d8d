package benchreport

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// SimulatedTable writes a report for terminals: a row for each strategy, then a row for each strategy and fault.
func SimulatedTable(w io.Writer, r *eval.Report) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	const columns = "cases\tlocatable\tfirst (95 %)\tin three (95 %)\traised\tenabled\tpeak\tspans\tepochs\tfalse " +
		"alarms\tfalse incidents"
	fmt.Fprintln(t, "strategy\t"+columns)
	names := slices.Sorted(maps.Keys(r.Strategies))
	for _, name := range names {
		fmt.Fprintf(t, "%s\t%s\n", name, simulatedColumns(r.Strategies[name]))
	}
	for _, name := range names {
		fmt.Fprintf(t, "\n%s\t%s\n", name, columns)
		for _, fault := range slices.Sorted(maps.Keys(r.Strategies[name].ByFault)) {
			fmt.Fprintf(t, "%s\t%s\n", fault, simulatedColumns(r.Strategies[name].ByFault[fault]))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	out.WriteString(`
first, in three, raised: fractions of the locatable cases. Medians: enabled, peak: fractions of the executed tracepoints that were
enabled ever and at once; spans: extra ones per 1 000 requests; epochs: from alarm to answer. False alarms are per 1 000 group-hours,
false incidents per week of one installation.
`)
	_, err := io.WriteString(w, out.String())
	return err
}

func simulatedColumns(s *eval.Score) string {
	if s.Locatable == 0 {
		none := units.Unknown
		return fmt.Sprintf("%d\t0\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
			s.Cases, none, none, none, none, none, none, none, ratioOf(s.FalseAlarms), ratioOf(s.FalseIncidents))
	}
	return fmt.Sprintf("%d\t%d\t%s (%s)\t%s (%s)\t%s\t%s\t%s\t%s\t%s\t%s\t%s", s.Cases, s.Locatable,
		percentOf(s.Top1), rangeOf(s.Top1Low, s.Top1High), percentOf(s.Top3), rangeOf(s.Top3Low, s.Top3High),
		percentOf(s.Raised), percent(s.EnabledMedian), percent(s.PeakMedian), ratioOf(s.SpanHitsMedian),
		ratioOf(s.EpochsMedian), ratioOf(s.FalseAlarms), ratioOf(s.FalseIncidents))
}

// percent formats a fraction in percent with one decimal, for the small fractions of tracepoints.
func percent(f eval.Rate) string { return strconv.FormatFloat(100*float64(f), 'f', 1, 64) + " %" }

func percentOf(f eval.Rate) string { return units.Percent(float64(f)) }

func rangeOf(low, high eval.Rate) string { return units.Range(float64(low), float64(high)) }

func ratioOf(x eval.Rate) string { return units.Ratio(float64(x)) }

// SimulatedCSV writes a line for each strategy, with the fault "all", and for each strategy and fault.
func SimulatedCSV(w io.Writer, r *eval.Report) error {
	lines := [][]string{{
		"strategy", "fault", "cases", "locatable", "top1", "top1_low", "top1_high", "top3", "top3_low",
		"top3_high", "raised",
		"enabled_median", "peak_median", "span_hits_median", "epochs_median", "false_alarms_per_1000_group_hours",
		"false_incidents_per_week",
	}}
	for _, name := range slices.Sorted(maps.Keys(r.Strategies)) {
		s := r.Strategies[name]
		lines = append(lines, simulatedLine(name, "all", s))
		for _, fault := range slices.Sorted(maps.Keys(s.ByFault)) {
			lines = append(lines, simulatedLine(name, fault, s.ByFault[fault]))
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

func simulatedLine(strategy, fault string, s *eval.Score) []string {
	line := []string{strategy, fault, strconv.Itoa(s.Cases), strconv.Itoa(s.Locatable)}
	for _, x := range []eval.Rate{
		s.Top1, s.Top1Low, s.Top1High, s.Top3, s.Top3Low, s.Top3High, s.Raised, s.EnabledMedian, s.PeakMedian,
		s.SpanHitsMedian,
		s.EpochsMedian, s.FalseAlarms, s.FalseIncidents,
	} {
		field := ""
		if !math.IsNaN(float64(x)) {
			field = number(float64(x))
		}
		line = append(line, field)
	}
	return line
}

// SimulatedSVG plots, for each strategy and fault, how often the cause was found.
func SimulatedSVG(w io.Writer, r *eval.Report) error {
	p := plot{
		title: "Cause among the first suspects, of locatable simulated faults", series: []string{"first", "in three"},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Strategies)) {
		s := r.Strategies[name]
		if s.Locatable > 0 {
			p.add(name, s)
		}
		for _, fault := range slices.Sorted(maps.Keys(s.ByFault)) {
			if s.ByFault[fault].Locatable > 0 {
				p.add(name+" "+fault, s.ByFault[fault])
			}
		}
	}
	return p.write(w)
}

func (p *plot) add(label string, s *eval.Score) {
	p.rows = append(p.rows, row{fmt.Sprintf("%s (%d)", label, s.Locatable), []fraction{
		{float64(s.Top1), float64(s.Top1Low), float64(s.Top1High)},
		{float64(s.Top3), float64(s.Top3Low), float64(s.Top3High)},
	}})
}
