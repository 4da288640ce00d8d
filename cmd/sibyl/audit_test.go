package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The command shows the audit log as a table, or as lines of JSON, from all pages.
func TestAudit(t *testing.T) {
	t.Setenv("TZ", "UTC")
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("cursor") != "" {
			_, _ = io.WriteString(w, `{"unreadable":2,"next_cursor":null,"items":[
				{"id":"3","at":"2026-01-02T03:04:05Z","who":"ann\u001b@shop.example.com","role":"operator","via":"login","from":"192.0.2.1",
					"subject":"u1","issuer":"https://id.example",
					"forwarded_for":"198.51.100.7","operation":"muteIncident","on":"01234567","detail":"a=b"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"unreadable":1,"next_cursor":"x","items":[
			{"id":"1","at":"2026-01-02T03:06:05Z","who":"","from":"192.0.2.1","operation":"backUp","status":401,"count":17},
			{"id":"2","at":"2026-01-02T03:05:05Z","who":"root","via":"command","operation":"createToken","on":"3f2a90c1",
				"detail":"role=admin name=<x>","status":200}]}`)
	}))
	defer server.Close()
	const want = `AT                   WHO                    FROM             OPERATION             STATUS  ON
2026-01-02 03:06:05  –                      192.0.2.1        backUp                   401  17 requests in a minute
2026-01-02 03:05:05  root                   command          createToken              200  3f2a90c1, role=admin name=<x>
2026-01-02 03:04:05  ann·@shop.example.com  192.0.2.1        muteIncident               ?  01234567, a=b, subject u1, for 198.51.100.7, the outcome is unknown
3 damaged lines skipped
`
	r := sibyl(t, "", "audit", "--who", "ann", "--since", "1h", "--operation", "o", "--limit", "0",
		"--server", server.URL)
	if r.code != 0 || r.out != want {
		t.Errorf("exit code %d, %s\n%s", r.code, r.err, r.out)
	}
	if len(asked) != 2 || !strings.Contains(asked[1], "who=ann") || !strings.Contains(asked[1], "operation=o") ||
		!strings.Contains(asked[1], "from=20") {
		t.Errorf("asked %q", asked)
	}
	r = sibyl(t, "", "audit", "-o", "json", "--limit", "3", "--server", server.URL)
	if r.code != 0 || strings.Count(r.out, "\n") != 3 || !strings.Contains(r.out, "name=<x>") {
		t.Errorf("as JSON: %+v", r)
	}
}
