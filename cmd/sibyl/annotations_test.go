package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The commands report an event, and list the annotations of all services or of one.
func TestAnnotations(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path + "?" + r.URL.Query().Get("service") {
		case "POST /api/v1/annotations?":
			const want = `{"kind":"flag","service":"cart","tags":["a","b"],"text":"new-checkout on"}`
			if got := strings.TrimSpace(string(body)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			fmt.Fprint(w, "{}")
		case "GET /api/v1/annotations?cart":
			fmt.Fprintf(w, `{"items":[{"at":%q,"kind":"flag","title":"cart: on\u001b"}],"next_cursor":null}`,
				at.Format(time.RFC3339))
		default:
			fmt.Fprint(w, `{"items":[],"next_cursor":null}`)
		}
	}))
	t.Cleanup(server.Close)
	args := []string{"annotate", "--server", server.URL, "--service", "cart", "--kind", "flag", "--tag", "a,b"}
	if r := sibyl(t, "", append(args, "new-checkout on")...); r.code != 0 || r.out != "Reported.\n" {
		t.Errorf("%+v", r)
	}
	r := sibyl(t, "", "annotations", "--server", server.URL, "--service", "cart")
	if want := "2026-11-30 12:00:00  flag    cart: on"; r.code != 0 || !strings.HasPrefix(r.out, want) ||
		strings.Contains(r.out, "\x1b") {
		t.Errorf("%+v, want %s", r, want)
	}
	if r := sibyl(t, "", "annotations", "--server", server.URL); !strings.Contains(r.out, "sibyl annotate") {
		t.Errorf("%+v, want how to report some", r)
	}
}
