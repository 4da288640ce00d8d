package client

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Metrics are compared before and after the onset, and failures are said where the answer would be.
func TestShowTelemetry(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	x := &contract.IncidentTelemetry{
		Metrics: &[]contract.TelemetryMetric{
			{Name: "Memory", Unit: contract.TelemetryUnitBytes, Before: new(512e6), After: new(1.5 * (1 << 30))},
			{Name: "CPU cores", Unit: contract.TelemetryUnitNumber, Before: new(0.25)},
			{Name: "Restarts", Error: new("Prometheus answered 403 Forbidden")},
		},
		Kubernetes: &contract.TelemetryPods{Events: []contract.PodEvent{
			{At: at, Pod: "cart-1", Reason: "OOMKilled", Text: "container cart ended"},
		}},
		Logs: &contract.TelemetryLogs{Lines: []contract.LogLine{{At: at, Text: "pool \x1b[31mexhausted", Count: 3}}},
	}
	var out strings.Builder
	if err := ShowTelemetry(&out, x, terminal.Style{}, at); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Memory: 488.3 MiB → 1536.0 MiB", "CPU cores: 0.25 → –", "Prometheus answered 403 Forbidden.",
		"12:00:00  cart-1 OOMKilled: container cart ended", "exhausted (3 alike)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a log line controls the terminal")
	}
	out.Reset()
	if err := ShowTelemetry(&out, &contract.IncidentTelemetry{}, terminal.Style{}, at); err != nil ||
		!strings.Contains(out.String(), "set logs.loki") {
		t.Errorf("without servers: %q, %v", out.String(), err)
	}
}
