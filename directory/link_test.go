package directory

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/trace"
)

func TestLinks(t *testing.T) {
	id, err := trace.ParseID("186ada6fd6ba3a0461a26db26d92c674")
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{
		Trace:     id,
		Service:   "a/b",
		Operation: "GET /x?y#z&\"'",
		Start:     1_700_000_000_123_456_789,
		End:       1_700_000_001_000_000_001,
	}
	for _, c := range []struct{ template, want string }{
		{
			"http://jaeger:16686/trace/{trace_id}",
			"http://jaeger:16686/trace/186ada6fd6ba3a0461a26db26d92c674",
		},
		{
			"https://zipkin.example/zipkin/traces/{trace_id}",
			"https://zipkin.example/zipkin/traces/186ada6fd6ba3a0461a26db26d92c674",
		},
		{
			"https://h.example/t?trace_id={trace_id}&start={start_s}&e={end_s}",
			"https://h.example/t?trace_id=186ada6fd6ba3a0461a26db26d92c674&start=1700000000&e=1700000002",
		},
		{
			`https://g.example/?left={"queries":[{"query":"{trace_id}"}],"from":"{start_ms}"}`,
			`https://g.example/?left={"queries":[{"query":"186ada6fd6ba3a0461a26db26d92c674"}],"from":"1700000000123"}`,
		},
		{
			"https://b.example/{service}/{operation}?{trace_id}&{start_us}-{end_us}&{end_ms}",
			"https://b.example/a%2Fb/GET%20%2Fx%3Fy%23z%26%22%27" +
				"?186ada6fd6ba3a0461a26db26d92c674&1700000000123456-1700000001000001&1700000001001",
		},
	} {
		l, err := NewLink("backend", c.template)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		if got := LinksTo([]Link{l}, r)[0]; got.URL != c.want || got.Name != "backend" {
			t.Errorf("%s: got\n%s want\n%s", c.template, got.URL, c.want)
		}
	}
}

func TestWrongLinks(t *testing.T) {
	for template, want := range map[string]string{
		"https://a.example/{traceid}":             "did you mean {trace_id}?",
		"https://a.example/{trace_id}/{servcie}":  "did you mean {service}?",
		"https://a.example/":                      "want {trace_id} in the URL",
		"ftp://a.example/{trace_id}":              "starts with http",
		"https:///{trace_id}":                     "starts with http",
		"https://{service}.example/{trace_id}":    "the host cannot depend",
		"https://{trace_id}@a.example/{trace_id}": "the host cannot depend",
		"{trace_id}":                              "starts with http",
	} {
		if _, err := NewLink("backend", template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}

// Links about a service escape its names and apply to the configured services.
func TestServiceLinks(t *testing.T) {
	logs, err := NewServiceLink("Logs", "https://l.example/?s={service}&i={instance}&from={start_ms}&to={end_ms}")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := NewServiceLink("Runbook", "https://wiki.example/payment#{operation}", "payment")
	if err != nil {
		t.Fatal(err)
	}
	d := Directory{Services: []Link{logs, runbook}}
	got := d.ServiceLinks(&Request{
		Service:   "payment",
		Operation: "GET /x?y#z",
		Instance:  "a b",
		Start:     1_700_000_000_123_456_789,
		End:       1_700_000_001_000_000_001,
	})
	want := []URL{
		{"Logs", "https://l.example/?s=payment&i=a%20b&from=1700000000123&to=1700000001001"},
		{"Runbook", "https://wiki.example/payment#GET%20%2Fx%3Fy%23z"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for template, want := range map[string]string{
		"https://a.example/{trace_id}":  "there is no placeholder {trace_id}",
		"https://a.example/{incidnet}":  "did you mean {incident}?",
		"https://{service}.example/":    "the host cannot depend on the service",
		"javascript:alert('{service}')": "starts with http",
	} {
		if _, err := NewServiceLink("x", template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}

// FuzzLinks checks that names from traces add no delimiters to a URL.
func FuzzLinks(f *testing.F) {
	f.Add("https://a.example/{trace_id}/{service}", "x", "y")
	f.Add("https://a.example?{operation}#{trace_id}", "/../", "@evil.example")
	f.Fuzz(func(t *testing.T, template, service, operation string) {
		l, err := NewLink("x", template)
		if err != nil {
			return
		}
		plain, filled := l.URL(&Request{}).URL, l.URL(&Request{Service: service, Operation: operation}).URL
		u, err := url.Parse(filled)
		if err != nil {
			t.Fatalf("%q: %v", template, err)
		}
		for _, c := range "/?#&=@:;+ \"<>" {
			if strings.Count(plain, string(c)) != strings.Count(filled, string(c)) {
				t.Fatalf("%q: a trace adds %q: %s", template, c, u)
			}
		}
	})
}

// A request that ends on a full unit isn't rounded up.
func TestExactEnd(t *testing.T) {
	l, err := NewLink("backend", "https://b.example/{trace_id}?{end_s}&{end_ms}&{end_us}&{end_ns}")
	if err != nil {
		t.Fatal(err)
	}
	want := "https://b.example/00000000000000000000000000000001?7&7000&7000000&7000000000"
	if got := LinksTo([]Link{l}, &Request{Trace: trace.ID{15: 1}, End: 7_000_000_000})[0].URL; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
