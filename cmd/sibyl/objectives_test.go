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
