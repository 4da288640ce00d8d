package client

import (
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

// Services are read page by page. Their usual values are next to the current ones or, on narrow terminals, below them.
// Unknown values are written as a dash, and control characters are removed.
func TestServices(t *testing.T) {
	const (
		rest = `"total":2,"epoch":null,"learning":false,"from":"2026-01-02T02:00:00Z","to":"2026-01-02T03:04:05Z",
			"now_from":"2026-01-02T02:54:00Z","bin_ns":1,"states":{}}`
		first = `{"items":[{
			"id":"1","service":"pay\u001bment","emits_spans":true,
			"state":"incident","reason":"The first suspect of an open incident.",
			"now":{"calls":330,"rate":0.55,"failed":0.043,"own_ns":6.31e7,"p50_ns":1.02e7,"p99_ns":3.1e8},
			"usual":{"calls":4000,"rate":0.587,"failed":0,"own_ns":4.33e6,"p50_ns":9.1e6,"p99_ns":8.02e7},
			"trend":null,"operations":2,"instances":2,"versions":[],"deploy":null,
			"incidents":[{"id":"0123456789abcdef","rank":1,"share":1}]}],"next_cursor":"x",` + rest
		second = `{"items":[{
			"id":"2","service":"postgresql","emits_spans":false,"state":"new","reason":"",
			"now":{"calls":9,"rate":12.3,"failed":null,"own_ns":null,"p50_ns":null,"p99_ns":null},
			"usual":null,"trend":null,"operations":0,"instances":0,"versions":[],"deploy":null,
			"incidents":[]}],"next_cursor":null,` + rest
	)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := first
		if r.URL.Query().Get("cursor") == "x" {
			answer = second
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	c, err := New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Services(t.Context(), contract.ListServicesParams{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for width, want := range map[int]string{120: `
STATE       SERVICE       CALLS (USUALLY)     FAIL (USUALLY)      P50 (USUALLY)      P99 (USUALLY)  OWN TIME (USUALLY)
suspected   pay·ment     0.55/s (0.587/s)        4.3 % (0 %)   10.2 ms (9.1 ms)   310 ms (80.2 ms)  63.1 ms (4.33 ms)
            The first suspect of an open incident. → sibyl incidents 01234567
new         postgresql             12.3/s                  –                  –                  –                  –
`, 80: `
STATE       SERVICE         CALLS       FAIL        P50        P99   OWN TIME
suspected   pay·ment       0.55/s      4.3 %    10.2 ms     310 ms    63.1 ms
              usually     0.587/s        0 %     9.1 ms    80.2 ms    4.33 ms
            The first suspect of an open incident. → sibyl incidents 01234567
new         postgresql     12.3/s          –          –          –          –
`} {
		var out strings.Builder
		if err := ShowServices(&out, list, terminal.Style{Width: width}, now); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(out.String(), "\nCALLS, FAIL"); got != want[1:] {
			t.Errorf("-want +got\n%s", cmp.Diff(want[1:], got))
		}
	}
	d := contract.ServiceDetail{
		Service: list.Items[0],
		Operations: []contract.ServiceOperation{{
			Operation: "GET /pay",
			State:     contract.ServiceStateWell,
			Now:       list.Items[0].Now,
			Usual:     list.Items[0].Usual,
		}},
		MoreOperations: 3,
		Inside: []contract.ServiceSpans{
			{
				Operation:  "acquire",
				Name:       "acquire\x1b connection",
				P50Ns:      2e6,
				P99Ns:      3.4e8,
				UsualP50Ns: new(1e6),
				UsualP99Ns: new(4e6),
				To:         now.Add(-9 * time.Minute),
			},
			{Operation: "SELECT", Name: "SELECT → postgresql", P50Ns: 1e6, P99Ns: 2e6, To: now},
		},
		Callers:     []contract.ServiceCall{{Caller: "shop", Callee: "payment", Now: list.Items[1].Now}},
		Callees:     []contract.ServiceCall{{Caller: "payment", Callee: "bank", Now: list.Items[1].Now}},
		Instances:   []contract.ServiceInstance{{Key: "host.name", Value: "a\x1bb", Now: list.Items[1].Now}},
		Annotations: []contract.Annotation{{At: now, Kind: "deploy", Title: "cart 2, before 1"}},
	}
	d.Service.ChangedCalls = &contract.ChangedCalls{
		Since: now,
		Text:  "makes 11 other calls per 100 requests, as 2 was deployed",
	}
	var one strings.Builder
	if err := ShowService(&one, &d, terminal.Style{Width: 80}, now); err != nil {
		t.Fatal(err)
	}
	const want = `STATE       SERVICE       CALLS       FAIL        P50        P99   OWN TIME
suspected   pay·ment     0.55/s      4.3 %    10.2 ms     310 ms    63.1 ms
              usually    0.587/s        0 %     9.1 ms    80.2 ms    4.33 ms
            The first suspect of an open incident. → sibyl incidents 01234567
makes 11 other calls per 100 requests, as 2 was deployed; since 22:27

Operations
STATE       OPERATION      CALLS       FAIL        P50        P99   OWN TIME
well        GET /pay      0.55/s      4.3 %    10.2 ms     310 ms    63.1 ms
              usually    0.587/s        0 %     9.1 ms    80.2 ms    4.33 ms
… and 3 more: -o json shows all

Inside it
OPERATION                P50 (USUALLY)      P99 (USUALLY)  UNTIL
acquire· connection        2 ms (1 ms)      340 ms (4 ms)  22:18
SELECT → postgresql               1 ms               2 ms  22:27

Callers
CALLER      CALLS       FAIL        P50        P99   OWN TIME
shop       12.3/s          –          –          –          –

Callees
CALLEE      CALLS       FAIL        P50        P99   OWN TIME
bank       12.3/s          –          –          –          –

Instances
INSTANCE             CALLS       FAIL        P50        P99   OWN TIME
host.name = a·b     12.3/s          –          –          –          –

Annotations
  2023-11-14 22:27:00  deploy  cart 2, before 1
`
	if got, _, _ := strings.Cut(one.String(), "\nCALLS, FAIL"); got != want {
		t.Errorf("-want +got\n%s", cmp.Diff(want, got))
	}
	var out strings.Builder
	if err := ShowServices(&out, &contract.ServiceList{}, terminal.Style{}, now); err != nil ||
		!strings.HasSuffix(out.String(), "No service matches.\n") {
		t.Errorf("%v: %s", err, out.String())
	}
}
