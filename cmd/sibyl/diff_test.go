package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares got with the golden file name, or rewrites the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// faulty writes two files with half a minute each of a simulated application, from 14:13:20 UTC. A fault starts with
// the second file. It returns the names of the files and the faulty service.
func faulty(t *testing.T) (before, after, service string) {
	t.Helper()
	const onset = trace.Nanos(1_790_000_030_000_000_000)
	app := sim.New(sim.Config{
		Seed:          23,
		Fault:         sim.Steady,
		Strength:      3,
		Tracepoints:   250,
		Services:      9,
		Rate:          20,
		Optional:      0.05,
		Caches:        -1,
		AllAttributes: true,
	})
	app.Inject(onset)
	write := func(name string, from trace.Nanos) string {
		var all bytes.Buffer
		for t1 := range app.Requests(from, from.Add(30*time.Second), nil) {
			doc, err := tracegen.JSON([]*trace.Trace{t1}, app.Table())
			if err != nil {
				t.Fatal(err)
			}
			all.Write(doc)
			all.WriteByte('\n')
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before, after = write("before.jsonl", onset.Add(-30*time.Second)), write("after.jsonl", onset)
	return before, after, app.Table().ServiceName(app.Target().Operations[0])
}

// Both commands name the faulty service, and print the same evidence.
func TestCompare(t *testing.T) {
	before, after, service := faulty(t)
	window := sibyl(t, "", "analyze", "--window", "14:13:50..", before, after)
	diff := sibyl(t, "", "diff", before, "--", after)
	for name, r := range map[string]result{"window.txt": window, "diff.txt": diff} {
		if r.code != 0 || r.err != "" {
			t.Errorf("%s: exit code %d, %s", name, r.code, r.err)
		}
		golden(t, name, r.out)
	}
	type doc struct {
		Sentence string
		Window   struct{ Traces int }
		Baseline struct{ Traces int }
		Suspects []struct {
			Service    string
			Score      float64
			Parts      map[string]float64
			Operations []struct{ Operation, Kind string }
		}
		RequestTypes []struct {
			RequestType string `json:"request_type"`
			Slower      *bool
		} `json:"request_types"`
	}
	var byTime, byFile doc
	for _, x := range []struct {
		r  result
		to *doc
	}{
		{sibyl(t, "", "analyze", "-o", "json", "--window", "14:13:50..", before, after), &byTime},
		{sibyl(t, "", "diff", "-o", "json", before, "--", after), &byFile},
	} {
		if err := json.Unmarshal([]byte(x.r.out), x.to); err != nil {
			t.Fatal(err)
		}
	}
	if first := byTime.Suspects[0]; first.Service != service ||
		first.Score <= 0 || len(first.Parts) != 9 || len(first.Operations) == 0 {
		t.Errorf("the first suspect is %+v, want %s with a score, nine parts and operations", first, service)
	}
	if !strings.Contains(byTime.Sentence, "since 14:13:50") || !strings.Contains(byFile.Sentence, "than before") {
		t.Errorf("sentences %q and %q, want the time and the order", byTime.Sentence, byFile.Sentence)
	}
	byFile.Sentence = byTime.Sentence
	if diff := cmp.Diff(byTime, byFile); diff != "" {
		t.Errorf("by time (-) and by file (+):\n%s", diff)
	}
}

func TestCompareUsage(t *testing.T) {
	small := filepath.Join("..", "..", "testdata", "small.otlp.jsonl")
	for _, c := range []struct {
		args string
		code int
		err  string
	}{
		{"diff", 2, "separate the files BEFORE from the files AFTER with --"},
		{"diff F F", 2, "separate the files BEFORE from the files AFTER with --"},
		{"diff -- F", 2, "BEFORE is missing"},
		{"diff F --", 2, "AFTER is missing"},
		{"diff - -- -", 2, "one side only"},
		{"diff -o html F -- F", 2, "table, json"},
		{"diff --top=-1 F -- F", 2, "--top"},
		{"diff --config=nowhere F -- F", 1, "nowhere"},
		{"diff --overlap-tolerance=0.5 F -- F", 1, "overlap tolerance"},
		{"diff F -- nowhere", 1, "nowhere"},
		{"diff F -- F", 1, "the files before hold too few traces to compare with: 12"},
		{"diff - -- F", 1, "the files before hold too few traces to compare with: 0"},
		{"diff F -- F -o json", 2, "-o comes after --"},
		{"diff F -- ./-o", 1, "read ./-o: no such file"},
		{"diff " + shopTraces + " -- -", 1, "the files after hold no trace"},
		{"analyze --window 14:13:30.. -", 1, "no trace that could be read"},
		{"analyze --window 14:13 F", 2, "--window: \"14:13\": want FROM..TO"},
		{"analyze --window= F", 2, "--window: \"\": want FROM..TO"},
		{"analyze --window +1s.. --baseline= F", 2, "--baseline: \"\": want FROM..TO"},
		{"analyze --window 14:13..14:12 F", 2, "write the earlier time first"},
		{"analyze --window +9m..+8m F", 2, "write the earlier time first"},
		{"analyze --window 15:00.. F", 1, "outside of the traces"},
		{"analyze --window +0s.. F", 1, "too few traces to compare with begin outside of the window"},
		{"analyze --baseline +0s.. F", 2, "--baseline needs a window"},
		{"analyze --window +1s.. --baseline x F", 2, "--baseline: \"x\": want FROM..TO"},
		{"analyze --window +1s.. -o html F", 2, "-o html does not apply"},
		{"analyze --window +1s.. --split F", 2, "--split does not apply"},
		{"analyze --window +1s.. --fail-on-problem F", 2, "--fail-on-problem does not apply"},
		{"analyze --window +1s.. --top=-1 F", 2, "--top"},
	} {
		r := sibyl(t, "", strings.Fields(strings.ReplaceAll(c.args, "F", small))...)
		if r.code != c.code || !strings.Contains(r.err, c.err) || r.out != "" {
			t.Errorf("sibyl %s: exit code %d, %q, output %q; want %d, %q and no output",
				c.args, r.code, r.err, r.out, c.code, c.err)
		}
	}
	if r := sibyl(t, "", "diff", shopTraces, "--", small); r.code != 0 ||
		!strings.Contains(r.out, "    before   2026-09-21") {
		t.Errorf("exit code %d, %q: got %q, want a comparison", r.code, r.err, r.out)
	}
}

// The rules of the configuration name request types.
func TestCompareConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sibyl.yaml")
	if err := os.WriteFile(path, []byte("rules:\n  - {entry: payment UpdateToken, name: token}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"analyze", "-o", "json", "--config", path, "--window", "+30s..", shopTraces},
		{"diff", "-o", "json", "--config", path, shopTraces, "--", shopTraces},
	} {
		if r := sibyl(t, "", args...); r.code != 0 || !strings.Contains(r.out, `"request_type": "token"`) {
			t.Errorf("%q: exit code %d, %q: got no request type named token in\n%s", args, r.code, r.err, r.out)
		}
	}
}
