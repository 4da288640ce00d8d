package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/store"
)

// counters collects metrics of the parts that the API does not know: listeners, webhooks, exports and Jaeger servers.
// Their label values are names and addresses from the configuration.
type counters struct{ *Server }

// Describe implements prometheus.Collector. The metrics depend on the configuration.
func (counters) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c counters) Collect(out chan<- prometheus.Metric) {
	emit := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var keys, values []string
		for i := 0; i < len(labels); i += 2 {
			keys, values = append(keys, labels[i]), append(values, labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("sibyl_"+name, help, keys, nil), kind, value, values...)
	}
	o := c.outbound
	otlp := c.receiver.Load()
	for name, all := range map[string][]connlimit.Load{
		"otlp": {otlp.GRPC, otlp.HTTP}, "http": {c.http.Load()}, "opamp": {c.agents.Load()}, "sampling": {o.samplingHTTP.Load(), o.samplingGRPC.Load()},
	} {
		var sum connlimit.Load
		for _, l := range all {
			sum.Open, sum.Most, sum.Refused, sum.Gone = sum.Open+l.Open, sum.Most+l.Most, sum.Refused+l.Refused, sum.Gone+l.Gone
		}
		emit(prometheus.GaugeValue, "connections", "Open connections to the addresses of the OTLP receivers, of the API, of OpAMP and of remote sampling.", float64(sum.Open), "listener", name)
		emit(prometheus.GaugeValue, "connections_limit", "Connection limit; the API and OpAMP share one.", float64(sum.Most), "listener", name)
		emit(prometheus.CounterValue, "connections_refused_total", "New connections closed at the connection limit.", float64(sum.Refused), "listener", name)
		emit(prometheus.CounterValue, "connections_displaced_total", "Idle connections closed to make room at the connection limit.", float64(sum.Gone), "listener", name)
	}
	for name, n := range o.notifier.Counts() {
		const calls = "Webhook calls, by result; failed calls are retried."
		emit(prometheus.CounterValue, "webhook_calls_total", calls, float64(n.Delivered), "webhook", name, "result", "delivered")
		emit(prometheus.CounterValue, "webhook_calls_total", calls, float64(n.Failed), "webhook", name, "result", "failed")
		emit(prometheus.CounterValue, "webhook_messages_given_up_total", "Messages that became dead letters.", float64(n.Dead), "webhook", name)
		gone := 0.
		if n.Disabled {
			gone = 1
		}
		emit(prometheus.GaugeValue, "webhook_disabled", "1 while a webhook is disabled because it answered 410.", gone, "webhook", name)
	}
	outbox := o.outbox.Stats()
	emit(prometheus.GaugeValue, "outbox_dead_letters", "Dead letters.", float64(outbox.Dead))
	emit(prometheus.GaugeValue, "outbox_bytes", "Bytes of queued messages and dead letters.", float64(outbox.Bytes))
	emit(prometheus.CounterValue, "outbox_dropped_messages_total", "Messages dropped at the limits of the outbox.", float64(outbox.Dropped))
	if x := o.exporting; x != nil {
		n := x.Counts()
		const traces = "Traces whose critical path was exported to a tracing backend, by result."
		emit(prometheus.CounterValue, "export_traces_total", traces, float64(n.Sent), "result", "sent")
		emit(prometheus.CounterValue, "export_traces_total", traces, float64(n.Dropped), "result", "dropped")
		emit(prometheus.CounterValue, "export_traces_total", traces, float64(n.Failed), "result", "failed")
	}
	for _, p := range o.fetching.all() {
		n := p.Counts()
		for _, x := range []struct {
			name, help string
			n          int64
		}{
			{"jaeger_traces_total", "Traces fetched from a server of Jaeger.", n.Traces.Load()},
			{"jaeger_spans_total", "Their spans.", n.Spans.Load()},
			{"jaeger_rejected_spans_total", "Those of them that were left out.", n.Rejected.Load()},
			{"jaeger_queries_total", "Queries to a server of Jaeger.", n.Queries.Load()},
			{"jaeger_failed_queries_total", "Those of them that failed.", n.Failed.Load()},
			{"jaeger_cut_windows_total", "Time windows with more traces than one query returns.", n.Incomplete.Load()},
		} {
			emit(prometheus.CounterValue, x.name, x.help, float64(x.n), "server", p.Name())
		}
		if through := n.Through.Load(); through > 0 {
			emit(prometheus.GaugeValue, "jaeger_through_seconds", "Until when everything was fetched, since 1970.", float64(through)/float64(time.Second), "server", p.Name())
		}
	}
}

// queues returns the lengths of all queues.
func (s *Server) queues() []api.Size {
	var all []api.Size
	for _, q := range s.live.Queues() {
		all = append(all, api.Size(q))
	}
	all = append(all, api.Size{Name: "outbox", Length: int64(s.outbound.outbox.Stats().Waiting), Most: int64(store.DefaultOutboxLimits().Messages)})
	if x := s.outbound.exporting; x != nil {
		length, most := x.Queue()
		all = append(all, api.Size{Name: "export", Length: int64(length), Most: int64(most)})
	}
	return all
}

// received counts answers of the receivers.
type received struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newReceived(registry *prometheus.Registry) *received {
	r := &received{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sibyl_otlp_requests_total", Help: "Requests to the OTLP receivers, by outcome.",
		}, []string{"transport", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sibyl_otlp_request_seconds", Help: "Time from a request's header to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"transport"}),
	}
	registry.MustRegister(r.requests, r.seconds)
	return r
}

// observe counts an answer.
func (r *received) observe(e receiver.Event) {
	transport := e.Transport.String()
	r.requests.WithLabelValues(transport, e.Refused.String()).Inc()
	r.seconds.WithLabelValues(transport).Observe(e.Duration.Seconds())
}
