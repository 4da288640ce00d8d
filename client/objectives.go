package client

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Objectives returns the objectives, in the order of the configuration.
func (c *Client) Objectives(ctx context.Context) (*contract.ObjectiveList, error) {
	return Get[contract.ObjectiveList](ctx, c, nil, "objectives")
}

// ShowObjectives writes a list of objectives, each as a line with its state and a line with its burn rates.
func ShowObjectives(w io.Writer, list *contract.ObjectiveList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("No objective is configured: docs/configuration.md describes the key objectives.\n")
	}
	for i := range list.Items {
		p.objective(&list.Items[i])
	}
	return p.flush(w)
}

func (p *page) objective(x *contract.Objective) {
	p.printf("%s  %s", p.bold(clean(x.Name)), goal(x))
	switch {
	case x.Requests == 0:
		p.printf("  %s", p.dim("no requests yet"))
	case x.Burning == nil && x.Remaining < 0:
		p.printf("  missed")
	case x.Burning == nil:
		p.printf("  %s", "met")
	case x.Waived:
		p.printf("  %s", p.style.Paint(terminal.Yellow, "burns, accepted")+" "+p.since(x.Burning))
	default:
		p.printf("  %s", p.style.Paint(terminal.Red, "burns")+" "+p.since(x.Burning))
	}
	if x.Incident != nil {
		p.printf("  incident %s", (*x.Incident)[:8])
	}
	p.printf("\n")
	if x.Name != x.Entry {
		p.printf("    %s\n", clean(x.Entry))
	}
	if x.Requests == 0 {
		p.printf("    %s\n", p.dim("if that is wrong, check the entry: the page Services, and GET /api/v1/services, "+
			"list services and operations with requests"))
		return
	}
	var rates []string
	for _, r := range x.Windows {
		rate := units.Coarse(time.Duration(r.WindowNs)) + " " + units.Ratio(r.Rate) + "×"
		if r.Rate >= r.Alert {
			rate = p.style.Paint(terminal.Red, rate)
		}
		rates = append(rates, rate)
	}
	p.printf("    %s (in %s %s of %s requests missed)\n",
		left(x.Remaining), units.Span(p.now.Sub(*x.From)), units.Count(int(x.Missed)), units.Count(int(x.Requests)))
	p.printf("    burn rates: %s\n", strings.Join(rates, ", "))
}

// left returns a text about the remaining part of a budget, which is negative if the budget is overspent.
func left(remaining float64) string {
	if remaining < 0 {
		return "budget spent " + units.Ratio(1-remaining) + " times"
	}
	return units.Percent(remaining) + " of the budget left"
}

// goal describes the goal of an objective.
func goal(x *contract.Objective) string {
	if x.BelowNs == nil {
		return "at most " + percent(100*x.Budget) + " fail"
	}
	return percent(of(x.Percentile)) + " below " + units.Nanos(float64(*x.BelowNs))
}

// percent formats a percentage with up to six significant digits, so that it looks as in the configuration.
func percent(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) + " %" }
