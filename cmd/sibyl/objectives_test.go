package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The command lists the objectives of the service, as text or as JSON.
func TestObjectives(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/objectives" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"epoch":null,"items":[
			{"name":"Orders arrive","entry":"shop","kind":"errors","budget":0.001,"requests":0,"windows":[]}]}`)
	}))
	defer server.Close()
	const want = `Orders arrive  at most 0.1 % fail  no requests yet
    shop
    if that is wrong, check the entry: the page Services, and GET /api/v1/services, list services and operations with requests
`
	if r := sibyl(t, "", "objectives", "--server", server.URL); r.code != 0 || r.out != want {
		t.Errorf("as text: %+v", r)
	}
	r := sibyl(t, "", "objectives", "-o", "json", "--server", server.URL)
	if r.code != 0 || !strings.Contains(r.out, `"budget": 0.001`) {
		t.Errorf("as JSON: %+v", r)
	}
}

// The commands send what the flags describe, and show the answer.
func TestObjectiveChanges(t *testing.T) {
	const objective = `{"id":3,"name":"Cart","entry":"shop GET /cart","kind":"latency","below_ns":300000000,` +
		`"percentile":99,"budget":0.01,"requests":0,"windows":[]}`
	for _, c := range []struct {
		args           string
		asks, body     string
		answer, output string
	}{
		{
			"add --entry|shop GET /cart|--below|300ms", "POST /api/v1/objectives",
			`{"below_ns":300000000,"entry":"shop GET /cart","percentile":99}`,
			objective, "Cart  99 % below 300 ms  ID 3  no requests yet",
		},
		{
			"set 3 --entry|shop|--errors|0.1|--name|Works", "PUT /api/v1/objectives/3",
			`{"entry":"shop","errors":0.001,"name":"Works"}`, objective, "Cart",
		},
		{
			"preview --entry|shop|--below|1s|--percentile|95", "POST /api/v1/objectives/preview",
			`{"below_ns":1000000000,"entry":"shop","percentile":95}`,
			`{"from":"2026-12-01T08:00:00Z","to":"2026-12-01T10:00:00Z","requests":1000,"missed":80,` +
				`"lacks_ns":14400000000000,"burned":[{"from":"2026-12-01T08:10:00Z","until":"2026-12-01T08:20:00Z",` +
				`"window_ns":3600000000000,"rate":20,"incident":null},{"from":"2026-12-01T09:50:00Z","until":null,` +
				`"window_ns":3600000000000,"rate":20,"incident":"00000000000000ff"}]}`,
			"80 of 1,000 requests miss it. In the past 2 h it would have opened 1 incident and joined 1.",
		},
		{"delete 3", "DELETE /api/v1/objectives/3", "", "", "Deleted."},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if got := r.Method + " " + r.URL.Path; got != c.asks || strings.TrimSpace(string(body)) != c.body {
				t.Errorf("%s asks %s with %s, want %s with %s", c.args, got, body, c.asks, c.body)
			}
			w.Header().Set("Content-Type", "application/json")
			if c.answer == "" {
				w.WriteHeader(http.StatusNoContent)
			}
			_, _ = io.WriteString(w, c.answer)
		}))
		command, flags, _ := strings.Cut(c.args, " --")
		args := append([]string{"objectives"}, strings.Fields(command)...)
		if flags != "" {
			args = append(args, strings.Split("--"+flags, "|")...)
		}
		r := sibyl(t, "", append(args, "--server", server.URL)...)
		if r.code != 0 || !strings.Contains(r.out, c.output) {
			t.Errorf("%s: %+v", c.args, r)
		}
		server.Close()
	}
	for _, flags := range []string{"--below 1s", "--entry shop", "--entry shop --below 1s --errors 1"} {
		if r := sibyl(t, "", append([]string{"objectives", "add"}, strings.Fields(flags)...)...); r.code != 2 {
			t.Errorf("add %s: %+v", flags, r)
		}
	}
}
