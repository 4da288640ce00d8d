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
		ship      float64 // the share of time that slow requests spend in ship
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
			share := func(method string) float64 {
				return within(s, "stacks/stacks.Stacks."+method) / within(s, "")
			}
			few, most, ship := share("reserve(int)"), share("reserve(String)"), share("ship()")
			if few > 0.1 || most < 0.3 || most > 0.9 || ship < test.ship*0.1 || ship > test.ship*2 {
				t.Errorf("slow requests spend %.3f in reserve(int), %.3f in reserve(String) and %.3f in ship, "+
					"want about 0.01, 0.6 and %g", few, most, ship, test.ship)
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

// within returns the time in ns that requests of s spend in a tracepoint and below it. The ID "" stands for all.
func within(s *protocol.Stacks, id string) (ns float64) {
	for i := range s.Frames {
		for k := i; ; k = s.Frames[k].Caller {
			if s.Frames[k].ID == id {
				ns += float64(s.Frames[i].Nanos)
				break
			}
			if k == 0 {
				break
			}
		}
	}
	return ns
}
