package jvm_test

import (
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// While the service asks for stacks, the agent reports where slow requests spend their time, by overload. With
// OpenTelemetry, it follows requests into other threads, also virtual ones.
func TestStacks(t *testing.T) {
	programs, dir := java(t, "testdata/stacks/Stacks.java")
	program := programs[len(programs)-1]
	run := []string{"-cp", dir, "stacks.Stacks"}
	for name, test := range map[string]struct {
		start     func(endpoint string) (url string)
		operation string
		ship      float64 // the share of their waits that slow requests spend in ship
	}{
		"OpenTelemetry": {
			func(endpoint string) string {
				_, url := start(t, []string{
					"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
					"SIBYL_AGENT=service:stacks#" + endpoint,
					"OTEL_JAVAAGENT_EXTENSIONS=" + filepath.Join(dir, "sibyl-agent.jar"),
				}, program, append([]string{"-javaagent:" + otelAgent(t)}, run...)...)
				return url
			}, "GET /", 0.3,
		},
		"entries": {
			func(endpoint string) string {
				arguments := `service:stacks#otlp:http://127.0.0.1:1#entry:stacks\.Stacks\.handle#` + endpoint
				_, url := start(t, nil, program, append([]string{jvmtest.Agent(dir, arguments)}, run...)...)
				return url
			}, "Stacks.handle", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, 90*time.Second)
			p.wantStacks(60)
			request(t, test.start("endpoint:"+p.URL))
			var s *protocol.Stacks
			await(t, "stacks", func() bool {
				s = p.stacksOf(test.operation)
				return s != nil
			})
			// The machine may be busy, so that requests also wait elsewhere.
			few, most, ship := within(s, "reserve(int)"), within(s, "reserve(String)"), within(s, "ship()")
			total := few + most + ship
			if few > 0.15*total || most < 0.4*total || ship < test.ship*total/10 || ship > test.ship*total*2 {
				t.Errorf("slow requests spend %.3f of their waits in reserve(int), %.3f in reserve(String) and %.3f "+
					"in ship, want about 0.01, 0.7 and %g", few/total, most/total, ship/total, test.ship)
			}
		})
	}
}

// request sends requests, four at a time, until the test ends.
func request(t *testing.T, url string) {
	var clients sync.WaitGroup
	t.Cleanup(clients.Wait)
	for range 4 {
		clients.Go(func() {
			for {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := http.DefaultClient.Do(q)
				if err != nil {
					if t.Context().Err() == nil {
						t.Error(err)
					}
					return
				}
				_ = r.Body.Close()
			}
		})
	}
}

// within returns the time in ns that requests of s spend in a method of the program and below it.
func within(s *protocol.Stacks, method string) (ns float64) {
	for i := range s.Frames {
		for k := i; k > 0; k = s.Frames[k].Caller {
			if s.Frames[k].ID == "stacks/stacks.Stacks."+method {
				ns += float64(s.Frames[i].Nanos)
				break
			}
		}
	}
	return ns
}
