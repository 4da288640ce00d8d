package directory

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A search has the same conditions in the languages of all backends, whatever its values contain.
func TestSearchLinks(t *testing.T) {
	r := &Request{
		Service:    `say "cart"`,
		Operation:  `GET /x\y`,
		Longer:     1500 * time.Millisecond,
		Shorter:    2 * time.Second,
		Failed:     true,
		Attributes: [][2]string{{"http.status_code", "500"}, {"tenant", "a&b"}, {"odd key", ""}},
		Start:      1_700_000_000_000_000_000,
		End:        1_700_000_003_600_000_000,
	}
	for _, c := range []struct{ template, want string }{
		{
			"https://j/search?service={service}&operation={operation}&minDuration={min_duration}" +
				"&maxDuration={max_duration}&tags={tags}&start={start_us}&end={end_us}",
			`https://j/search?service=say "cart"&operation=GET /x\y&minDuration=1500000us&maxDuration=2000000us` +
				`&tags={"error":"true","http.status_code":"500","tenant":"a\u0026b"}` +
				`&start=1700000000000000&end=1700000003600000`,
		},
		{
			"https://t/?q={traceql}",
			`https://t/?q={ resource.service.name = "say \"cart\"" && name = "GET /x\\y" && status = error && ` +
				`(.http.status_code = "500" || .http.status_code = 500) && .tenant = "a&b" && ."odd key" != nil && ` +
				`traceDuration >= 1500000us && traceDuration < 2000000us }`,
		},
		{
			"https://h/?query={honeycomb}",
			`https://h/?query={"start_time":1700000000,"end_time":1700000004,"filters":[` +
				`{"column":"service.name","op":"=","value":"say \"cart\""},` +
				`{"column":"name","op":"=","value":"GET /x\\y"},` +
				`{"column":"error","op":"=","value":true},` +
				`{"column":"http.status_code","op":"=","value":"500"},` +
				`{"column":"tenant","op":"=","value":"a\u0026b"},` +
				`{"column":"odd key","op":"exists"},` +
				`{"column":"root.duration_ms","op":"\u003e=","value":1500},` +
				`{"column":"root.duration_ms","op":"\u003c","value":2000}]}`,
		},
	} {
		l, err := NewSearchLink("a", c.template)
		if err != nil {
			t.Fatal(err)
		}
		got := l.URL(r).URL
		plain, err := url.PathUnescape(got)
		if err != nil || plain != c.want {
			t.Errorf("got  %s\nwant %s (%v)", plain, c.want, err)
		}
		if _, err := url.ParseRequestURI(got); err != nil || strings.ContainsAny(got, ` "`) {
			t.Errorf("not a URL: %s (%v)", got, err)
		}
	}
}

// A query of TraceQL stays one string within JSON.
func TestSearchLinkInJSON(t *testing.T) {
	l, err := NewSearchLink("a", `https://g/explore?left={"queries":[{"query":"{traceql_json}"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := url.PathUnescape(l.URL(&Request{Service: `a"b`}).URL)
	if err != nil {
		t.Fatal(err)
	}
	var left struct{ Queries []struct{ Query string } }
	_, text, _ := strings.Cut(got, "left=")
	err = json.Unmarshal([]byte(text), &left)
	if err != nil || left.Queries[0].Query != `{ resource.service.name = "a\"b" }` {
		t.Errorf("%s: %v, %v", text, left, err)
	}
	if _, err := NewSearchLink("a", "https://{service}/"); err == nil {
		t.Error("the host may depend on the search")
	}
	if _, err := NewSearchLink("a", "https://x/{trace_id}"); err == nil || !strings.Contains(err.Error(), "{") {
		t.Errorf("a search with a trace ID: %v", err)
	}
}

// A query without conditions matches everything.
func TestEmptySearch(t *testing.T) {
	r := &Request{}
	if r.traceQL() != "{}" || r.jaegerTags() != "" || duration(0) != "" {
		t.Errorf("%q %q", r.traceQL(), r.jaegerTags())
	}
}
