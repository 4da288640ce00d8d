package jvm_test

import (
	"fmt"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
)

// BenchmarkProfiler reports the CPU time of a method call without a profile, in a profile, and in a profile of calls
// only, which the JVM measures since Java 25.
func BenchmarkProfiler(b *testing.B) {
	programs, dir := java(b, "testdata/cost/Cost.java")
	for i, program := range programs {
		for _, arm := range []struct{ name, arguments string }{
			{"without", ""}, {"all", "p:cost\\..*"}, {"calls", "p:cost\\..*#measure:calls"},
		} {
			b.Run([]string{"default", "25"}[i]+"/"+arm.name, func(b *testing.B) {
				flags := []string{"-XX:CompileCommand=dontinline,cost.Cost::*", "-XX:CompileCommand=quiet", "-cp", dir}
				if arm.arguments != "" {
					flags = append(flags, jvmtest.Agent(dir, arm.arguments))
				}
				_, url := start(b, nil, program, append(flags, "cost.Cost")...)
				get(b, url) // warm-up: compiles
				for b.Loop() {
					var call, other float64
					if _, err := fmt.Sscan(get(b, url), &call, &other, &other); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(call, "ns/call")
				}
			})
		}
	}
}
