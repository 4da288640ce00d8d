package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Flags of sibyl traces are passed to the API as a query. With an ID, the command shows the trace.
func TestTracesCommand(t *testing.T) {
	const id = "0114a5fa724917998cc31597940696c8"
	var asked url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/traces/"+id) {
			_, _ = io.WriteString(w, `{"id":"`+id+`","start":"2026-01-02T03:04:05Z","duration_ns":490000000}`)
			return
		}
		asked = r.URL.Query()
		_, _ = io.WriteString(w, `{"items":[],"kept":0,"read":0,"links":[],"next_cursor":null}`)
	}))
	defer server.Close()
	r := sibyl(t, "", "traces", "--service", "pay", "--longer", "200ms", "--failed", "--attribute", "tier=gold",
		"--attribute", "beta", "--sort", "slowest", "--limit", "5", "--server", server.URL)
	want := url.Values{
		"service": {"pay"}, "longer_ns": {"200000000"}, "error": {"true"}, "attribute": {"tier=gold", "beta"},
		"sort": {"slowest"}, "limit": {"5"},
	}
	if d := cmp.Diff(want, asked); r.code != 0 || d != "" {
		t.Errorf("%+v: -want +got\n%s", r, d)
	}
	if r := sibyl(t, "", "traces", "--server", server.URL); r.code != 0 ||
		cmp.Diff(url.Values{"sort": {"newest"}, "limit": {"20"}}, asked) != "" {
		t.Errorf("without flags: %+v, asked for %v", r, asked)
	}
	if r := sibyl(t, "", "traces", id, "--server", server.URL); r.code != 0 || !strings.HasPrefix(r.out, "trace "+id) {
		t.Errorf("a trace: %+v", r)
	}
}

// sibyl problems PROBLEM is the same as sibyl explain PROBLEM.
func TestProblemsShowsOne(t *testing.T) {
	const id = "f072d879d6001a5006b95cfc9e08bf19"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"problem":{"id":"`+id+`","rank":1,"diagnosis":"GET /cart is slow."},"next":"Look at it."}`)
	}))
	defer server.Close()
	one := sibyl(t, "", "problems", id, "--server", server.URL)
	explained := sibyl(t, "", "explain", id, "--server", server.URL)
	if d := cmp.Diff(explained.out, one.out); one.code != 0 || d != "" ||
		!strings.Contains(one.out, "GET /cart is slow.") {
		t.Errorf("%+v: -explain +problems\n%s", one, d)
	}
}
