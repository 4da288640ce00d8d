package client

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Services returns up to most services that match q, those of open incidents first; 0: all.
func (c *Client) Services(ctx context.Context, q contract.ListServicesParams, most int) (*contract.ServiceList, error) {
	return readPages(c, most, func(limit *int, cursor *string) (responseWith[contract.ServiceList], error) {
		q.Limit, q.Cursor = limit, cursor
		return c.api.ListServicesWithResponse(ctx, &q)
	}, func(l *contract.ServiceList) (*[]contract.Service, *string) { return &l.Items, l.NextCursor })
}

// ShowServices writes a table of services with the load of the last minutes beside the usual one; below those that need
// attention, the reason.
func ShowServices(w io.Writer, list *contract.ServiceList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("No service matches.\n")
		return p.flush(w)
	}
	p.serviceTable(list.Items)
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	p.printf("\n%s", p.hint("CALLS, FAIL and OWN TIME: the ten minutes to "+list.To.Local().Format("15:04:05")+"; P50 and P99: the last five to ten minutes. OWN TIME: the part of a call that the service itself takes.", 0))
	return p.flush(w)
}

// loadColumns are the columns of a load.
var loadColumns = [...]struct {
	head string
	of   func(*contract.ServiceLoad) string
}{
	{"CALLS", func(l *contract.ServiceLoad) string { return callsPerSecond(l.Rate) }},
	{"FAIL", func(l *contract.ServiceLoad) string { return units.Percent(of(l.Failed)) }},
	{"P50", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.P50Ns)) }},
	{"P99", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.P99Ns)) }},
	{"OWN TIME", func(l *contract.ServiceLoad) string { return units.Nanos(of(l.OwnNs)) }},
}

// Widths of the columns of services: usual values stand beside the present ones, or below them if lines are short.
const (
	stateWidth  = len("suspected")
	besideWidth = 17
	loadWidth   = 9
)

// serviceTable writes services with their loads and, below those that need attention, the reason.
func (p *page) serviceTable(all []contract.Service) {
	name := terminal.Width("SERVICE")
	for i := range all {
		name = max(name, terminal.Width(serviceName(&all[i])))
	}
	beside := stateWidth+2+name+len(loadColumns)*(2+besideWidth) <= p.style.Line()
	row := func(state, service string, width int, cell func(column int) string) string {
		line := []string{terminal.PadRight(state, stateWidth), terminal.PadRight(service, name)}
		for i := range loadColumns {
			line = append(line, terminal.PadLeft(cell(i), width))
		}
		return strings.TrimRight(strings.Join(line, "  "), " ") + "\n"
	}
	width, after := loadWidth, ""
	if beside {
		width, after = besideWidth, " (USUALLY)"
	}
	p.printf("%s", p.dim(row("STATE", "SERVICE", width, func(i int) string { return loadColumns[i].head + after })))
	for i := range all {
		x := &all[i]
		usually := func(i int) string {
			if text := loadColumns[i].of(x.Usual); text != units.Unknown {
				return text
			}
			return ""
		}
		p.printf("%s", row(serviceState(x.State), serviceName(x), width, func(i int) string {
			text := loadColumns[i].of(&x.Now)
			if beside && x.Usual != nil && usually(i) != "" {
				text += " (" + usually(i) + ")"
			}
			return text
		}))
		if !beside && x.Usual != nil {
			p.printf("%s", p.dim(row("", "  usually", width, usually)))
		}
		if x.Reason != "" {
			reason := clean(x.Reason)
			if x.State == contract.ServiceStateIncident && len(x.Incidents) > 0 {
				reason += " → sibyl incidents " + x.Incidents[0].ID[:8]
			}
			for line := range strings.Lines(p.style.Wrap(reason, stateWidth+2)) {
				p.printf("%s\n", p.attention(x.State, strings.TrimRight(line, "\n")))
			}
		}
	}
}

// callsPerSecond formats a rate of calls.
func callsPerSecond(rate float64) string {
	if rate == 0 {
		return "0/s"
	}
	return units.Ratio(rate) + "/s"
}

// longestService is the width from which names of services are shortened.
const longestService = 32

func serviceName(x *contract.Service) string {
	return terminal.Shorten(clean(x.Service), longestService)
}

// serviceState names a state as the web UI does.
func serviceState(s contract.ServiceState) string {
	if s == contract.ServiceStateIncident {
		return "suspected"
	}
	return string(s)
}

// attention colours the reason for a state.
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
