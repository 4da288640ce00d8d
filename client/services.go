package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Services returns up to `most` services that match q, those with open incidents first. If `most` is 0, it returns all.
func (c *Client) Services(ctx context.Context, q contract.ListServicesParams, most int) (*contract.ServiceList, error) {
	return getPages(ctx, c, q, most, func(l *contract.ServiceList) (*[]contract.Service, *string) {
		return &l.Items, l.NextCursor
	}, "services")
}

// Service returns the service with the given name or ID.
func (c *Client) Service(ctx context.Context, name string) (*contract.ServiceDetail, error) {
	id := name
	if strings.ContainsAny(name, "/%") { // can't be part of a path
		list, err := c.Services(ctx, contract.ListServicesParams{Q: &name}, 0)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if list.Items[i].Service == name {
				id = list.Items[i].ID
			}
		}
	}
	detail, err := Get[contract.ServiceDetail](ctx, c, nil, "services", id)
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Status == http.StatusNotFound {
		return nil, fmt.Errorf("there is no service %q in the traces of the last two hours: "+
			"sibyl services --query %s lists those whose names contain this", name, name)
	}
	return detail, err
}

// shownServiceParts is the maximum number of parts of each kind that are shown for a service; JSON output contains all.
const shownServiceParts = 20

// ShowService writes a service with its operations, callers, callees, instances and deploys.
func ShowService(w io.Writer, d *contract.ServiceDetail, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	s := &d.Service
	p.loadTable("SERVICE", []loadRow{serviceRow(s)})
	if s.Owner != nil {
		p.printf("owned by %s\n", owner(s.Owner))
	}
	if x := s.ChangedCalls; x != nil {
		p.printf("%s\n", clean(x.Text+"; since "+x.Since.Local().Format(minutes)))
	}
	p.servicePart("Operations", "OPERATION", len(d.Operations), d.MoreOperations, func(i int) loadRow {
		o := &d.Operations[i]
		return loadRow{serviceState(o.State), o.Operation, &o.Now, o.Usual, o.State, o.Reason}
	})
	p.inside(d.Inside)
	p.servicePart("Callers", "CALLER", len(d.Callers), 0, func(i int) loadRow {
		return loadRow{name: d.Callers[i].Caller, now: &d.Callers[i].Now, usual: d.Callers[i].Usual}
	})
	p.servicePart("Callees", "CALLEE", len(d.Callees), 0, func(i int) loadRow {
		return loadRow{name: d.Callees[i].Callee, now: &d.Callees[i].Now, usual: d.Callees[i].Usual}
	})
	p.servicePart("Instances", "INSTANCE", len(d.Instances), 0, func(i int) loadRow {
		return loadRow{name: d.Instances[i].Key + " = " + d.Instances[i].Value, now: &d.Instances[i].Now}
	})
	p.annotations(d.Annotations)
	p.printf("\n%s", p.hint(loadLegend(d.NowFrom, d.To), 0))
	return p.flush(w)
}

// inside writes the operations inside a service with their durations. It writes nothing if `all` is empty.
func (p *page) inside(all []contract.ServiceSpans) {
	if len(all) == 0 {
		return
	}
	const head = "OPERATION"
	shown, width := all[:min(len(all), shownServiceParts)], terminal.Width(head)
	names := make([]string, len(shown))
	for i := range shown {
		names[i] = terminal.Shorten(clean(shown[i].Name), longestName)
		width = max(width, terminal.Width(names[i]))
	}
	row := func(name, p50, p99, until string) string {
		return terminal.PadRight(name, width) + "  " + terminal.PadLeft(p50, besideWidth) + "  " +
			terminal.PadLeft(p99, besideWidth) + "  " + until
	}
	beside := func(now float64, usual *float64) string {
		if usual == nil {
			return units.Nanos(now)
		}
		return units.Nanos(now) + " (" + units.Nanos(*usual) + ")"
	}
	p.printf("\n%s\n%s\n", p.bold("Inside it"), p.dim(row(head, "P50 (USUALLY)", "P99 (USUALLY)", "UNTIL")))
	for i := range shown {
		x := &shown[i]
		until := x.To.Local().Format(minutes)
		p.printf("%s\n", row(names[i], beside(x.P50Ns, x.UsualP50Ns), beside(x.P99Ns, x.UsualP99Ns), until))
	}
	if more := len(all) - len(shown); more > 0 {
		p.printf("%s\n", p.dim("… and "+units.Count(more)+" more: -o json shows all"))
	}
}

// servicePart writes a table of n parts of a service below a title, or nothing if n is 0. row returns the row of part
// i. more is the number of parts that the response omits.
func (p *page) servicePart(title, head string, n, more int, row func(i int) loadRow) {
	if n == 0 {
		return
	}
	shown := make([]loadRow, min(n, shownServiceParts))
	for i := range shown {
		shown[i] = row(i)
	}
	p.printf("\n%s\n", p.bold(title))
	p.loadTable(head, shown)
	if more += n - len(shown); more > 0 {
		p.printf("%s\n", p.dim("… and "+units.Count(more)+" more: -o json shows all"))
	}
}

// loadLegend returns a text that explains the columns of loads from the first time to the second.
func loadLegend(from, to time.Time) string {
	return "CALLS, FAIL, P50, P99 and OWN TIME: from " + from.Local().Format("15:04:05") + " to " +
		to.Local().Format("15:04:05") + ", P50 and P99 within two minutes; of a service whose incident began or " +
		"ended later, since then. OWN TIME: the part of a call that the service itself takes; of an operation, " +
		"without the operations inside the service."
}

// ShowServices writes a table of services with their recent load next to the usual load. Below each service, it writes
// the reason for the service's state, if there is one.
func ShowServices(w io.Writer, list *contract.ServiceList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("No service matches.\n")
		return p.flush(w)
	}
	rows := make([]loadRow, len(list.Items))
	for i := range rows {
		rows[i] = serviceRow(&list.Items[i])
	}
	p.loadTable("SERVICE", rows)
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	if text := list.FewCalls.Text; text != "" {
		p.printf("\n%s", p.style.Wrap(clean(strings.TrimSpace(text+" "+list.FewCalls.Remedy)), 0))
	}
	p.printf("\n%s",
		p.hint(loadLegend(list.NowFrom, list.To)+
			" sibyl services NAME shows one with its operations and neighbours.", 0))
	return p.flush(w)
}

// loadColumns are the columns of a load.
var loadColumns = [...]struct {
	head string
	of   func(*contract.ServiceLoad) string
}{
	{"CALLS", func(l *contract.ServiceLoad) string { return units.Rate(l.Rate) }},
	{"FAIL", func(l *contract.ServiceLoad) string { return units.Percent(of(l.Failed)) }},
	{"P50", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.P50Ns)) }},
	{"P99", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.P99Ns)) }},
	{"OWN TIME", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.OwnNs)) }},
}

// Widths of the columns of services. Usual values are next to the current ones, or below them if lines are short.
const (
	stateWidth  = len("not judged")
	besideWidth = 17
	loadWidth   = 9
)

// loadRow is a row of a table of loads: a service or a part of a service. Parts without a state have no label.
type loadRow struct {
	label, name string
	now, usual  *contract.ServiceLoad // usual is nil if unknown
	state       contract.ServiceState
	reason      string
}

func serviceRow(x *contract.Service) loadRow {
	reason := x.Reason
	if x.State == contract.ServiceStateIncident && len(x.Incidents) > 0 {
		reason += " → sibyl incidents " + x.Incidents[0].ID[:8]
	}
	return loadRow{serviceState(x.State), x.Service, &x.Now, x.Usual, x.State, reason}
}

// loadTable writes services, or parts of a service, with their loads. Below each row, it writes the row's reason, if
// there is one. head is the title of the column of names.
func (p *page) loadTable(head string, all []loadRow) {
	name, stateColumn := terminal.Width(head), 0
	for i := range all {
		all[i].name = terminal.Shorten(clean(all[i].name), longestName)
		name = max(name, terminal.Width(all[i].name))
		if all[i].label != "" {
			stateColumn = stateWidth + 2
		}
	}
	beside := stateColumn+name+len(loadColumns)*(2+besideWidth) <= p.style.Line()
	row := func(state, service string, width int, cell func(column int) string) string {
		first := terminal.PadRight(service, name)
		if stateColumn > 0 {
			first = terminal.PadRight(state, stateColumn) + first
		}
		line := []string{first}
		for i := range loadColumns {
			line = append(line, terminal.PadLeft(cell(i), width))
		}
		return strings.TrimRight(strings.Join(line, "  "), " ") + "\n"
	}
	width, after := loadWidth, ""
	if beside {
		width, after = besideWidth, " (USUALLY)"
	}
	p.printf("%s", p.dim(row("STATE", head, width, func(i int) string { return loadColumns[i].head + after })))
	for i := range all {
		x := &all[i]
		usually := func(i int) string {
			if text := loadColumns[i].of(x.usual); text != units.Unknown {
				return text
			}
			return ""
		}
		p.printf("%s", row(x.label, x.name, width, func(i int) string {
			text := loadColumns[i].of(x.now)
			if beside && x.usual != nil && usually(i) != "" {
				text += " (" + usually(i) + ")"
			}
			return text
		}))
		if !beside && x.usual != nil {
			p.printf("%s", p.dim(row("", "  usually", width, usually)))
		}
		if x.reason != "" {
			for line := range strings.Lines(p.style.Wrap(clean(x.reason), stateWidth+2)) {
				p.printf("%s\n", p.attention(x.state, strings.TrimRight(line, "\n")))
			}
		}
	}
}

// longestName is the maximum width of names of services and their parts. Longer names are shortened.
const longestName = 44

// serviceState returns the name of a state, as in the web UI.
func serviceState(s contract.ServiceState) string {
	switch s {
	case contract.ServiceStateIncident:
		return "suspected"
	case contract.ServiceStateIdle:
		return "not judged"
	case contract.ServiceStateFailing, contract.ServiceStateSilent, contract.ServiceStateSlower,
		contract.ServiceStateWell, contract.ServiceStateNew:
	}
	return string(s)
}

// attention returns text, the reason for the state s, in the colour of s.
func (p *page) attention(s contract.ServiceState, text string) string {
	switch s {
	case contract.ServiceStateIncident, contract.ServiceStateFailing, contract.ServiceStateSilent:
		return p.style.Paint(terminal.Red, text)
	case contract.ServiceStateSlower:
		return p.style.Paint(terminal.Yellow, text)
	case contract.ServiceStateWell, contract.ServiceStateNew, contract.ServiceStateIdle:
	}
	return p.dim(text)
}
