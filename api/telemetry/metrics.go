package telemetry

import (
	"context"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// maxPoints limits the number of points of a metric.
const maxPoints = 90

// DefaultLogQuery selects the logs of a service by the label that Loki adds to logs received over OTLP.
const DefaultLogQuery = `{service_name=~"{service}"}`

// DefaultMetrics returns queries for container metrics that fall back to process metrics where there are no containers.
func DefaultMetrics() []Metric {
	either := func(container, process string) string {
		return `sum(` + container + `) or sum(` + process + `)`
	}
	return []Metric{
		{"CPU cores", either(`rate(container_cpu_usage_seconds_total{container!="",pod=~"{pod}"}[2m])`,
			`rate(process_cpu_seconds_total{job=~"(.*/)?{service}"}[2m])`), contract.TelemetryUnitNumber},
		{"Memory", either(`container_memory_working_set_bytes{container!="",pod=~"{pod}"}`,
			`process_resident_memory_bytes{job=~"(.*/)?{service}"}`), contract.TelemetryUnitBytes},
		{"Restarts in 5 minutes", either(`increase(kube_pod_container_status_restarts_total{pod=~"{pod}"}[5m])`,
			`changes(process_start_time_seconds{job=~"(.*/)?{service}"}[5m])`), contract.TelemetryUnitNumber},
		{"Share of time in garbage collection", either(`rate(jvm_gc_duration_seconds_sum{job=~"(.*/)?{service}"}[2m])`,
			`rate(go_gc_duration_seconds_sum{job=~"(.*/)?{service}"}[2m])`), contract.TelemetryUnitShare},
	}
}

// prometheusAnswer is the response of Prometheus's query_range.
type prometheusAnswer struct {
	Data struct {
		Result []struct{ Values [][]json.RawMessage } // time in seconds, and value as a string
	}
}

// metric queries a metric over the window of q, and computes its means before and after the onset. Errors become part
// of the result.
func (b *Backends) metric(ctx context.Context, q *Question, m *Metric) contract.TelemetryMetric {
	points := []contract.MetricPoint{}
	x := contract.TelemetryMetric{Name: m.Name, Unit: m.Unit, Query: q.expand(m.Query), Points: points}
	step := max(15*time.Second, (q.To.Sub(q.From) / maxPoints).Round(time.Second))
	var answer prometheusAnswer
	err := b.get(ctx, &b.options.Prometheus, "/api/v1/query_range", url.Values{
		"query": {x.Query},
		"start": {strconv.FormatInt(q.From.Unix(), 10)},
		"end":   {strconv.FormatInt(q.To.Unix(), 10)},
		"step":  {strconv.FormatInt(int64(step/time.Second), 10)},
	}, &answer)
	if err == nil && len(answer.Data.Result) > 1 {
		err = failure{"answered with several series; aggregate them in the query, with sum or max"}
	}
	if x.Error = b.say(ctx, "Prometheus", err); err != nil {
		return x
	}
	var before, after mean
	for _, r := range answer.Data.Result {
		for _, v := range r.Values {
			var at float64
			var text string
			if len(v) != 2 || json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &text) != nil {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
				continue
			}
			p := contract.MetricPoint{At: time.UnixMilli(int64(at * 1000)).UTC(), Value: value}
			x.Points = append(x.Points, p)
			if p.At.Before(q.Onset) {
				before.add(value)
			} else {
				after.add(value)
			}
		}
	}
	x.Before, x.After = before.value(), after.value()
	return x
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) { m.sum, m.n = m.sum+x, m.n+1 }

// value returns the mean, or nil if there are no values.
func (m *mean) value() *float64 {
	if m.n == 0 {
		return nil
	}
	return new(m.sum / float64(m.n))
}
