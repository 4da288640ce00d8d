package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A silence is sent with its conditions and its window, and shown as it was stored. Without an end, none is sent.
func TestSilenceCommand(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var sent struct{ Match, Weekly json.RawMessage }
		if len(body) > 0 && json.Unmarshal(body, &sent) != nil {
			t.Errorf("not JSON: %s", body)
		}
		got = append(got, r.Method+" "+r.URL.Path+" "+string(sent.Match)+" "+string(sent.Weekly))
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":3,"match":{"service":"cart","tags":["a=b"]},"by":"ann\u001b","at":"2026-01-02T03:04:05Z",
			"from":"2026-01-02T03:04:05Z","until":"2026-01-02T05:04:05Z","text":"upgrade","state":"in_force"}`)
	}))
	defer server.Close()
	create := []string{"silence", "create", "--service", "cart", "--tag", "a=b", "--server", server.URL}
	if r := sibyl(t, "", create...); r.code != 2 || !strings.Contains(r.err, "--for or --until") {
		t.Errorf("without an end: %d %s", r.code, r.err)
	}
	r := sibyl(t, "", append(create, "--for", "2h", "--days", "friday", "--start", "22:00", "--length", "4h")...)
	if r.code != 0 || !strings.Contains(r.out, "3 in force service cart, a=b") || strings.Contains(r.out, "\x1b") ||
		!strings.Contains(r.out, "upgrade") {
		t.Errorf("create: %d %q %s", r.code, r.out, r.err)
	}
	if r := sibyl(t, "", "silence", "end", "3", "--server", server.URL); r.code != 0 || r.out != "Ended.\n" {
		t.Errorf("end: %d %q %s", r.code, r.out, r.err)
	}
	want := `POST /api/v1/silences {"service":"cart","tags":["a=b"]} ` +
		`{"days":["friday"],"length_ns":14400000000000,"start":"22:00","zone":"UTC"}` +
		"\nDELETE /api/v1/silences/3  "
	if strings.Join(got, "\n") != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}
