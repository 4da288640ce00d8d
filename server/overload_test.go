package server

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// A service that is offered far more than it takes refuses with a time to wait, answers everybody who asks, stays within its memory, and
// takes requests afterwards. How fast all that goes is printed by sibylbench overload, and not tested.
func TestOffered(t *testing.T) {
	t.Parallel()
	length, factor, inFlight, request := "1s", "20", "6MiB", "1MiB" // so that a second fills what may be in flight, however slow the machine
	if *soak {
		length, factor, inFlight, request = "5m", "3", "32MiB", "8MiB"
	}
	out, err := exec.CommandContext(t.Context(), program(t), "bench", "overload", "--time", length, "--factor", factor, "--input", "4MiB", "-o", "json", //nolint:gosec // our own program
		"--", "--memory", "1GiB", "--otlp-max-in-flight", inFlight, "--otlp-max-request", request, "--learning", "10s").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
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
