package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm/jvmtest"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/trace"
)

// javaSpan is a span that the agent exported.
type javaSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue string }
	}
}

func (s *javaSpan) tracepoint() string {
	for _, a := range s.Attributes {
		if a.Key == "sibyl.tracepoint.id" {
			return a.Value.StringValue
		}
	}
	return ""
}

// spanRecorder receives the spans of the agent and passes them on to the service.
type spanRecorder struct {
	to    string
	mu    sync.Mutex
	spans []javaSpan
}

func (r *spanRecorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var m struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []javaSpan }
		}
	}
	if err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	for _, x := range m.ResourceSpans {
		for _, y := range x.ScopeSpans {
			r.spans = append(r.spans, y.Spans...)
		}
	}
	r.mu.Unlock()
	answer, err := http.Post(r.to+q.URL.Path, q.Header.Get("Content-Type"), bytes.NewReader(body))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
}

// named returns the received spans with the given name.
func (r *spanRecorder) named(name string) (found []javaSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// startShop compiles and starts the shop in Java with the agent, and returns its URL.
func startShop(t *testing.T, arguments string) string {
	t.Helper()
	programs, dir := jvmtest.Compile(t, "../agents/jvm/testdata/shop/Shop.java")
	_, url := jvmtest.Start(t, nil, programs[0], jvmtest.Agent(dir, arguments),
		"-cp", dir, "shop.Shop")
	return url
}

// A service enables and disables methods of a Java program without OpenTelemetry as tracepoints.
func TestJVMAgent(t *testing.T) {
	t.Parallel()
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		testJVMAgent(t, func(a Addresses) string { return "endpoint:http://" + a.API.String() })
	})
	t.Run("OpAMP", func(t *testing.T) {
		t.Parallel()
		testJVMAgent(t, func(a Addresses) string { return "opamp:http://" + a.OpAMP.String() + opamp.Path })
	})
}

// testJVMAgent runs the test with an agent whose arguments for connecting are the result of connection.
func testJVMAgent(t *testing.T, connection func(Addresses) string) {
	env := volatile(t.TempDir())
	env["SIBYL_OPAMP"] = "127.0.0.1:0"
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, &slog.LevelVar{}, io.Discard)
	api := "http://" + s.Addresses().API.String()
	spans := &spanRecorder{to: "http://" + s.Addresses().HTTP.String()}
	receiver := httptest.NewServer(spans)
	t.Cleanup(receiver.Close)
	shop := startShop(t,
		connection(s.Addresses())+"#otlp:"+receiver.URL+`#service:shop#entry:shop\.(Orders\.place|Carts\.show)`)

	// until sends requests until done returns true.
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			r, err := http.Get(shop + "/order")
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within two minutes", what)
			}
		}
	}
	url := func(id string) string {
		return fmt.Sprintf("%s/api/v1/tracepoints/%016x", api, uint64(trace.SymbolOf([]byte(id))))
	}
	override := func(method, id, body string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, url(id), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.StatusCode/100 != 2 {
			answer, _ := io.ReadAll(r.Body)
			t.Fatalf("%s %s: %s %s", method, id, r.Status, answer)
		}
	}
	agent := func() (a contract.Agent) {
		r, err := http.Get(api + "/api/v1/agents")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var list contract.AgentList
		if json.NewDecoder(r.Body).Decode(&list) == nil && len(list.Items) == 1 {
			a = list.Items[0]
		}
		return a
	}

	until("the catalogue has all methods", func() bool { return agent().Catalogue >= 15 })
	until("the entry has spans", func() bool { return len(spans.named("Orders.place")) > 0 })
	if n := len(spans.named("Stock.take")); n > 0 {
		t.Errorf("a tracepoint that nobody enabled has %d spans", n)
	}
	reserve, take := "shop/shop.Stock.reserve(int)", "shop/shop.Stock.take(int)"
	var point contract.Tracepoint
	if r, err := http.Get(url(reserve)); err != nil {
		t.Fatal(err)
	} else if err := errors.Join(json.NewDecoder(r.Body).Decode(&point), r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if point.Layer != contract.TracepointLayerApp { // the search tries others only below functions of the application
		t.Errorf("the layer of a method is %s, want app", point.Layer)
	}
	override(http.MethodPut, reserve, `{"kind":"pin"}`)
	override(http.MethodPut, take, `{"kind":"pin"}`)
	until("both tracepoints are applied", func() bool { return agent().Applied == 2 })
	until("the inner tracepoint has spans", func() bool { return len(spans.named("Stock.take")) >= 30 })

	parents := make(map[string]javaSpan)
	for _, name := range []string{"Orders.place", "Stock.reserve"} {
		for _, x := range spans.named(name) {
			parents[x.SpanID] = x
		}
	}
	for _, x := range spans.named("Stock.take")[:30] {
		above := parents[x.ParentSpanID]
		if above.Name == "Orders.place" && x.tracepoint() == take {
			continue // the request started while only this method was enabled
		}
		root := parents[above.ParentSpanID]
		if above.tracepoint() != reserve || x.tracepoint() != take || root.Name != "Orders.place" ||
			root.TraceID != x.TraceID {
			t.Fatalf("the parents of %+v are %+v and %+v", x, above, root)
		}
	}

	override(http.MethodDelete, reserve, "")
	override(http.MethodDelete, take, "")
	until("no tracepoint is applied", func() bool { return agent().Applied == 0 })
	before := len(spans.named("Orders.place"))
	enabled := len(spans.named("Stock.take"))
	until("further requests", func() bool { return len(spans.named("Orders.place")) > before+20 })
	after := len(spans.named("Stock.take"))
	until("yet further requests", func() bool { return len(spans.named("Orders.place")) > before+40 })
	if n := len(spans.named("Stock.take")); n != after {
		t.Errorf("a removed tracepoint has further spans: %d, then %d, then %d", enabled, after, n)
	}
}
