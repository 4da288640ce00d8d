package client

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// IncidentTelemetry returns logs, metrics and events about the first suspect of the incident with the given name; see
// [Client.Incident].
func (c *Client) IncidentTelemetry(ctx context.Context, name string) (*contract.IncidentTelemetry, error) {
	id, err := findIncident(ctx, c, name)
	if err != nil {
		return nil, err
	}
	return Get[contract.IncidentTelemetry](ctx, c, nil, "incidents", id, "telemetry")
}

// ShowTelemetry writes logs, metrics and events.
func ShowTelemetry(w io.Writer, x *contract.IncidentTelemetry, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if x.Logs == nil && x.Metrics == nil && x.Kubernetes == nil {
		p.printf("%s", style.Wrap("The configuration of the service names no server with logs or metrics: "+
			"set logs.loki, metrics.prometheus or kubernetes.url.", 0))
		return p.flush(w)
	}
	failed := func(why *string) {
		if why != nil {
			p.printf("%s", style.Wrap(clean(*why)+".", 2))
		}
	}
	if x.Metrics != nil {
		p.printf("%s\n", p.bold("Metrics, before → since the onset"))
		for _, m := range *x.Metrics {
			if failed(m.Error); m.Error == nil {
				p.printf("  %s: %s → %s\n", clean(m.Name), metricValue(m.Before, m.Unit), metricValue(m.After, m.Unit))
			}
		}
	}
	if k := x.Kubernetes; k != nil {
		p.printf("%s\n", p.bold("Kubernetes"))
		failed(k.Error)
		for _, e := range k.Events {
			p.event(e.At, e.Pod+" "+e.Reason+": "+e.Text)
		}
	}
	if l := x.Logs; l != nil {
		p.printf("%s\n", p.bold("Logs"))
		failed(l.Error)
		for _, line := range l.Lines {
			text := line.Text
			if line.Count > 1 {
				text += fmt.Sprintf(" (%d alike)", line.Count)
			}
			p.event(line.At, text)
		}
	}
	return p.flush(w)
}

// metricValue returns a value of a metric with its unit.
func metricValue(x *float64, unit contract.TelemetryUnit) string {
	if x == nil {
		return "–"
	}
	switch unit {
	case contract.TelemetryUnitBytes:
		return fmt.Sprintf("%.1f MiB", *x/(1<<20))
	case contract.TelemetryUnitSeconds:
		return units.Duration(time.Duration(*x * float64(time.Second)))
	case contract.TelemetryUnitShare:
		return units.Percent(*x)
	case contract.TelemetryUnitNumber:
	}
	return strconv.FormatFloat(*x, 'g', 3, 64)
}
