package api

import (
	"os"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// The contract explains each reason for leaving out spans.
func TestReasonsExplained(t *testing.T) {
	contract, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(contract), "    SpansLeftOut:\n")
	section, _, _ = strings.Cut(section, "additionalProperties")
	for _, reason := range trace.LeftOut {
		if !strings.Contains(section, "`"+string(reason)+"`") {
			t.Errorf("SpansLeftOut does not explain %s", reason)
		}
	}
}
