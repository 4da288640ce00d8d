package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Commands that change an incident say what they have done, and only if they have.
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
