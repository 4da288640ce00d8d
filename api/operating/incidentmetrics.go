package operating

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/internal/metric"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// meteredIncidents limits the number of open incidents that have their own metrics, because each adds a set of time
// series. The most severe incidents take precedence.
const meteredIncidents = 50

// incidents emits the metrics of open incidents.
func (m *metrics) incidents(e metric.Emitter, s *epoch.Snapshot) {
	open := make(map[contract.Severity]int)
	var rows []*epoch.IncidentRow
	for i := range s.Incidents {
		if x := &s.Incidents[i]; x.Listed && x.Closed == nil {
			rows = append(rows, x)
			open[x.Severity]++
		}
	}
	severities := []contract.Severity{contract.SeverityCritical, contract.SeverityMajor, contract.SeverityMinor}
	for _, severity := range severities {
		e.Gauge("incident_open", "Open incidents, by severity.", float64(open[severity]), "severity", string(severity))
	}
	e.Gauge("incident_silenced", "Open incidents of which a silence stops the notifications.",
		float64(len(m.handlers.options.Silenced(s))))
	sorting.SliceStable(rows, func(a, b *epoch.IncidentRow) int { return cmp.Compare(a.Key(), b.Key()) })
	directory := m.handlers.options.Directory()
	for _, x := range rows[:min(len(rows), meteredIncidents)] {
		id, service, owner := x.ID, label(x.Service), ""
		if o := directory.Owner(x.Service); o != nil {
			owner = label(o.Name)
		}
		e.Gauge("incident_info", "1 for each open incident, with its first suspect and the owner of the suspect.", 1,
			"incident", id, "service", service, "severity", string(x.Severity), "owner", owner)
		gauge := func(name, help string, value float64) {
			e.Gauge("incident_"+name, help, value, "incident", id, "service", service)
		}
		gauge("onset_seconds", "Onset of an open incident, in seconds since 1970.", float64(x.Onset.UnixNano())/1e9)
		gauge("score", "Score of the first suspect of an open incident: additional cost per request.", x.Score)
		gauge("request_types", "Request types that an open incident affects.", float64(len(x.RequestTypes)))
		gauge("lost_seconds_per_second", "Extra time per second that the affected requests of an open incident "+
			"take, on average since its onset.", x.Impact.LostNsPerSecond/1e9)
		gauge("failed_requests_per_second", "Extra failed requests per second of an open incident, on average since "+
			"its onset.", x.Impact.FailedPerSecond)
	}
}

// objectives emits the metrics of the objectives.
func (m *metrics) objectives(e metric.Emitter, s *epoch.Snapshot) {
	for i := range s.Objectives {
		o := &s.Objectives[i]
		labels := []string{"objective", label(o.Name), "entry", label(o.Entry), "kind", string(o.Kind), "below", ""}
		if o.BelowNs != nil {
			labels[7] = time.Duration(*o.BelowNs).String()
		}
		e.Flag("objective_burning", "1 while an objective burns.", o.Burning != nil, labels...)
		e.Gauge("objective_budget_remaining",
			"Part of the error budget of 30 days that is left; negative if it is overspent.", o.Remaining, labels...)
		for _, w := range o.Windows {
			window := append(slices.Clone(labels), "window", shortDuration(time.Duration(w.WindowNs)))
			e.Gauge("objective_burn_rate", "Rate at which an objective spends its error budget: at 1, the budget "+
				"lasts exactly 30 days.",
				w.Rate, window...)
			e.Gauge("objective_burn_rate_alert", "Burn rate from which a window counts for an incident.",
				w.Alert, window...)
		}
	}
}

// label returns text as a label value, which must be valid UTF-8.
func label(text string) string { return strings.ToValidUTF8(text, "�") }

// shortDuration formats a duration of whole minutes or hours in the style of Prometheus, such as 5m and 6h.
func shortDuration(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/time.Minute)) + "m"
}
