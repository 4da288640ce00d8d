// Package telemetry queries other systems about the first suspect of an incident: Loki for logs, a server with the
// Prometheus API for metrics, and Kubernetes for restarts and events of pods.
//
// People wait for the results at three in the morning, and the queried systems may themselves be slow. So each query
// has a time limit, the size of its response is limited, and only a few queries run at once. Only the configured
// servers are called: redirects are not followed, and names from traces can't inject anything into a query.
package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Limits on queries.
const (
	queryTimeout  = 5 * time.Second // less than a request to the API may take
	maxAnswer     = 8 << 20         // bytes
	maxConcurrent = 6               // queries, for all users together
	maxReason     = 200             // bytes of a server's error message
)

// Server is a server to query.
type Server struct {
	URL       string            // empty: no such server
	Transport http.RoundTripper // adds the authorization
}

// Metric is a Prometheus query. The placeholders {service}, {pod} and {instance} stand for the suspect.
type Metric struct {
	Name  string
	Query string
	Unit  contract.TelemetryUnit
}

// Options configure Backends.
type Options struct {
	Loki       Server
	LogQuery   string // selects the logs of a service, with placeholders as in Metric
	Prometheus Server
	Metrics    []Metric
	Kubernetes Server
	Namespace  string // of the pods; empty: all namespaces
	Log        *slog.Logger
}

// Backends queries the configured systems. It is safe for concurrent use.
type Backends struct {
	options Options
	turns   chan struct{} // semaphore; holds an element for each running query
}

// New returns backends with the given options.
func New(o Options) *Backends { return &Backends{o, make(chan struct{}, maxConcurrent)} }

// Question selects a service, or one of its instances, and a window of time.
type Question struct {
	Service  string
	Instance string // instance with most of the cost; empty: unknown
	Pod      string // name of the pod; empty: unknown
	From     time.Time
	Onset    time.Time
	To       time.Time
}

// About queries all configured systems concurrently. If a system fails, the result contains its error.
func (b *Backends) About(ctx context.Context, q *Question) *contract.IncidentTelemetry {
	x := &contract.IncidentTelemetry{Service: q.Service, From: q.From, Onset: q.Onset, To: q.To}
	if q.Instance != "" {
		x.Instance = &q.Instance
	}
	var asked sync.WaitGroup
	if b.options.Loki.URL != "" {
		x.Logs = &contract.TelemetryLogs{}
		asked.Go(func() {
			lines, err := b.logs(ctx, q)
			x.Logs.Lines, x.Logs.Error = lines, b.say(ctx, "Loki", err)
		})
	}
	if b.options.Prometheus.URL != "" {
		metrics := make([]contract.TelemetryMetric, len(b.options.Metrics))
		x.Metrics = &metrics
		for i := range metrics {
			asked.Go(func() { metrics[i] = b.metric(ctx, q, &b.options.Metrics[i]) })
		}
	}
	if b.options.Kubernetes.URL != "" {
		x.Kubernetes = &contract.TelemetryPods{}
		asked.Go(func() {
			events, err := b.pods(ctx, q)
			x.Kubernetes.Events, x.Kubernetes.Error = events, b.say(ctx, "Kubernetes", err)
		})
	}
	asked.Wait()
	return x
}

// failure is an error with a text that may be shown to everybody who can see the incident.
type failure struct{ text string }

func (f failure) Error() string { return f.text }

// say logs err and returns one line about it for users, without addresses. It returns nil if err is nil or the request
// was canceled.
func (b *Backends) say(ctx context.Context, system string, err error) *string {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // nobody waits for the answer any more
		return nil
	}
	b.options.Log.LogAttrs(ctx, slog.LevelWarn, "a query about an incident failed",
		slog.String("system", system), slog.Any("error", err))
	text := system + " cannot be reached; the log of Sibyl says why"
	if f, ok := errors.AsType[failure](err); ok {
		text = system + " " + f.text
	} else if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("%s did not answer within %s", system, queryTimeout)
	}
	return &text
}

// get fetches JSON from a path below the URL of s, and decodes it into answer.
func (b *Backends) get(ctx context.Context, s *Server, path string, query url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // the person has left
			return ctx.Err()
		}
		return failure{"was not asked: too many queries at once; try again"}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(s.URL, "/")+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport:     s.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	got, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case got.StatusCode != http.StatusOK:
		return failure{"answered " + got.Status + reason(body)}
	case len(body) > maxAnswer:
		return failure{"answered with more than 8 MiB; narrow the query or the namespace in the configuration"}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return failure{"gave no valid answer; check its URL in the configuration"}
	}
	return nil
}

// reason returns a colon and the first line of the server's error message in body, or "" if there is no message.
func reason(body []byte) string {
	var said struct {
		Error   string // of Prometheus
		Message string // of Loki and Kubernetes
	}
	if json.Unmarshal(body, &said) == nil {
		body = []byte(said.Error + said.Message)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	text := strings.ToValidUTF8(string(line[:min(len(line), maxReason)]), "")
	if text == "" || strings.HasPrefix(text, "<") {
		return ""
	}
	return ": " + text
}

// expand replaces the placeholders in a query. If the pod is unknown, {pod} matches the pods of a workload that is
// called like the service; if the instance is unknown, {instance} matches all instances.
func (q *Question) expand(query string) string {
	pod, instance := literal(q.Service)+podSuffix, ".*"
	if q.Pod != "" {
		pod = literal(q.Pod)
	}
	if q.Instance != "" {
		instance = literal(q.Instance)
	}
	return strings.NewReplacer("{service}", literal(q.Service), "{pod}", pod, "{instance}", instance).Replace(query)
}

// literal returns a regular expression that matches name and needs no escapes in any kind of quotes, so that a name
// from a trace can't end the quotes. Unusual characters become dots, which match any character. Other names don't
// change, so they also work in queries that compare them with =.
func literal(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_-:/@ ", r):
			return r
		}
		return '.'
	}, name)
}
