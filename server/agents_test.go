package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// While no token exists, only agents on the same machine are served, and only requests for a host name of this
// machine: after DNS rebinding, a browser page asks for its own host name, and sends no Origin with GET requests.
func TestIdentify(t *testing.T) {
	tokens := access.Open(t.TempDir())
	secret := ""
	status := func(remote, host string, header ...string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, protocol.Path+"/plan", nil)
		r.RemoteAddr, r.Host = remote, host
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		_, err := identify(tokens, "", "")(r)
		if refused, ok := errors.AsType[*refusal.Error](err); ok {
			return refused.Code()
		}
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK
	}
	const near, far = "127.0.0.1:40000", "192.0.2.7:40000"
	for _, c := range []struct {
		remote, host string
		header       []string
		want         int
	}{
		{near, "localhost:8321", nil, http.StatusOK},
		{near, "127.0.0.1:8321", nil, http.StatusOK},
		{"[::1]:40000", "[::1]:8321", nil, http.StatusOK},
		{near, "rebound.example:8321", nil, http.StatusForbidden},
		{near, "192.0.2.1:8321", nil, http.StatusForbidden},
		{near, "localhost:8321", []string{"Origin", "http://localhost:8321"}, http.StatusForbidden},
		{near, "localhost:8321", []string{"Sec-Fetch-Site", "same-origin"}, http.StatusForbidden},
		{near, "localhost:8321", []string{"X-Forwarded-For", "203.0.113.5"}, http.StatusForbidden},
		{far, "localhost:8321", nil, http.StatusForbidden},
	} {
		if got := status(c.remote, c.host, c.header...); got != c.want {
			t.Errorf("from %s for %s, %v: %d, want %d", c.remote, c.host, c.header, got, c.want)
		}
	}
	secret, _, err := tokens.Create(access.Token{Role: access.Agent}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := status(far, "sibyl.example:8321"); got != http.StatusOK {
		t.Errorf("with a token: got %d", got)
	}
	limited, _, err := tokens.Create(access.Token{Role: access.Agent, Services: []string{"shop", "pay-*"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, protocol.Path+"/plan", nil)
	r.Header.Set("Authorization", "Bearer "+limited)
	if who, err := identify(tokens, "", "")(r); err != nil || !slices.Equal(who.Services, []string{"shop", "pay-*"}) {
		t.Errorf("a limited token: %+v, %v", who, err)
	}
	secret = ""
	if got := status(near, "localhost:8321"); got != http.StatusUnauthorized {
		t.Errorf("without a token while one exists: got %d", got)
	}
}
