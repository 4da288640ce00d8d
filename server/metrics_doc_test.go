package server

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/config"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table of metrics in docs/operations.md")

// The table of metrics in docs/operations.md equals the metrics of a service with all features. Run go test ./server
// -run Document -rewrite to rewrite it.
func TestMetricsDocument(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"services":[]}`)
	}))
	defer other.Close()
	env := volatile(t.TempDir())
	maps.Copy(env, map[string]string{
		"SIBYL_WEBHOOKS":     `[{name: hook, url: "` + other.URL + `", allow-private: true}]`,
		"SIBYL_JAEGER_QUERY": `[{url: "` + other.URL + `", interval: 1s, lookback: 1m}]`,
		"SIBYL_EXPORT_OTLP":  other.URL,
		"SIBYL_OBJECTIVES":   `[{entry: shop, errors: 0.01}]`,
	})
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, &slog.LevelVar{}, io.Discard)
	at := s.Addresses()
	now := time.Now().UnixNano() // start and end of the request; a duration of 0 is unusable
	body := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{
		"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","name":"x","kind":2,
		"startTimeUnixNano":%d,"endTimeUnixNano":%[1]d
	}]}]}]}`, now)
	r, err := http.Post("http://"+at.HTTP.String()+"/v1/traces", "application/json", strings.NewReader(body))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	r.Body.Close()
	text := ""
	get := func(path string) string {
		r, err := http.Get("http://" + at.API.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	eventually(t, "all metrics are served", func() bool {
		get("/api/v1/status")
		text = get("/metrics")
		return strings.Contains(text, "sibyl_traces_unusable_total{") &&
			strings.Contains(text, "sibyl_jaeger_through_seconds{") &&
			strings.Contains(text, "sibyl_covered_spans_total{") // sent with the first epoch after the trace closed
	})

	var table strings.Builder
	table.WriteString("| metric | labels | |\n|---|---|---|\n")
	labels := regexp.MustCompile(`([a-z_]+)="`)
	for _, m := range regexp.MustCompile(`(?m)^# HELP (sibyl_\S+) (.*)$`).FindAllStringSubmatch(text, -1) {
		keys := make(map[string]bool)
		samples := regexp.MustCompile(`(?m)^` + m[1] + `(?:_bucket)?\{(.*)\} `)
		for _, sample := range samples.FindAllStringSubmatch(text, -1) {
			for _, key := range labels.FindAllStringSubmatch(sample[1], -1) {
				keys[key[1]] = true
			}
		}
		delete(keys, "le")
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", m[1], strings.Join(slices.Sorted(maps.Keys(keys)), ", "), m[2])
	}
	const begin = "<!-- metrics: made by go test ./server -run Document -rewrite -->\n"
	const file, end = "../docs/operations.md", "<!-- end of metrics -->\n"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(doc), begin)
	there, after, complete := strings.Cut(rest, end)
	if !found || !complete {
		t.Fatal("docs/operations.md lacks the marks around the metrics")
	}
	switch {
	case there == table.String():
	case *rewrite:
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of metrics in docs/operations.md differs; want\n%s", table.String())
	}
}
