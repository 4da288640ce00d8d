package main

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
)

var soak = flag.Bool("soak", false, "offer too much for minutes instead of a second")

// A service under several times the load that it can take refuses with a time to wait, answers every query, stays within its memory, and
// takes requests afterwards. The rates are printed by sibylbench overload, and not tested.
func TestOverload(t *testing.T) {
	t.Parallel()
	length, factor, inFlight, request := "1s", "20", "6MiB", "1MiB" // so that a second fills the limit in flight, however slow the machine
	if *soak {
		length, factor, inFlight, request = "5m", "3", "32MiB", "8MiB"
	}
	r := sibylbench(t, "overload", "--time", length, "--factor", factor, "--input", "4MiB", "-o", "json",
		"--", "--memory", "1GiB", "--otlp-max-in-flight", inFlight, "--otlp-max-request", request, "--learning", "10s")
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
		t.Errorf("nothing was refused: %s", out)
	}
	if n := figure("refused", "without_hint"); n != 0 {
		t.Errorf("%v refusals do not say when to come again", n)
	}
	if n := figure(problems, "failed"); n != 0 || figure(problems, "answers") == 0 {
		t.Errorf("%v questions were not answered, %v were", n, figure(problems, "answers"))
	}
	if x := figure("server's memory at the peak", "peak_bytes"); x > 1<<30 {
		t.Errorf("it took %.0f MiB, a GiB was allowed", x/(1<<20))
	}
	if figure("last refusal after the overload", "taken_spans_per_second") == 0 {
		t.Error("nothing is taken afterwards")
	}
}
