package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// The output shows how a trace differs from normal ones, and the spans on its critical path, failed spans and unusually
// long spans. Control characters are escaped, and spans may be their own ancestors.
func TestShowTrace(t *testing.T) {
	comparison := &contract.TraceComparison{Sentence: "This request took 80 ms longer than such requests usually do."}
	trace := &contract.Trace{
		ID:         "abc",
		Start:      time.Unix(0, 0),
		DurationNs: 100e6,
		Comparison: comparison,
		Spans: []contract.Span{
			{ID: "1", Service: "shop", Name: "GET /cart", Kind: "server", DurationNs: 100e6, ExclusiveNs: 10e6},
			{ID: "2", Parent: "1", Service: "shop", Name: "quick", Kind: "internal", DurationNs: 1e3},
			{
				ID:          "3",
				Parent:      "1",
				Service:     "cart",
				Name:        "GET\x1b",
				Kind:        "server",
				DurationNs:  90e6,
				ExclusiveNs: 90e6,
				Percentile:  new(99.0),
				Attributes:  []contract.Attribute{{Key: "k", Value: "v"}},
			},
			{ID: "4", Parent: "3", Service: "cart", Name: "SELECT", Kind: "client", DurationNs: 1e3, Error: true},
			{ID: "5", Parent: "6", Service: "loop", Name: "a", Kind: "client", DurationNs: 1e3, Error: true},
			{ID: "6", Parent: "5", Service: "loop", Name: "b", Kind: "client", DurationNs: 1e3},
		},
	}
	var b strings.Builder
	if err := ShowTrace(&b, trace, terminal.Style{Width: 80}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	want := `trace abc  1970-01-01T00:00:00Z, 100 ms, 6 spans
This request took 80 ms longer than such requests usually do.

shop GET /cart (server): 100 ms, 10 ms of its own on the critical path (10 %
    of the request)
  cart GET· (server): 90 ms, 90 ms of its own on the critical path (90 % of
      the request), longer than 99 % of such spans [k=v]
    cart SELECT (client): 1 µs, FAILED
  loop a (client): 1 µs, FAILED
… and 2 more spans off the critical path, as long as usual
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

// Traces are read page by page, found by a prefix of their ID, and written in lines of the terminal's width.
func TestTraces(t *testing.T) {
	const a, b = "0114a5fa724917998cc31597940696c8", "0733d175000000000000000000000000"
	item := func(id, operation string) string {
		return fmt.Sprintf(`{"id":%q,"start":"2026-01-02T03:04:05Z","duration_ns":490000000,"errors":1,"group":"",
			"operation":"%s","request_type_name":"","service":"frontend","services":3,"span":"","spans":8,
			"strata":["slow"]}`, id, operation)
	}
	list := func(next string, items ...string) string {
		return fmt.Sprintf(`{"items":[%s],"kept":2,"read":2,
			"links":[{"name":"Jaeger","url":"http://jaeger.invalid/search"}],"next_cursor":%s}`,
			strings.Join(items, ","), next)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/api/v1/traces/"+a:
			_, _ = io.WriteString(w, `{"id":"`+a+`"}`)
		case q.Get("trace") == "0114":
			_, _ = io.WriteString(w, list("null", item(a, "GET /orders")))
		case q.Get("trace") == "0000", q.Get("service") == "none":
			_, _ = io.WriteString(w, list("null"))
		case q.Get("cursor") == "x":
			_, _ = io.WriteString(w, list("null", item(b, "GET /a/very/long/path/of/products/{id}")))
		default:
			_, _ = io.WriteString(w, list(`"x"`, item(a, `GET\u001b`)))
		}
	}))
	defer s.Close()
	c, err := New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	show := func(q contract.ListTracesParams) string {
		found, err := c.Traces(t.Context(), q, 0)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := ShowTraces(&out, found, terminal.Style{Width: 80}, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `ID        STARTED                  TOOK  SPANS  FAILED  REQUEST
0114a5fa  2026-01-02 03:04:05    490 ms      8       1  frontend GET·
0733d175  2026-01-02 03:04:05    490 ms      8       1  frontend GE…roducts/{id}

FAILED: the number of spans that failed. sibyl traces ID shows a trace, and how
it differs from normal ones.
`
	if d := cmp.Diff(want, show(contract.ListTracesParams{})); d != "" {
		t.Error(d)
	}
	if got := show(contract.ListTracesParams{Service: new("none")}); !strings.Contains(got, "No kept trace matches") ||
		!strings.Contains(got, "http://jaeger.invalid/search") {
		t.Errorf("none: %s", got)
	}
	if found, err := c.Trace(t.Context(), "0114"); err != nil || found.ID != a {
		t.Errorf("by its first digits: %v, %v", found, err)
	}
	for name, part := range map[string]string{
		"01": "at least the first 4 digits", "0000": "sibyl traces lists", "abcd": "several traces",
	} {
		if _, err := c.Trace(t.Context(), name); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sample trace is a typical one, if the request type has one.
func TestSampleTraces(t *testing.T) {
	const a, b = "0114a5fa724917998cc31597940696c8", "0733d175000000000000000000000000"
	exemplar := func(trace, stratum string) string {
		return fmt.Sprintf(`{"trace":%q,"stratum":%q,"group":"","start":"2026-01-02T03:04:05Z","duration_ns":1}`,
			trace, stratum)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path, of := strings.TrimPrefix(r.URL.Path, "/api/v1/"), r.URL.Query().Get("group")
		switch {
		case path == "groups":
			_, _ = io.WriteString(w, `{"items":[{"id":"both"},{"id":"slow"},{"id":"none"}],"total":3}`)
		case path == "exemplars" && of == "both":
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s]}`, exemplar(a, "slow"), exemplar(b, "typical"))
		case path == "exemplars" && of == "slow":
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, exemplar(a, "slow"))
		case path == "exemplars":
			_, _ = io.WriteString(w, `{"items":[]}`)
		default:
			_, _ = fmt.Fprintf(w, `{"id":%q}`, strings.TrimPrefix(path, "traces/"))
		}
	}))
	defer s.Close()
	c, err := New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	traces, err := c.SampleTraces(t.Context(), 3)
	if err != nil || len(traces) != 2 || traces[0].ID != b || traces[1].ID != a {
		t.Errorf("%v, %v; want the traces %s and %s", traces, err, b, a)
	}
}
