package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWebhookTest(t *testing.T) {
	var signed, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed = r.Header.Get("webhook-signature")
		text := make([]byte, 1000)
		n, _ := r.Body.Read(text)
		body = string(text[:n])
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprint(w, "thank you")
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "sibyl.yaml")
	text := fmt.Sprintf(`webhooks:
- {name: good, url: %q, secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, allow-private: true, format: slack}
- {name: bad, url: %q, allow-private: true}
tenants: [{name: shop, webhooks: [{name: own, url: %q, allow-private: true}]}]
`, server.URL+"/good", server.URL+"/broken", server.URL+"/shop")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(t.TempDir(), "private.yaml")
	text = fmt.Sprintf("webhooks: [{name: guarded, url: %q}]\n", server.URL)
	if err := os.WriteFile(private, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     string
		code     int
		out, err string // parts
	}{
		{"webhook test good --config " + file, 0, "200 after ", ""},
		{"webhook test bad --config " + file, 1, "502 after ", "did not accept the event: 502 Bad Gateway: thank you"},
		{"webhook test guarded --config " + private, 1, "", "set allow-private: true"},
		{"webhook test other --config " + file, 2, "", `no webhook "other", but good, bad`},
		{"webhook test own --tenant shop --config " + file, 0, "200 after ", ""},
		{"webhook test own --config " + file, 2, "", `no webhook "own", but good, bad`},
		{"webhook test good --tenant shop --config " + file, 2, "", `no webhook "good", but own`},
		{"webhook test other", 2, "", "has no webhooks"},
		{"webhook test", 2, "", "NAME is missing"},
		{"webhook", 0, "test", ""},
	} {
		signed, body = "", ""
		r := sibyl(t, "", strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) {
			t.Errorf("sibyl %s: exit code %d, %q, %q", c.args, r.code, r.out, r.err)
		}
		if c.args == "webhook test good --config "+file &&
			(!strings.HasPrefix(signed, "v1,") || !strings.Contains(body, "This is a test")) {
			t.Errorf("signature %q, body %q", signed, body)
		}
	}
}

// The commands for dead letters send the right requests and print the results.
func TestDeadLetterCommands(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		letter := `{"number":"17","event":"e","type":"decision","endpoint":"oncall","format":"slack","problem":"",` +
			`"at":"2026-01-02T03:04:05Z","put":"2026-01-02T03:04:05Z","attempts":3,"error":"no\u001bbell","bytes":2}`
		switch {
		case r.Method != http.MethodGet:
			asked = append(asked, r.Method+" "+r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "/17"):
			fmt.Fprintf(w, `{"letter":%s,"body":"{}"}`, letter)
		default:
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":null}`, letter)
		}
	}))
	defer server.Close()
	for _, c := range []struct {
		args     string
		code     int
		out, err string // parts
	}{
		{"webhook dead", 0, "17 decision to oncall as slack", ""},
		{"webhook dead -o json", 0, `"number": "17"`, ""},
		{"webhook dead 17", 0, "{}", ""},
		{"webhook dead 17 -o json", 0, `"body": "{}"`, ""},
		{"webhook resend 17", 0, "1 dead letter sent again", ""},
		{"webhook resend --all", 0, "1 dead letter sent again", ""},
		{"webhook drop 17 17", 0, "2 dead letters dropped", ""},
		{"webhook resend", 2, "", "NUMBER is missing"},
		{"webhook drop 17 --all", 2, "", "NUMBER is missing"},
		{"webhook dead --limit -1", 2, "", "negative"},
	} {
		r := sibyl(t, "", append(strings.Fields(c.args), "--server", server.URL)...)
		if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) ||
			strings.Contains(r.out, "\x1b") {
			t.Errorf("sibyl %s: exit code %d, %q, %q", c.args, r.code, r.out, r.err)
		}
	}
	resend, drop := "POST /api/v1/webhooks/dead/17/resend", "DELETE /api/v1/webhooks/dead/17"
	if want := []string{resend, resend, drop, drop}; !slices.Equal(asked, want) {
		t.Errorf("requests %q, want %q", asked, want)
	}
}
