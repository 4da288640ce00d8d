package main

import (
	"encoding/json"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

// TestIngest: two builds, which are the same, learn, get the same load, and are compared. The test does not check
// rates.
func TestIngest(t *testing.T) {
	t.Parallel()
	r := sibylbench(t, "ingest", "--time", "3s", "--rate", "2000",
		"--input", "1MiB", "--against", program, "-o", "json",
		"--", "--learning", "1s", "--epoch", "1s", "--assembly-timeout", "1s")
	var doc struct{ Results []map[string]any }
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != cli.ExitOK {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	rows := make(map[any]map[string]any)
	for _, row := range doc.Results {
		rows[row["name"]] = row
	}
	for _, prefix := range []string{"", "against: "} {
		if n, ok := rows[prefix+"accepted"]["spans"].(float64); !ok || n == 0 {
			t.Errorf("%saccepted no spans: %s", prefix, r.out)
		}
	}
	for _, name := range []string{"CPU per span, ratio", "resident memory, ratio"} {
		low, ok := rows[name]["low"].(float64)
		high, ok2 := rows[name]["high"].(float64)
		if ratio, ok3 := rows[name]["ratio"].(float64); !ok || !ok2 || !ok3 || low > ratio || ratio > high {
			t.Errorf("%s: %v", name, rows[name])
		}
	}
}
