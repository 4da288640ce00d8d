package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/metric"
	"github.com/sibyl-trace/sibyl/store"
)

// collector collects metrics of the parts that tenants share: listeners and refused tokens.
type collector struct{ server *Server }

// Describe implements prometheus.Collector. The metrics depend on the configuration.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	e := metric.Emitter(out)
	c.connections(e)
	e.Counter("tokens_refused_total", "Requests with an unknown, revoked or expired token.",
		c.server.shared.tokens.Refused())
}

// othersCollector collects the metrics of all tenants but the default one, with their names as a label.
type othersCollector struct{ server *Server }

// Describe implements prometheus.Collector. The metrics depend on the tenants.
func (othersCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c othersCollector) Collect(out chan<- prometheus.Metric) {
	for _, t := range c.server.all()[1:] {
		if !t.enter() {
			continue
		}
		for _, own := range append(t.api.Collectors(), tenantCollector{t}) {
			prometheus.WrapCollectorWith(prometheus.Labels{"tenant": t.Name}, own).Collect(out)
		}
		t.done()
	}
}

// tenantCollector collects metrics of the parts of a tenant that the API does not know: webhooks, exports, Jaeger
// servers, damaged logs and the audit log. Label values are names and addresses from the configuration.
type tenantCollector struct{ tenant *tenant }

// Describe implements prometheus.Collector. The metrics depend on the configuration.
func (tenantCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c tenantCollector) Collect(out chan<- prometheus.Metric) {
	e := metric.Emitter(out)
	c.webhooks(e)
	c.exports(e)
	c.fetches(e)
	const damaged = "Unreadable bytes at the end of a database's log that were removed at the start. " +
		"A crash leaves some; many mean that the disk lost data."
	e.Gauge("log_damaged_bytes", damaged, float64(c.tenant.journal.Truncated()), "database", "journal")
	e.Gauge("log_damaged_bytes", damaged, float64(c.tenant.store.Truncated()), "database", "store")
	e.Counter("audit_failed_lines_total", "Lines of the audit log that could not be written. Until there is space, "+
		"changes are refused.", c.tenant.audit.Failed())
	e.Counter("audit_torn_lines_total", "Incomplete lines cut off the audit log. A crash leaves one.",
		c.tenant.audit.Torn())
}

// connections emits the metrics of listeners.
func (c collector) connections(e metric.Emitter) {
	s, o := c.server, c.server.main.outbound
	otlp := s.receiver.Load()
	for name, all := range map[string][]connlimit.Load{
		"otlp":     {otlp.GRPC, otlp.HTTP},
		"http":     {s.http.Load()},
		"opamp":    {s.agents.Load()},
		"sampling": {o.samplingHTTP.Load(), o.samplingGRPC.Load()},
	} {
		var sum connlimit.Load
		for _, l := range all {
			sum.Open += l.Open
			sum.Most += l.Most
			sum.Refused += l.Refused
			sum.Gone += l.Gone
		}
		e.Gauge("connections", "Open connections to the addresses of the OTLP receivers, of the API, "+
			"of OpAMP and of remote sampling.", float64(sum.Open), "listener", name)
		e.Gauge("connections_limit", "Connection limit; the API and OpAMP share one.",
			float64(sum.Most), "listener", name)
		e.Counter("connections_refused_total", "New connections closed at the connection limit.",
			int64(sum.Refused), "listener", name)
		e.Counter("connections_displaced_total", "Idle connections closed to make room at the connection limit.",
			int64(sum.Gone), "listener", name)
	}
}

// webhooks emits the metrics of webhooks and of the outbox.
func (c tenantCollector) webhooks(e metric.Emitter) {
	for name, n := range c.tenant.outbound.notifier.Counts() {
		const calls = "Webhook calls, by result; failed calls are retried."
		e.Counter("webhook_calls_total", calls, int64(n.Delivered), "webhook", name, "result", "delivered")
		e.Counter("webhook_calls_total", calls, int64(n.Failed), "webhook", name, "result", "failed")
		e.Counter("webhook_messages_given_up_total", "Messages that became dead letters.",
			int64(n.Dead), "webhook", name)
		e.Flag("webhook_disabled", "1 while a webhook is disabled because it answered 410.", n.Disabled,
			"webhook", name)
	}
	outbox := c.tenant.outbound.outbox.Stats()
	e.Gauge("outbox_dead_letters", "Dead letters.", float64(outbox.Dead))
	e.Gauge("outbox_bytes", "Bytes of queued messages and dead letters.", float64(outbox.Bytes))
	e.Counter("outbox_dropped_messages_total", "Messages dropped at the limits of the outbox.", int64(outbox.Dropped))
}

// exports emits the metrics of the export of critical paths.
func (c tenantCollector) exports(e metric.Emitter) {
	x := c.tenant.outbound.exporting
	if x == nil {
		return
	}
	n := x.exporter.Counts()
	const traces = "Traces whose critical path was exported to a tracing backend, by result."
	e.Counter("export_traces_total", traces, int64(n.Sent), "result", "sent")
	e.Counter("export_traces_total", traces, int64(n.Dropped), "result", "dropped")
	e.Counter("export_traces_total", traces, int64(n.Failed), "result", "failed")
}

// fetches emits the metrics of fetching from Jaeger servers.
func (c tenantCollector) fetches(e metric.Emitter) {
	for _, p := range c.tenant.outbound.fetching.all() {
		n, name := p.fetcher.Counts(), p.fetcher.Name()
		count := func(metric, help string, n *atomic.Int64) { e.Counter(metric, help, n.Load(), "server", name) }
		count("jaeger_traces_total", "Traces fetched from a Jaeger server.", &n.Traces)
		count("jaeger_spans_total", "Spans fetched from a Jaeger server.", &n.Spans)
		count("jaeger_rejected_spans_total", "Fetched spans that were rejected.", &n.Rejected)
		count("jaeger_queries_total", "Queries to a Jaeger server.", &n.Queries)
		count("jaeger_failed_queries_total", "Failed queries to a Jaeger server.", &n.Failed)
		count("jaeger_cut_windows_total", "Time windows with more traces than one query returns.", &n.Incomplete)
		if through := n.Through.Load(); through > 0 {
			e.Gauge("jaeger_through_seconds", "Time up to which all traces were fetched, in seconds since 1970.",
				float64(through)/float64(time.Second), "server", name)
		}
	}
}

// queues returns the lengths and limits of all queues.
func (t *tenant) queues() []operating.Size {
	var all []operating.Size
	for _, q := range t.live.Queues() {
		all = append(all, operating.Size(q))
	}
	waiting, most := t.outbound.outbox.Stats().Waiting, store.DefaultOutboxLimits().Messages
	all = append(all, operating.Size{Name: "outbox", Length: int64(waiting), Most: int64(most)})
	if x := t.outbound.exporting; x != nil {
		length, most := x.exporter.Queue()
		all = append(all, operating.Size{Name: "export", Length: int64(length), Most: int64(most)})
	}
	return all
}

// received counts the requests that the receivers have answered, and measures their durations.
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

// observe counts the answered request e.
func (r *received) observe(e receiver.Event) {
	transport := e.Transport.String()
	r.requests.WithLabelValues(transport, e.Refused.String()).Inc()
	r.seconds.WithLabelValues(transport).Observe(e.Duration.Seconds())
}
