package client

import (
	"context"
	"io"
	"net/http"
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

// AddObjective adds an objective.
func (c *Client) AddObjective(ctx context.Context, r *contract.ObjectiveRequest) (*contract.Objective, error) {
	return send[contract.Objective](ctx, c, http.MethodPost, r, "objectives")
}

// SetObjective changes the objective with the given ID, which was added with AddObjective or in the UI.
func (c *Client) SetObjective(
	ctx context.Context, id string, r *contract.ObjectiveRequest,
) (*contract.Objective, error) {
	return send[contract.Objective](ctx, c, http.MethodPut, r, "objectives", id)
}

// PreviewObjective returns the times when an objective would have burned.
func (c *Client) PreviewObjective(
	ctx context.Context, r *contract.ObjectiveRequest,
) (*contract.ObjectivePreview, error) {
	return send[contract.ObjectivePreview](ctx, c, http.MethodPost, r, "objectives", "preview")
}

// DeleteObjective deletes the objective with the given ID, which was added with AddObjective or in the UI.
func (c *Client) DeleteObjective(ctx context.Context, id string) error {
	return c.tell(ctx, http.MethodDelete, nil, "objectives", id)
}

// ShowObjectives writes a list of objectives, each as a line with its state and a line with its burn rates.
func ShowObjectives(w io.Writer, list *contract.ObjectiveList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("There are no objectives: sibyl objectives add adds one, and so does the key objectives.\n")
	}
	for i := range list.Items {
		p.objective(&list.Items[i])
	}
	return p.flush(w)
}

// ShowObjective writes an objective.
func ShowObjective(w io.Writer, x *contract.Objective, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	p.objective(x)
	return p.flush(w)
}

func (p *page) objective(x *contract.Objective) {
	p.printf("%s  %s", p.bold(clean(x.Name)), goal(x))
	if x.ID != nil {
		p.printf("  %s", p.dim("ID "+strconv.FormatInt(*x.ID, 10)))
	}
	if x.Replaced {
		p.printf("  %s", p.style.Paint(terminal.Yellow, "without effect: the configuration limits the same requests"))
	}
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

// ShowObjectivePreview writes the times when an objective would have burned.
func ShowObjectivePreview(w io.Writer, x *contract.ObjectivePreview, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if x.From == nil {
		p.printf("No requests of this entry are kept: check its spelling, or wait until some arrive.\n")
		return p.flush(w)
	}
	var opened, joined int
	for i := range x.Burned {
		if x.Burned[i].Incident == nil {
			opened++
		} else {
			joined++
		}
	}
	p.printf("%s of %s requests miss it. In the past %s it would have opened %s and joined %s.\n",
		units.Count(int(x.Missed)), units.Count(int(x.Requests)), units.Span(x.To.Sub(*x.From)),
		units.Plural(opened, "incident"), units.Count(joined))
	for i := range x.Burned {
		b := &x.Burned[i]
		text := b.From.Local().Format(time.DateTime)
		if b.Until == nil {
			text += ", until now"
		} else {
			text += " for " + units.Span(b.Until.Sub(b.From))
		}
		if b.Incident != nil {
			text += ", with incident " + (*b.Incident)[:8]
		}
		p.printf("  %s\n", text)
	}
	if x.LacksNs > 0 {
		p.printf("%s\n", p.dim("All its windows can be judged in "+units.Coarse(time.Duration(x.LacksNs))+"."))
	}
	return p.flush(w)
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
