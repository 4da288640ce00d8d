package telemetry

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

var onset = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func question() *Question {
	return &Question{
		Service: "cart",
		From:    onset.Add(-30 * time.Minute),
		Onset:   onset,
		To:      onset.Add(10 * time.Minute),
	}
}

// ask returns the answer about q if all three servers answer as serve does.
func ask(t *testing.T, q *Question, serve http.HandlerFunc) *contract.IncidentTelemetry {
	t.Helper()
	s := httptest.NewServer(serve)
	defer s.Close()
	to := Server{s.URL + "/base/", http.DefaultTransport}
	return New(Options{
		Loki:       to,
		LogQuery:   DefaultLogQuery,
		Prometheus: to,
		Metrics:    DefaultMetrics()[:1],
		Kubernetes: to,
		Namespace:  "shop",
		Log:        slog.New(slog.DiscardHandler),
	}).About(t.Context(), q)
}

// record answers with the answers in testdata, written in the documented form of real servers.
func record(t *testing.T, asked map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		file := map[string]string{
			"/base/loki/api/v1/query_range":       "loki.json",
			"/base/api/v1/query_range":            "prometheus.json",
			"/base/api/v1/namespaces/shop/pods":   "pods.json",
			"/base/api/v1/namespaces/shop/events": "events.json",
		}[r.URL.Path]
		query := r.URL.Query()
		if strings.Contains(query.Get("query"), errorFilter) {
			file = "loki-errors.json"
		}
		if r.Method != http.MethodGet {
			t.Errorf("%s %s: nothing but reading is allowed", r.Method, r.URL)
		}
		body, err := os.ReadFile("testdata/" + file)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		if file != "loki-errors.json" {
			asked[file] = query.Get("query") + query.Get("fieldSelector")
		}
		_, _ = w.Write(body)
	}
}

// The answer has the newest errors first, lines that are alike once, means before and after the onset, and restarts.
func TestAbout(t *testing.T) {
	asked := make(map[string]string)
	q := question()
	q.Instance, q.Pod = "cart-7d4b9", "cart-7d4b9"
	var mu sync.Mutex
	serve := record(t, asked)
	x := ask(t, q, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		serve(w, r)
	})
	if x.Logs == nil || x.Metrics == nil || x.Kubernetes == nil || *x.Instance != "cart-7d4b9" {
		t.Fatalf("%+v", x)
	}
	var lines []string
	for _, l := range x.Logs.Lines {
		lines = append(lines, fmt.Sprint(l.Error, l.Count, l.At.Format(" 15:04:05 "), l.Text))
	}
	want := `true 2 12:02:00 error: pool of 12 connections exhausted after 3004 ms
true 1 12:00:30 panic: 7 of 9 shards
false 1 12:01:00 served GET /cart in 12 ms`
	if got := strings.Join(lines, "\n"); got != want || x.Logs.Error != nil {
		t.Errorf("logs:\n%s\nwant:\n%s\n%v", got, want, x.Logs.Error)
	}
	m := (*x.Metrics)[0]
	if len(m.Points) != 3 || m.Before == nil || *m.Before != 0.5 || m.After == nil || *m.After != 2 || m.Error != nil {
		t.Errorf("metric %+v", m)
	}
	var events []string
	for _, e := range x.Kubernetes.Events {
		events = append(events, fmt.Sprint(e.At.Format("15:04 "), e.Pod, " ", e.Reason, " ", e.Warning, " ", e.Text))
	}
	want = `12:03 cart-7d4b9 BackOff true Back-off restarting failed container (4 times)
12:01 cart-7d4b9 OOMKilled true container cart ended with exit code 137; 3 restarts in all`
	if got := strings.Join(events, "\n"); got != want || x.Kubernetes.Error != nil {
		t.Errorf("events:\n%s\nwant:\n%s\n%v", got, want, x.Kubernetes.Error)
	}
	for file, want := range map[string]string{
		"loki.json":       `{service_name=~"cart"}`,
		"prometheus.json": `sum(rate(container_cpu_usage_seconds_total{container!="",pod=~"cart-7d4b9"}[2m]))`,
		"pods.json":       "metadata.name=cart-7d4b9",
		"events.json":     "involvedObject.name=cart-7d4b9",
	} {
		if !strings.Contains(asked[file], want) {
			t.Errorf("%s: asked %s, want %s", file, asked[file], want)
		}
	}
}

// A failure is one line that says who failed, without addresses, and doesn't hide the other answers.
func TestFailures(t *testing.T) {
	large := strings.Repeat(" ", maxAnswer+1)
	for want, serve := range map[string]http.HandlerFunc{
		"Loki answered 400 Bad Request: parse error at line 1": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "parse error at line 1\nmore", http.StatusBadRequest)
		},
		"Loki answered 403 Forbidden: no right": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"status":"error","message":"no right"}`))
		},
		"Loki gave no valid answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"Loki answered with more than 8 MiB": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(large))
		},
		// The redirect would lead to the metadata of a cloud.
		"Loki answered 302 Found": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		},
		"Loki cannot be reached": func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		},
	} {
		x := ask(t, question(), serve)
		if got := x.Logs.Error; got == nil || !strings.HasPrefix(*got, want) ||
			strings.ContainsAny(*got, "\n") || strings.Contains(*got, "127.0.0.1") {
			t.Errorf("%v, want %q", got, want)
		}
		if x.Kubernetes.Error == nil || (*x.Metrics)[0].Error == nil {
			t.Errorf("%s: the other failures are missing: %+v", want, x)
		}
	}
}

type waiting struct{}

func (waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A server that doesn't answer costs five seconds, and so does a turn that isn't free.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{
			Loki:       Server{"http://loki.invalid", waiting{}},
			Prometheus: Server{"http://prometheus.invalid", waiting{}},
			Metrics:    make([]Metric, 2*maxConcurrent),
			Log:        slog.New(slog.DiscardHandler),
		})
		began := time.Now()
		x := b.About(t.Context(), question())
		if took := time.Since(began); took != queryTimeout {
			t.Errorf("the answer took %s", took)
		}
		if got := *x.Logs.Error; got != "Loki did not answer within 5s" &&
			got != "Loki was not asked: too many queries at once; try again" {
			t.Error(got)
		}
		for _, m := range *x.Metrics {
			if m.Error == nil {
				t.Errorf("no failure of %+v", m)
			}
		}
	})
}

// A name from a trace can't leave the quotes of a query.
func TestExpand(t *testing.T) {
	for name, want := range map[string]string{
		"cart.v1":            "cart.v1",
		"shop/cart@eu west":  "shop/cart@eu west",
		"a\"} or `x\\{foo(}": "a.. or .x..foo..",
		"große":              "gro.e",
	} {
		q := &Question{Service: name}
		if got := q.expand("{service}"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := (&Question{Service: "cart"}).expand("{pod} {instance} {other}"); got != "cart"+podSuffix+" .* {other}" {
		t.Errorf("unknown instance: %q", got)
	}
}

// Systems that aren't configured aren't asked.
func TestNothing(t *testing.T) {
	x := New(Options{Log: slog.New(slog.DiscardHandler)}).About(t.Context(), question())
	if x.Logs != nil || x.Metrics != nil || x.Kubernetes != nil {
		t.Errorf("%+v", x)
	}
}
