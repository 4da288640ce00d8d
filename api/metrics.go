package api

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sibyl-trace/sibyl/ingest/assemble"
)

// metrics serves /metrics: it reads what is counted anyway when somebody asks, and measures requests of the API.
type metrics struct {
	api      *API
	handler  http.Handler
	requests *prometheus.HistogramVec
}

// scrapePatience is how long a scrape waits for the engine; later it shows what was before.
const scrapePatience = time.Second

func newMetrics(a *API) *metrics {
	m := &metrics{api: a, requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sibyl_api_request_seconds", Help: "Time that requests of the API took, by operation; streams until they end.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 10},
	}, []string{"operation"})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, m.requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := prometheus.Gatherers{registry}
	if a.options.Registry != nil {
		all = append(all, a.options.Registry)
	}
	m.handler = promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError})
	return m
}

func (m *metrics) observe(operation string, took time.Duration) {
	m.requests.WithLabelValues(operation).Observe(took.Seconds())
}

// Describe implements prometheus.Collector: what there is depends on what happened.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// emitter writes samples of metrics.
type emitter chan<- prometheus.Metric

func (e emitter) emit(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	var keys, values []string
	for i := 0; i < len(labels); i += 2 {
		keys, values = append(keys, labels[i]), append(values, labels[i+1])
	}
	e <- prometheus.MustNewConstMetric(prometheus.NewDesc("sibyl_"+name, help, keys, nil), kind, value, values...)
}

func (e emitter) counter(name, help string, n int64, labels ...string) {
	e.emit(prometheus.CounterValue, name, help, float64(n), labels...)
}

func (e emitter) gauge(name, help string, x float64, labels ...string) {
	e.emit(prometheus.GaugeValue, name, help, x, labels...)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	e := emitter(out)
	o := &m.api.options
	e.gauge("build_info", "Version of this build; always 1.", 1, "version", o.Version, "go", o.Go)
	e.gauge("ready", "1 while the service accepts traces.", oneIf(m.api.engine.Ready()))
	m.ingest(e)
	m.engine(e)
	m.agents(e)
	streams, cut := m.api.hub.readers()
	e.gauge("api_streams", "Readers of events.", float64(streams))
	e.counter("api_streams_cut_total", "Readers of events that were too slow.", int64(cut))
	if o.Queues != nil {
		for _, q := range o.Queues() {
			e.gauge("queue_length", "Length of a queue.", float64(q.Length), "queue", q.Name)
			e.gauge("queue_capacity", "Capacity of a queue; 0: unlimited.", float64(q.Most), "queue", q.Name)
		}
	}
	if o.Bytes != nil {
		for _, b := range o.Bytes() {
			e.gauge("size_bytes", "Size of a part of the service.", float64(b.Length), "part", b.Name)
			e.gauge("size_limit_bytes", "Size limit of a part of the service; 0: unlimited.", float64(b.Most), "part", b.Name)
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ingest tells what became of what was sent.
func (m *metrics) ingest(e emitter) {
	n := m.api.engine.Counts()
	e.counter("ingest_requests_total", "Accepted export requests.", n.Requests.Load())
	e.counter("ingest_spans_total", "Accepted spans.", n.Spans.Load())
	e.counter("ingest_rejected_spans_total", "Spans rejected from accepted export requests.", n.Rejected.Load())
	e.counter("ingest_refused_requests_total", "Export requests refused with a time to retry, by reason.", n.Refused.Busy.Load(), "reason", "busy")
	e.counter("ingest_refused_requests_total", "Export requests refused with a time to retry, by reason.", n.Refused.Full.Load(), "reason", "disk_full")
	e.counter("journal_damaged_records_total", "Unreadable records of the journal.", n.Damaged.Load())
	e.counter("journal_commits_total", "Commits to the journal.", n.Commits.Load())
	e.emit(prometheus.CounterValue, "journal_commit_seconds_total", "Time spent on commits to the journal.", time.Duration(n.Waited.Load()).Seconds())
	for reason := range assemble.Closings {
		e.counter("traces_closed_total", "Closed traces, by reason; only complete traces enter the statistics.", n.Closed[reason].Load(), "reason", reason.String())
	}
	for reason, count := range n.Unusable() {
		e.counter("traces_unusable_total", "Complete traces, or roots of them, excluded from the statistics, by reason.", count, "reason", string(reason))
	}
	open := n.Open()
	e.gauge("open_traces", "Traces waiting for more spans.", float64(open.Traces))
	e.gauge("open_spans", "Spans of open traces.", float64(open.Spans))
	e.gauge("open_bytes", "Memory of open traces.", float64(open.Bytes))
	e.gauge("remembered_traces", "Closed traces that are remembered, so that late spans do not open them again.", float64(open.Remembered))
	e.counter("late_spans_total", "Spans that arrived after their trace was closed.", open.Late)
	e.counter("journal_bytes_total", "Bytes appended to the journal.", n.Packed.Load())
	e.counter("exemplars_missed_total", "Sample traces that could not be kept.", n.ExemplarsLate.Load())
	const forgotten = "Exemplars, and decisions by epoch, deleted early to free space."
	e.counter("retention_forgotten_total", forgotten, n.Forgotten.Decisions.Load(), "what", "decisions")
	e.counter("retention_forgotten_total", forgotten, n.Forgotten.Exemplars.Load(), "what", "exemplars")
	e.gauge("epoch_work_seconds", "Time spent on the decisions of the last epoch.", time.Duration(n.Decided.Load()).Seconds())
	e.counter("epochs_total", "Epochs.", n.Epochs.Load())
	e.counter("checkpoints_total", "Successful checkpoints.", n.Checkpoints.Load())
	e.counter("checkpoints_failed_total", "Failed checkpoints.", n.Unsaved.Load())
}

// engine tells what the engine holds, as of the last epoch.
func (m *metrics) engine(e emitter) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience) //nolint:forbidigo // prometheus passes none
	defer cancel()
	s, err := m.api.current(ctx)
	if err != nil {
		s = m.api.snapshot.last.Load()
	}
	if s == nil {
		return
	}
	t := &s.tally
	e.gauge("learning", "1 during the learning period.", oneIf(!s.learned))
	e.gauge("epoch_end_seconds", "End of the latest published epoch, in seconds since 1970.", float64(s.ended)/1e9)
	e.gauge("groups", "Groups and request types.", float64(t.groups))
	e.gauge("request_types", "Request types.", float64(t.types))
	e.gauge("problems", "Open problems.", float64(len(s.problems)))
	e.gauge("problems_uninvestigated", "Open problems queued for investigation.", float64(t.uninvestigated))
	e.gauge("investigations", "Active investigations.", float64(t.investigations))
	e.gauge("tracepoints_on", "Enabled tracepoints.", float64(t.on))
	e.gauge("overrides", "Tracepoints with an override.", float64(t.overrides))
	e.gauge("plan_version", "Version of the plan.", float64(t.version))
	e.gauge("tree_nodes", "Calling contexts in the trees.", float64(t.treeNodes))
	e.counter("tree_dropped_contexts_total", "Calling contexts beyond the limit of trees.", int64(t.treeLost))
	e.counter("groups_refused_requests_total", "Requests without a group of their own, because of the limit on groups.", int64(t.refused))
	e.counter("groups_evicted_total", "Groups evicted at the limit on groups.", int64(t.evicted))
	e.counter("learning_dropped_requests_total", "Requests beyond the limit of the learning period.", int64(t.unlearned))
	e.counter("names_refused_total", "Names beyond the limit of the dictionary.", int64(t.unnamed))
	e.gauge("unranked_spans", "Spans of the last one to two hours without a percentile, because of the limit on operations.", float64(t.unranked))
}
