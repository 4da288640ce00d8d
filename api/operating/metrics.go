package operating

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/internal/metric"
)

// metrics serves /metrics. It reads the counters of the service at each scrape, and measures the requests to the API.
type metrics struct {
	handlers *Operating
	handler  http.Handler
	requests *prometheus.HistogramVec
}

// scrapeTimeout limits the time that a scrape waits for the engine. After that, the scrape shows the latest snapshot.
const scrapeTimeout = time.Second

func newMetrics(a *Operating) *metrics {
	m := &metrics{handlers: a, requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sibyl_api_request_seconds", Help: "Duration of API requests, by operation; streams count when they end.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 10},
	}, []string{"operation"})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, m.requests)
	if a.options.Tenant == "" { // other tenants don't see the metrics of the whole process
		registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	all := prometheus.Gatherers{registry}
	if a.options.Registry != nil {
		all = append(all, a.options.Registry)
	}
	limits := promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError}
	m.handler = promhttp.HandlerFor(all, limits)
	return m
}

// Metrics returns the handler of /metrics.
func (a *Operating) Metrics() http.Handler { return a.metrics.handler }

// Collectors returns the collectors of the metrics of this API.
func (a *Operating) Collectors() []prometheus.Collector {
	return []prometheus.Collector{a.metrics, a.metrics.requests}
}

// Observe adds a request for an operation, and its duration, to the metrics.
func (a *Operating) Observe(operation string, took time.Duration) {
	a.metrics.requests.WithLabelValues(operation).Observe(took.Seconds())
}

// Describe implements prometheus.Collector. The set of metrics depends on the configuration and on traffic.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	e := metric.Emitter(out)
	o := &m.handlers.options
	e.Gauge("build_info", "Version of this build; always 1.", 1, "version", o.Version, "go", o.Go)
	e.Flag("ready", "1 once the journal has been read, unless another replica leads.", m.handlers.service.Ready())
	e.Flag("standby", "1 while another replica leads.", m.handlers.service.Leader() != "")
	space := m.handlers.service.Space()
	e.Flag("refuses_for_space", "1 while traces are refused because the disk or the journal is full.",
		space >= live.SpaceLow)
	e.Flag("stopped_for_space", "1 while nothing is judged because the disk is full.", space >= live.SpaceNone)
	m.ingest(e)
	m.engine(e)
	m.agents(e)
	streams, slow := m.handlers.hub.readers()
	e.Gauge("api_streams", "Event streams.", float64(streams))
	e.Counter("api_streams_cut_total", "Event streams closed because the reader was too slow.", int64(slow))
	if o.Queues != nil {
		for _, q := range o.Queues() {
			e.Gauge("queue_length", "Length of a queue.", float64(q.Length), "queue", q.Name)
			e.Gauge("queue_capacity", "Capacity of a queue; 0: unlimited.", float64(q.Most), "queue", q.Name)
		}
	}
	if o.Bytes != nil {
		for _, b := range o.Bytes() {
			e.Gauge("size_bytes", "Size of a part of the service.", float64(b.Length), "part", b.Name)
			e.Gauge("size_limit_bytes", "Size limit of a part of the service; 0: unlimited.",
				float64(b.Most), "part", b.Name)
		}
	}
}

// ingest emits the metrics of the intake, the journal and traces.
func (m *metrics) ingest(e metric.Emitter) {
	n := m.handlers.service.Counts()
	e.Counter("ingest_requests_total", "Accepted export requests.", n.Requests.Load())
	e.Counter("ingest_spans_total", "Accepted spans.", n.Spans.Load())
	e.Gauge("ingest_arrival_seconds", "Arrival of the last spans of analysed "+
		"requests, in seconds since 1970; 0: unknown.", float64(n.Arrived.Load())/1e9)
	e.Counter("ingest_rejected_spans_total", "Spans rejected from accepted export requests.", n.Rejected.Load())
	const refused = "Export requests refused with a time to retry, by reason."
	e.Counter("ingest_refused_requests_total", refused, n.Refused.Busy.Load(), "reason", "busy")
	e.Counter("ingest_refused_requests_total", refused, n.Refused.Full.Load(), "reason", "disk_full")
	e.Counter("ingest_refused_requests_total", refused, n.Refused.Memory.Load(), "reason", "memory")
	e.Counter("ingest_refused_requests_total", refused, n.Refused.Quota.Load(), "reason", "quota")
	e.Counter("journal_damaged_records_total", "Unreadable or missing records of the journal.", n.Damaged.Load())
	e.Counter("journal_commits_total", "Commits to the journal.", n.Commits.Load())
	e.Seconds("journal_commit_seconds_total", "Time spent on commits to the journal.", time.Duration(n.Waited.Load()))
	for reason := range assemble.CloseReasons {
		e.Counter("traces_closed_total", "Closed traces, by reason; those with the reasons "+
			"complete and idle are analysed.", n.Closed[reason].Load(), "reason", reason.String())
	}
	for reason, count := range n.Unusable() {
		e.Counter("traces_unusable_total", "Analysed traces, or roots of them, "+
			"excluded from the statistics, by reason.", count, "reason", string(reason))
	}
	for key, count := range n.Unnamed() {
		e.Counter("attribute_values_unnamed_total",
			"Values of attributes shown as (other), because their key has too many, by key.", count, "key", key)
	}
	e.Counter("names_forgotten_total",
		"Names deleted from the dictionary because nothing uses them any longer.", n.Names.Load())
	open := n.Open()
	e.Gauge("open_traces", "Traces waiting for more spans.", float64(open.Traces))
	e.Gauge("open_spans", "Spans of open traces.", float64(open.Spans))
	e.Gauge("open_bytes", "Memory of open traces.", float64(open.Bytes))
	e.Gauge("remembered_traces", "Closed traces that Sibyl remembers, so that late spans do not reopen them.",
		float64(open.Remembered))
	e.Counter("late_spans_total", "Spans that arrived after their trace was closed.", open.Late)
	e.Counter("duplicate_spans_total",
		"Accepted spans that were ignored because they had arrived before.", n.Duplicates())
	e.Counter("journal_bytes_total", "Bytes appended to the journal.", n.Packed.Load())
	e.Counter("exemplars_missed_total", "Sample traces that could not be kept.", n.ExemplarsLate.Load())
	const forgotten = "Exemplars, and decisions by epoch, deleted early to free space."
	e.Counter("retention_forgotten_total", forgotten, n.Forgotten.Decisions.Load(), "what", "decisions")
	e.Counter("retention_forgotten_total", forgotten, n.Forgotten.Exemplars.Load(), "what", "exemplars")
	e.Gauge("epoch_work_seconds", "Time spent on the decisions of the last epoch.",
		time.Duration(n.Decided.Load()).Seconds())
	e.Counter("epochs_total", "Epochs.", n.Epochs.Load())
	e.Gauge("epoch_overdue_seconds", "Time since the next epoch should have ended; 0 if it isn't overdue.",
		m.handlers.service.Lag().Overdue.Seconds())
	e.Gauge("checkpoint_work_seconds", "Time for which the last checkpoint paused decisions; intake went on.",
		time.Duration(n.Encoded.Load()).Seconds())
	e.Counter("checkpoints_total", "Successful checkpoints.", n.Checkpoints.Load())
	e.Counter("checkpoints_failed_total", "Failed checkpoints.", n.Unsaved.Load())
}

// engine emits the metrics of the engine as of the last epoch.
func (m *metrics) engine(e metric.Emitter) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // prometheus passes none
	defer cancel()
	s, err := m.handlers.reader.Current(ctx)
	if err != nil {
		s = m.handlers.reader.Latest()
	}
	if s == nil {
		return
	}
	t := &s.Tally
	e.Flag("learning", "1 during the learning period.", !s.Learned)
	e.Gauge("epoch_end_seconds", "End of the latest published epoch, in seconds since 1970.", float64(s.Ended)/1e9)
	e.Gauge("groups", "Groups and request types.", float64(t.Groups))
	e.Gauge("request_types", "Request types.", float64(t.Types))
	const incidents = "Incidents by state; closed ones until they are deleted."
	e.Gauge("incidents", incidents, float64(t.OpenIncidents), "state", "open")
	e.Gauge("incidents", incidents, float64(len(s.Incidents)-t.OpenIncidents), "state", "closed")
	e.Counter("incidents_opened_total", "Incidents that opened, or opened again, since the start.",
		m.handlers.opened.Load())
	m.coverage(e, s)
	m.incidents(e, s)
	m.objectives(e, s)
	e.Gauge("problems", "Open problems.", float64(len(s.Problems)))
	e.Gauge("problems_uninvestigated", "Open problems queued for investigation.", float64(t.Uninvestigated))
	e.Gauge("investigations", "Active investigations.", float64(t.Investigations))
	e.Gauge("tracepoints_on", "Enabled tracepoints.", float64(t.On))
	e.Gauge("overrides", "Tracepoints with an override.", float64(t.Overrides))
	e.Gauge("plan_version", "Version of the plan.", float64(t.Version))
	e.Gauge("tree_contexts", "Calling contexts of all request types.", float64(t.Contexts))
	e.Gauge("tree_nodes", "Nodes of the trees built from them.", float64(t.TreeNodes))
	e.Counter("tree_dropped_contexts_total",
		"Times that a request had a new calling context for which there was no room.", int64(t.TreeLost))
	e.Counter("groups_refused_requests_total", "Requests without a group of their own, because of the limit on groups.",
		int64(t.Refused))
	e.Counter("groups_evicted_total", "Groups evicted at the limit on groups.", int64(t.Evicted))
	e.Counter("calls_without_target_total",
		"Calls counted without their external target, because their operation calls too many.", int64(t.Bare))
	e.Gauge("sites", "Calls of an operation by another that are counted for incidents.", float64(t.Sites))
	e.Counter("calls_without_site_total",
		"Calls not counted for incidents, because there are too many sites.", int64(t.Uncounted))
	const messages = "Messages received in another trace than the sender's. joined: their time in the queue is " +
		"known; lost: it is not, because no trace of the last hour has the sender."
	e.Counter("linked_messages_total", messages, int64(t.Joined), "outcome", "joined")
	e.Counter("linked_messages_total", messages, int64(t.Lost), "outcome", "lost")
	e.Counter("learning_dropped_requests_total", "Requests beyond the limit of the learning period.",
		int64(t.Unlearned))
	e.Counter("names_refused_total", "Names beyond the limit of the dictionary.", int64(t.Unnamed))
	e.Gauge("unranked_spans", "Spans of the last one to two hours without a percentile, "+
		"because of the limit on operations.", float64(t.Unranked))
}

// coverage emits the share of spans that are judged, as of the last epoch.
func (m *metrics) coverage(e metric.Emitter, s *epoch.Snapshot) {
	e.Gauge("coverage_ratio", "Share of the spans, or of their time, of the last ten to twenty minutes that is judged.",
		s.Coverage.ShareOfSpans, "of", "spans")
	e.Gauge("coverage_ratio", "Share of the spans, or of their time, of the last ten to twenty minutes that is judged.",
		s.Coverage.ShareOfTime, "of", "time")
	for x, p := range s.Outcomes {
		e.Counter("covered_spans_total", "Spans by service and outcome: judged as part of a request or of a "+
			"request of its own, or left out for a reason.", p.Spans, "service", x.Service, "outcome", x.Outcome)
		e.Seconds("covered_span_seconds_total", "Sum of the durations of these spans, of those shorter than an hour.",
			time.Duration(p.Nanos), "service", x.Service, "outcome", x.Outcome)
	}
}
