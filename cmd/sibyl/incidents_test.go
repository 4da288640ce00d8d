package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Commands that change an incident report the change, and only if it succeeded.
func TestIncidentNotes(t *testing.T) {
	const id = "101885cb3de75177"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/incidents/"+id+"/mute" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	r := sibyl(t, "", "incidents", "acknowledge", id, "--server", server.URL)
	if r.code != 0 || r.out != "Acknowledged for a day.\n" {
		t.Errorf("acknowledged: %+v", r)
	}
	if r := sibyl(t, "", "incidents", "mute", id, "--server", server.URL); r.code != 1 || r.out != "" {
		t.Errorf("refused: %+v", r)
	}
}

// Lists that depend on the last minutes report that no traces arrive, even if an incident is open, but not in output
// for programs.
func TestSilence(t *testing.T) {
	var last time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/status":
			_, _ = io.WriteString(w, `{"ingest":{"last_arrival":"`+last.UTC().Format(time.RFC3339)+`"}}`)
		case "/api/v1/incidents":
			_, _ = io.WriteString(w, `{"items":[{"id":"101885cb3de75177","state":"open","sentence":"pay is slow."}]}`)
		default:
			_, _ = io.WriteString(w, `{"items":[]}`)
		}
	}))
	defer server.Close()
	for _, list := range []string{"incidents", "services", "problems"} {
		last = time.Now().Add(-10 * time.Minute)
		warning := "No traces have arrived since " + last.Local().Format(time.TimeOnly) + " (10 min): "
		if r := sibyl(t, "", list, "--server", server.URL); r.code != 0 || !strings.HasPrefix(r.out, warning) {
			t.Errorf("%s in silence: %+v", list, r)
		}
		r := sibyl(t, "", list, "-o", "json", "--server", server.URL)
		if r.code != 0 || !strings.HasPrefix(r.out, "{") {
			t.Errorf("%s as JSON: %+v", list, r)
		}
		last = time.Now()
		if r := sibyl(t, "", list, "--server", server.URL); r.code != 0 || strings.Contains(r.out, "No traces") {
			t.Errorf("%s: %+v", list, r)
		}
	}
}

// While Sibyl is learning, a place in the empty list of incidents isn't a usage error.
func TestIncidentWhileLearning(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[],"learning":true}`)
	}))
	defer server.Close()
	r := sibyl(t, "", "incidents", "1", "--server", server.URL)
	if r.code != 1 || !strings.Contains(r.err, "Sibyl is learning normal behaviour") {
		t.Errorf("%+v", r)
	}
}
