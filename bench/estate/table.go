package estate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Table writes a report for terminals.
func (r *Report) Table(w io.Writer) error {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tstrength\trequests\tfailed\tmean\thealthy\traised\trank\tsuspects")
	for i := range r.Cases {
		c := &r.Cases[i]
		raised, rank := units.Unknown, units.Unknown
		if c.SecondsToRaise != nil {
			raised = fmt.Sprintf("%.0f s", *c.SecondsToRaise)
		}
		if c.RankService != nil {
			rank = strconv.Itoa(*c.RankService)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f ms\t%.0f ms\t%s\t%s\t%s\n",
			c.Name, c.Strength, c.Requests, c.Failed, c.MeanMS, c.HealthyMeanMS,
			raised, rank, terminal.Printable(strings.Join(c.Suspects[:min(3, len(c.Suspects))], ", ")))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&out, "\nraised %s, first %s, in three %s of %d faults; %d false incidents in %.1f healthy hours; "+
		"%d requests, %d failed without a fault\n",
		units.Percent(r.Raised), units.Percent(r.Top1), units.Percent(r.Top3), len(r.Cases), r.FalseIncidents,
		r.HealthyHours, r.Requests, r.FailedHealthy)
	for i := range r.Cases {
		if why := r.Cases[i].missed(); why != "" {
			fmt.Fprintf(&out, "miss: %s (by %s): %s\n", r.Cases[i].Name, r.Cases[i].Addresses, terminal.Printable(why))
		}
	}
	for i := range r.Changing {
		fmt.Fprintf(&out, "while the addresses changed: %s\n", terminal.Printable(r.Changing[i].Sentence))
	}
	for i := range r.False {
		x := &r.False[i]
		fmt.Fprintf(&out, "false: %s %s\n",
			time.Unix(0, x.Opened).UTC().Format(time.TimeOnly), terminal.Printable(x.Sentence))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&out, "skipped: %s: %s\n", s.Program, terminal.Printable(s.Reason))
	}
	_, err := io.WriteString(w, out.String())
	return err
}
