package jvm_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// costMethod is the method of testdata/cost that Sibyl enables.
const costMethod = "cost.Cost.sibyl(long,long)"

// keptAfter is the number of changes of a class from which its methods stay instrumented.
const keptAfter = 20

// BenchmarkCost reports the CPU time of a method call in a request: without instrumentation, with the span of an
// enabled tracepoint, with an enabled tracepoint beyond its rate, with OpenTelemetry's own method instrumentation, and
// after the tracepoint was removed. It then reports both kinds of spans while threads report them to the kernel agent,
// and the call in a profile. The last figure is for a disabled tracepoint whose method stays instrumented because it
// was changed often. The processes take turns.
func BenchmarkCost(b *testing.B) {
	otel := otelAgent(b)
	programs, dir := java(b, "testdata/cost/Cost.java")
	jar := filepath.Join(dir, "sibyl-agent.jar")
	for i, program := range programs {
		b.Run([]string{"default", "25"}[i], func(b *testing.B) {
			p := newPlane(b, 90*time.Second)
			arguments := []string{"-XX:CompileCommand=dontinline,cost.Cost::*", "-XX:CompileCommand=quiet", "-cp", dir}
			spans := func(service, more string) (url string) {
				env := []string{
					"OTEL_SERVICE_NAME=" + service, "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none",
					"OTEL_LOGS_EXPORTER=none",
					"OTEL_INSTRUMENTATION_METHODS_INCLUDE=cost.Cost[otel]", "SIBYL_AGENT=endpoint:" + p.URL + more,
					"OTEL_JAVAAGENT_EXTENSIONS=" + jar,
				}
				_, url = start(b, env, program, append(arguments, "-javaagent:"+otel, "cost.Cost")...)
				return url
			}
			const unlimited = "#rate:100000000"
			enabled := spans("enabled", unlimited+"#restore:0")
			told, limited := spans("told", unlimited+"#waits:on"), spans("limited", "#rate:1")
			_, profiled := start(b, nil, program, append(arguments,
				"-javaagent:"+jar+"=p:cost\\.Cost#output:"+filepath.Join(dir, "profile.txt"), "cost.Cost")...)
			measure := func(url string) (plain, sibyl, otel float64) {
				get(b, url) // warm-up: compiles
				if _, err := fmt.Sscan(get(b, url), &plain, &sibyl, &otel); err != nil {
					b.Fatal(err)
				}
				return plain, sibyl, otel
			}
			p.enable("enabled/"+costMethod, "limited/"+costMethod, "told/"+costMethod)
			await(b, "the tracepoints are applied", func() bool { return p.applied() == 3 })
			for b.Loop() {
				plain, sibyl, otel := measure(enabled)
				b.ReportMetric(plain, "ns/plain")
				b.ReportMetric(sibyl, "ns/enabled")
				b.ReportMetric(otel, "ns/opentelemetry")
				_, sibyl, otel = measure(told)
				b.ReportMetric(sibyl, "ns/enabled+waits")
				b.ReportMetric(otel, "ns/opentelemetry+waits")
				_, sibyl, _ = measure(limited)
				b.ReportMetric(sibyl, "ns/limited")
				_, sibyl, _ = measure(profiled)
				b.ReportMetric(sibyl, "ns/profiled")
			}
			disable := func() {
				p.enable()
				await(b, "the tracepoints are disabled", p.allCurrent)
			}
			disable()
			_, sibyl, _ := measure(enabled)
			b.ReportMetric(sibyl, "ns/removed")
			for range keptAfter / 2 {
				p.enable("enabled/" + costMethod)
				await(b, "the tracepoint is applied", func() bool { return p.applied() == 1 })
				disable()
			}
			_, sibyl, _ = measure(enabled)
			b.ReportMetric(sibyl, "ns/kept")
		})
	}
}
