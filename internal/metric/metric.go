// Package metric emits samples of Prometheus metrics that a collector computes at each scrape.
package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Emitter emits samples to the channel of [prometheus.Collector.Collect]. It prefixes the names of metrics with
// "sibyl_". labels alternate between keys and values.
type Emitter chan<- prometheus.Metric

// Counter emits a counter.
func (e Emitter) Counter(name, help string, n int64, labels ...string) {
	e.emit(prometheus.CounterValue, name, help, float64(n), labels)
}

// Seconds emits d as a counter in seconds.
func (e Emitter) Seconds(name, help string, d time.Duration, labels ...string) {
	e.emit(prometheus.CounterValue, name, help, d.Seconds(), labels)
}

// Gauge emits a gauge.
func (e Emitter) Gauge(name, help string, x float64, labels ...string) {
	e.emit(prometheus.GaugeValue, name, help, x, labels)
}

// Flag emits a gauge that is 1 if on is true, otherwise 0.
func (e Emitter) Flag(name, help string, on bool, labels ...string) {
	x := 0.
	if on {
		x = 1
	}
	e.Gauge(name, help, x, labels...)
}

func (e Emitter) emit(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	keys, values := make([]string, 0, len(labels)/2), make([]string, 0, len(labels)/2)
	for i := 0; i < len(labels); i += 2 {
		keys, values = append(keys, labels[i]), append(values, labels[i+1])
	}
	e <- prometheus.MustNewConstMetric(prometheus.NewDesc("sibyl_"+name, help, keys, nil), kind, value, values...)
}
