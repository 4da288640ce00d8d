package jvm_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkCost reports the CPU time of a call of a method in a request: without instrumentation, with the span of an
// enabled tracepoint, with that of OpenTelemetry's own method instrumentation, and after the tracepoint was removed.
func BenchmarkCost(b *testing.B) {
	otel := otelAgent(b)
	programs, dir := java(b, "testdata/cost/Cost.java")
	for i, program := range programs {
		b.Run([]string{"default", "25"}[i], func(b *testing.B) {
			p := newPlane(b, 90*time.Second)
			env := []string{
				"OTEL_SERVICE_NAME=cost", "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
				"OTEL_INSTRUMENTATION_METHODS_INCLUDE=cost.Cost[otel]", "SIBYL_AGENT=endpoint:" + p.URL + "#rate:100000000",
				"OTEL_JAVAAGENT_EXTENSIONS=" + filepath.Join(dir, "sibyl-agent.jar"),
			}
			_, url := start(b, env, program, "-XX:CompileCommand=dontinline,cost.Cost::*", "-XX:CompileCommand=quiet", "-javaagent:"+otel, "-cp", dir, "cost.Cost")
			measure := func() (plain, sibyl, otel float64) {
				get(b, url) // compiles
				if _, err := fmt.Sscan(get(b, url), &plain, &sibyl, &otel); err != nil {
					b.Fatal(err)
				}
				return plain, sibyl, otel
			}
			p.enable("cost/cost.Cost.sibyl(long,long)")
			await(b, "the tracepoint is applied", func() bool { return p.applied() == 1 })
			for b.Loop() {
				plain, sibyl, otel := measure()
				b.ReportMetric(plain, "ns/plain")
				b.ReportMetric(sibyl, "ns/enabled")
				b.ReportMetric(otel, "ns/opentelemetry")
			}
			p.enable()
			await(b, "the tracepoint is removed", p.allCurrent)
			_, sibyl, _ := measure()
			b.ReportMetric(sibyl, "ns/removed")
		})
	}
}
