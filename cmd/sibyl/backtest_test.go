package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// recording writes two files: 25 minutes of a simulated application, newest traces first, and labels. A fault starts
// after 18 minutes. It returns the names of the files and the faulty service.
func recording(t *testing.T) (traces, labels, service string) {
	t.Helper()
	const from = trace.Nanos(1_790_000_000_000_000_000)
	onset, end := from.Add(18*time.Minute), from.Add(25*time.Minute)
	app := sim.New(sim.Config{
		Seed:        23,
		Fault:       sim.Steady,
		Strength:    3,
		Tracepoints: 60,
		Services:    6,
		Rate:        4,
		Optional:    0.05,
		Caches:      -1,
	})
	app.Inject(onset)
	var lines [][]byte
	for t1 := range app.Requests(from, end, nil) {
		doc, err := tracegen.JSON([]*trace.Trace{t1}, app.Table())
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, append(doc, '\n'))
	}
	var all bytes.Buffer
	for i := range lines {
		all.Write(lines[len(lines)-1-i])
	}
	service = app.Table().ServiceName(app.Target().Operations[0])
	label := fmt.Sprintf(
		`{"name": "steady", "fault": "cpu", "start_unix_nano": "%d", "end_unix_nano": %d, "target": {"service": %q}}`,
		onset, end, service)
	dir := t.TempDir()
	traces, labels = filepath.Join(dir, "traces.jsonl"), filepath.Join(dir, "faults.jsonl")
	for name, data := range map[string][]byte{traces: all.Bytes(), labels: []byte(label + "\n")} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return traces, labels, service
}

// The command names the faulty service, regardless of the order of the traces and the memory limit.
func TestBacktest(t *testing.T) {
	traces, labels, service := recording(t)
	r := sibyl(t, "", "backtest", "--incidents", labels, "-o", "json", traces)
	if r.code != 0 || r.err != "" {
		t.Fatalf("exit code %d, %s", r.code, r.err)
	}
	var doc struct {
		Traces    int
		Learning  int64 `json:"learning_until_unix_nano"`
		Incidents []struct {
			ID, Sentence string
			Closed       *int64 `json:"closed_unix_nano"`
			Suspects     []struct{ Service string }
		}
		Score struct {
			Raised, Top1   float64
			FalseIncidents int     `json:"false_incidents"`
			HealthyHours   float64 `json:"healthy_hours"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Incidents) == 0 || len(doc.Incidents[0].Suspects) == 0 ||
		doc.Incidents[0].Suspects[0].Service != service || doc.Incidents[0].ID == "" {
		t.Fatalf("got %.500s, want an incident with suspect %s", r.out, service)
	}
	if s := doc.Score; s.Raised != 1 || s.Top1 != 1 || s.FalseIncidents != 0 ||
		s.HealthyHours < 0.14 || s.HealthyHours > 0.16 {
		t.Errorf("got score %+v", s)
	}
	again := sibyl(t, "", "backtest", "--incidents", labels, "-o", "json", "--memory", "4MiB", "--workers", "1", traces)
	if again.out != r.out {
		t.Errorf("with less memory: exit code %d, %s, %s; want the same incidents", again.code, again.err, again.out)
	}
	table := sibyl(t, "", "backtest", "--incidents", labels, traces)
	if table.code != 0 || !strings.Contains(table.out, doc.Incidents[0].Sentence[:20]) ||
		!strings.Contains(table.out, "0 false incidents") {
		t.Errorf("exit code %d, %s, %s", table.code, table.err, table.out)
	}
	text, err := os.ReadFile(labels)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	if again := sibyl(t, packed.String(), "backtest", "--incidents", "-", traces); again.out != table.out {
		t.Errorf("with compressed labels from standard input: %s, %s; want %s", again.err, again.out, table.out)
	}
	slow := filepath.Join(t.TempDir(), "sibyl.yaml")
	if err := os.WriteFile(slow, []byte("learning: 2h"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.out, "  Requests of ") {
		t.Errorf("%s: no sentence names the requests that are slower", table.out)
	}
	// Only the sentence differs: it isn't known yet which request types are slower.
	sentence := regexp.MustCompile(`(?s)  (Requests of|All requests) .*?\.\n`)
	again = sibyl(t, "", "backtest", "--incidents", labels, "--config", slow, traces)
	if got, want := sentence.ReplaceAllString(again.out, ""), sentence.ReplaceAllString(table.out, ""); got != want {
		t.Errorf("while problems are still learned: %s, %s; want the same incidents as %s", again.err, got, want)
	}
}

// TestAnalyzeIncidents checks that analyze begins with the incidents that backtest reports.
func TestAnalyzeIncidents(t *testing.T) {
	if testing.Short() {
		t.Skip("TestBacktest plays the same recording")
	}
	traces, _, _ := recording(t)
	type report struct{ Incidents, Problems []any }
	run := func(code int, args ...string) (doc report) {
		r := sibyl(t, "", append(args, "-o", "json", traces)...)
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != code {
			t.Fatalf("%q: exit code %d, %v, %s", args, r.code, err, r.err)
		}
		return doc
	}
	want := run(0, "backtest")
	got := run(4, "analyze", "--fail-on-problem", "--rank", "slowness", "--cov-threshold", "100")
	if len(want.Incidents) != 1 || len(got.Problems) != 0 {
		t.Errorf("%d incidents, %d problems; want 1 and none", len(want.Incidents), len(got.Problems))
	}
	if diff := cmp.Diff(want.Incidents, got.Incidents); diff != "" {
		t.Errorf("(-backtest +analyze)\n%s", diff)
	}
}

func TestBacktestErrors(t *testing.T) {
	small := filepath.Join("..", "..", "testdata", "small.otlp.jsonl")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, 2, "FILE is missing"},
		{[]string{"nowhere"}, 1, "nowhere"},
		{[]string{file("")}, 1, "nothing to play"},
		{[]string{"-o", "html", small}, 2, "table, json"},
		{[]string{"--incidents", "nowhere", small}, 1, "known faults: read nowhere: no such file"},
		{[]string{"--incidents", "-", "-"}, 2, "either the traces or the faults"},
		{[]string{"--incidents=", small}, 1, "known faults: read"},
		{[]string{"--incidents", file(`{"name": "a"}`), small}, 1, "file:1: malformed fault: no target.service"},
		{[]string{"--config", file("epoch: soon"), small}, 1, "epoch"},
		{[]string{"--config", file("learning: 1m"), small}, 0, ""},
	} {
		r := sibyl(t, "", append([]string{"backtest"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.want)
		}
	}
}
