package client

import (
	"context"
	"io"
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
	width := terminal.Width("SERVICE")
	for i := range list.Items {
		width = max(width, terminal.Width(serviceName(&list.Items[i])))
	}
	row := func(state, service, rate, errors, p50, p99, own string) string {
		return terminal.PadRight(state, 9) + "  " + terminal.PadRight(service, width) + "  " + terminal.PadLeft(rate, 16) + "  " +
			terminal.PadLeft(errors, 15) + "  " + terminal.PadLeft(p50, 17) + "  " + terminal.PadLeft(p99, 17) + "  " + terminal.PadLeft(own, 20)
	}
	p.printf("%s\n", p.dim(row("STATE", "SERVICE", "CALLS (USUALLY)", "FAIL (USUALLY)", "P50 (USUALLY)", "P99 (USUALLY)", "OWN TIME (USUALLY)")))
	for i := range list.Items {
		x := &list.Items[i]
		beside := func(format func(float64) string, now *float64, usual func(*contract.ServiceLoad) *float64) string {
			text := format(of(now))
			if x.Usual != nil && usual(x.Usual) != nil {
				text += " (" + format(*usual(x.Usual)) + ")"
			}
			return text
		}
		p.printf("%s\n", row(serviceState(x.State), serviceName(x),
			beside(callsPerSecond, &x.Now.Rate, func(l *contract.ServiceLoad) *float64 { return &l.Rate }),
			beside(units.Percent, x.Now.Failed, func(l *contract.ServiceLoad) *float64 { return l.Failed }),
			beside(units.Nanos, x.Now.P50Ns, func(l *contract.ServiceLoad) *float64 { return l.P50Ns }),
			beside(units.Nanos, x.Now.P99Ns, func(l *contract.ServiceLoad) *float64 { return l.P99Ns }),
			beside(units.Nanos, x.Now.OwnNs, func(l *contract.ServiceLoad) *float64 { return l.OwnNs })))
		if x.Reason != "" {
			p.printf("           %s\n", p.attention(x.State, clean(x.Reason)))
		}
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	p.printf("%s\n", p.dim("In the ten minutes to "+list.To.Local().Format("15:04:05")+"; OWN TIME is that of a call in the service itself."))
	return p.flush(w)
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
