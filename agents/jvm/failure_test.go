package jvm_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// The application answers as before, and its tracepoints are removed when the lease ends, whatever the service does.
func TestServiceFails(t *testing.T) {
	programs, dir := java(t, "testdata/shop/Shop.java")
	lie := func(change func(*protocol.Plan)) func(*plane) http.HandlerFunc {
		return func(p *plane) http.HandlerFunc {
			plan, _ := p.current()
			change(&plan)
			return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(plan) }
		}
	}
	for name, answer := range map[string]func(*plane) http.HandlerFunc{
		"away": func(*plane) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) } // closes the connection
		},
		"slow": func(*plane) http.HandlerFunc {
			return func(_ http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body) // otherwise the server doesn't notice the end of the connection
				<-q.Context().Done()
			}
		},
		"not JSON": func(*plane) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Welcome</html>")) }
		},
		"endless": func(*plane) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for block := []byte(strings.Repeat("x", 1<<20)); ; {
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			}
		},
		"overloaded": func(*plane) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		},
		"another version": lie(func(p *protocol.Plan) { p.Protocol, p.Version = 2, 99 }),
		"another hash":    lie(func(p *protocol.Plan) { p.Version, p.LeaseSeconds = 99, 3600 }),
		"endless lease": lie(func(p *protocol.Plan) {
			p.Version, p.LeaseSeconds = 99, 1<<30
			p.Hash = protocol.HashPlan(p)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, 2*time.Second)
			var spans atomic.Int64
			target := newCollector(t, func(s span) {
				if s.name == "Stock.take" {
					spans.Add(1)
				}
			})
			arguments := "endpoint:" + p.URL + "#otlp:" + target + `#service:shop#entry:shop\.Orders\.place#debug:0`
			_, shop := start(t, nil, programs[0], jvmtest.Agent(dir, arguments), "-cp", dir, "shop.Shop")
			want := get(t, shop+"/order")
			until := func(what string, done func() bool) {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
					if got := get(t, shop+"/order"); got != want {
						t.Fatalf("the response is %q, want %q", got, want)
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s: not within a minute", what)
					}
				}
			}
			p.enable("shop/shop.Stock.take(int)")
			until("the tracepoint has spans", func() bool { return spans.Load() > 0 })
			p.misbehave(answer(p))
			last, changed := spans.Load(), time.Now()
			until("the tracepoint is removed", func() bool { // no spans for longer than the exporter waits
				if n := spans.Load(); n != last {
					last, changed = n, time.Now()
				}
				return time.Since(changed) > 3*time.Second
			})
			p.misbehave(nil)
			until("the tracepoint has spans again", func() bool { return spans.Load() > last })
		})
	}
}

// Variables are captured only while the plan enables them, and never contain text of the application.
func TestVariables(t *testing.T) {
	programs, dir := java(t, "testdata/shop/Shop.java")
	for _, program := range programs {
		p := newPlane(t, time.Minute)
		spans := make(chan span, 1000)
		target := newCollector(t, func(s span) {
			select {
			case spans <- s:
			default:
			}
		})
		arguments := "endpoint:" + p.URL + "#otlp:" + target +
			`#service:shop#entry:shop\.Orders\.place#variables:shop\.(Stock|Payment)\..*`
		_, shop := start(t, nil, program, jvmtest.Agent(dir, arguments), "-cp", dir, "shop.Shop")
		// next returns the next span with the given name and attribute. It fails if an earlier span has such an
		// attribute that starts with unwanted.
		next := func(name, key, unwanted string) span {
			t.Helper()
			for deadline := time.After(time.Minute); ; {
				get(t, shop+"/order")
				select {
				case s := <-spans:
					for k := range s.attributes {
						if unwanted != "" && strings.HasPrefix(k, unwanted) {
							t.Fatalf("%s: %s has the attribute %s", program, s.name, k)
						}
					}
					if _, found := s.attributes[key]; s.name == name && found {
						return s
					}
				case <-deadline:
					t.Fatalf("%s: no span %s has the attribute %s within a minute", program, name, key)
				case <-time.After(10 * time.Millisecond): // another request
				}
			}
		}
		p.enable("shop/shop.Stock.reserve(int)")
		next("Stock.reserve", "sibyl.tracepoint.id", "Stock.")
		p.enable("shop/shop.Stock.reserve(int)", "shop/shop.Stock.reserve(int):items",
			"shop/shop.Payment.charge(long):total")
		if s := next("Stock.reserve", "Stock.reserve.items", ""); s.attributes["Stock.reserve.items"] != int64(3) {
			t.Errorf("%s: the attributes are %v", program, s.attributes)
		}
		// The method has no span, so its variable belongs to the surrounding span.
		if s := next("Orders.place", "Payment.charge.total", ""); s.attributes["Payment.charge.total"] != int64(300) {
			t.Errorf("%s: the attributes are %v", program, s.attributes)
		}
	}
}
