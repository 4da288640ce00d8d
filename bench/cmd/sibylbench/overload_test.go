package main

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

var soak = flag.Bool("soak", false,
	"overload the server for minutes instead of a second, and run the tests that take minutes")

// TestOverload: a service under several times its capacity refuses requests with a retry delay, answers all queries,
// stays within its memory limit, and accepts requests afterwards. The test does not check rates.
func TestOverload(t *testing.T) {
	t.Parallel()
	// A second reaches the limit of bytes in flight, 12 MiB, on any machine.
	length, factor, memory := "1s", "20", "64MiB"
	if *soak {
		length, factor, memory = "5m", "3", "1GiB"
	}
	r := sibylbench(t, "overload", "--time", length, "--factor", factor, "--input", "4MiB", "-o", "json",
		"--", "--memory", memory, "--otlp-max-request", "1MiB", "--learning", "10s")
	if r.code != cli.ExitOK {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	out := []byte(r.out)
	var doc struct{ Results []map[string]any }
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatal(err)
	}
	figure := func(row, key string) float64 {
		for _, r := range doc.Results {
			if x, ok := r[key].(float64); ok && r["name"] == row {
				return x
			}
		}
		t.Fatalf("no %s of %s in %s", key, row, out)
		return 0
	}
	const problems = "GET /api/v1/problems"
	if figure("refused", "refused") == 0 {
		t.Errorf("no request was refused: %s", out)
	}
	if n := figure("refused", "without_hint"); n != 0 {
		t.Errorf("%v refusals without a retry delay, want 0", n)
	}
	if n := figure(problems, "failed"); n != 0 || figure(problems, "answers") == 0 {
		t.Errorf("%v queries failed and %v succeeded, want only successes", n, figure(problems, "answers"))
	}
	if x := figure("peak server memory", "peak_bytes"); x > 1<<30 {
		t.Errorf("peak memory %.0f MiB, want at most 1024", x/(1<<20))
	}
	if figure("last refusal after the overload", "taken_spans_per_second") == 0 {
		t.Error("no request was accepted afterwards")
	}
}
