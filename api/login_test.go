package api

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/internal/testkit/device"
)

// loginHarness is a harness at an address, with an identity provider at which people log in.
type loginHarness struct {
	*harness
	provider *mockoidc.MockOIDC
	device   *device.Endpoint // of the provider
	site     string           // its address
	ahead    atomic.Int64     // nanoseconds that its clock is ahead
}

func newLoginHarness(t *testing.T) *loginHarness {
	t.Helper()
	w := &loginHarness{harness: newHarness(t)}
	var err error
	if w.provider, err = mockoidc.NewServer(nil); err != nil {
		t.Fatal(err)
	}
	w.device = device.Add(t, w.provider)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.provider.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.provider.Shutdown() })
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.ServeHTTP(out, r)
	}))
	t.Cleanup(server.Close)
	w.site = server.URL
	o := w.options
	o.Clock = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	o.Login, err = login.New(login.Options{
		Issuer:       w.provider.Issuer(),
		ClientID:     w.provider.ClientID,
		ClientSecret: w.provider.ClientSecret,
		Scopes:       []string{"openid", "email", "groups"},
		URL:          w.site,
		Roles:        login.Roles{Claim: "groups", Operator: []string{"ops"}, Viewer: []string{"staff"}},
		Dir:          w.dir,
		Clock:        o.Clock,
		Log:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.API, err = New(w, w.store, access.Open(w.dir), o); err != nil {
		t.Fatal(err)
	}
	return w
}

// person returns a client that has logged in as a person of the group.
func (w *loginHarness) person(t *testing.T, group string) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.provider.QueueUser(w.user(group))
	client := &http.Client{Jar: jar}
	if status, body := w.ask(t, client, http.MethodGet, login.StartPath+"?to=/healthz"); status != http.StatusOK {
		t.Fatalf("log-in: %d, %s", status, body)
	}
	return client
}

func (*loginHarness) user(group string) *mockoidc.MockUser {
	return &mockoidc.MockUser{Subject: "1", Email: "ann@example.com", EmailVerified: true, Groups: []string{group}}
}

// ask sends a request, and a view of the UI if it is a POST.
func (w *loginHarness) ask(t *testing.T, c *http.Client, method, path string, headers ...string) (int, string) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"name": "a", "path": "/"}`)
	}
	r, err := http.NewRequest(method, w.site+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// With log-in, nobody is known for being local. Callers learn where to log in.
func TestNobodyIsLocalWithLogIn(t *testing.T) {
	w := newLoginHarness(t)
	for _, headers := range [][]string{nil, {"Cookie", "sibyl-session=x"}, {"Authorization", "Bearer x"}} {
		status, body := w.ask(t, http.DefaultClient, http.MethodGet, prefix+"/status", headers...)
		var refused problem
		if err := json.Unmarshal([]byte(body), &refused); err != nil || status != http.StatusUnauthorized ||
			refused.Login != w.site+login.StartPath {
			t.Errorf("with %v: %d, %s", headers, status, body)
		}
	}
	if status, _ := w.ask(t, http.DefaultClient, http.MethodGet, "/metrics"); status != http.StatusUnauthorized {
		t.Errorf("metrics: %d", status)
	}
}

// Callers learn who they are.
func TestMe(t *testing.T) {
	w := newLoginHarness(t)
	secret, _, err := w.tokens.Create(access.Token{Role: access.Admin, Name: "ops"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		client *http.Client
		token  string
	}{
		`{"name":"ann@example.com","role":"viewer","subject":"1","via":"login"}`: {w.person(t, "staff"), ""},
		`{"name":"ops","role":"admin","via":"token"}`:                            {http.DefaultClient, secret},
	} {
		_, got := w.ask(t, c.client, http.MethodGet, prefix+"/me", "Authorization", "Bearer "+c.token)
		if got != want+"\n" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	local := newHarness(t).get(t, prefix+"/me")
	if got := local.Body.String(); got != `{"name":"local","role":"admin","via":"local"}`+"\n" {
		t.Errorf("without log-in: %s", got)
	}
}

// The role of a person decides what the session allows, and only our own pages can use it for changes.
func TestSessions(t *testing.T) {
	w := newLoginHarness(t)
	operator, viewer := w.person(t, "ops"), w.person(t, "staff")
	for name, c := range map[string]struct {
		client  *http.Client
		headers []string
		want    int
	}{
		"own page":       {operator, []string{"Sec-Fetch-Site", "same-origin", "Origin", w.site}, http.StatusCreated},
		"old browser":    {operator, []string{"Origin", w.site}, http.StatusCreated},
		"viewer":         {viewer, []string{"Origin", w.site}, http.StatusForbidden},
		"no page":        {operator, nil, http.StatusForbidden},
		"foreign page":   {operator, []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"other port":     {operator, []string{"Origin", "http://127.0.0.1:1"}, http.StatusForbidden},
		"sandboxed page": {operator, []string{"Origin", "null"}, http.StatusForbidden},
		"neighbor":       {operator, []string{"Origin", w.site, "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"typed":          {operator, []string{"Sec-Fetch-Site", "none"}, http.StatusForbidden},
	} {
		status, body := w.ask(t, c.client, http.MethodPost, prefix+"/views", c.headers...)
		if status != c.want {
			t.Errorf("%s: %d, want %d: %s", name, status, c.want, body)
		}
		if status == http.StatusCreated && !strings.Contains(body, `"ann@example.com"`) {
			t.Errorf("the author of a view is missing: %s", body)
		}
		if status, _ := w.ask(t, c.client, http.MethodGet, prefix+"/views", c.headers...); status != http.StatusOK {
			t.Errorf("%s: reading: %d", name, status)
		}
	}
}

// With log-in, tokens of Sibyl and of the provider work, too. They take precedence over a session.
func TestTokensWithLogIn(t *testing.T) {
	w := newLoginHarness(t)
	secret, _, err := w.tokens.Create(access.Token{Role: access.Viewer, Name: "grafana"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	session, err := w.provider.SessionStore.NewSession("openid groups", "", w.user("ops"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := session.IDToken(w.provider.Config(), w.provider.Keypair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	operator := w.person(t, "ops")
	for name, c := range map[string]struct {
		client *http.Client
		token  string
		want   int
	}{
		"token of a viewer":             {http.DefaultClient, secret, http.StatusForbidden},
		"token of the provider":         {http.DefaultClient, jwt, http.StatusCreated},
		"forged token of the provider":  {http.DefaultClient, jwt + "x", http.StatusUnauthorized},
		"session and token of a viewer": {operator, secret, http.StatusForbidden},
		"session and an unknown token":  {operator, "sibyl_x", http.StatusUnauthorized},
		"session and a forged JWT":      {operator, "a.b.c", http.StatusUnauthorized},
		"session and an empty bearer":   {operator, "", http.StatusForbidden}, // no page
	} {
		status, body := w.ask(t, c.client, http.MethodPost, prefix+"/views", "Authorization", "Bearer "+c.token)
		if status != c.want {
			t.Errorf("%s: %d, want %d: %s", name, status, c.want, body)
		}
	}
	status, _ := w.ask(t, http.DefaultClient, http.MethodGet, prefix+"/status", "Authorization", "Bearer "+secret)
	if status != http.StatusOK {
		t.Errorf("token of a viewer reads: %d", status)
	}
}

// startDevice starts the log-in of a program and returns its handle.
func (w *loginHarness) startDevice(t *testing.T) string {
	t.Helper()
	status, body := w.ask(t, http.DefaultClient, http.MethodPost, login.DevicePath)
	var started contract.DeviceLogin
	if err := json.Unmarshal([]byte(body), &started); err != nil || status != http.StatusOK {
		t.Fatalf("start: %d, %s", status, body)
	}
	return started.Handle
}

// endDevice asks for the session of a log-in that a person of the group has confirmed.
func (w *loginHarness) endDevice(t *testing.T, handle, group string) (status int, token string) {
	t.Helper()
	w.provider.QueueUser(w.user(group))
	w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
	w.ahead.Add(int64(device.Interval * time.Second))
	status, body := w.ask(t, http.DefaultClient, http.MethodPost, login.DeviceTokenPath,
		"Authorization", "Bearer "+handle)
	var answer contract.DeviceToken
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("end: %d, %s", status, body)
	}
	return status, answer.Token
}

// The session of a program does what the person's role allows, and needs no page.
func TestSessionsOfPrograms(t *testing.T) {
	w := newLoginHarness(t)
	_, operator := w.endDevice(t, w.startDevice(t), "ops")
	_, viewer := w.endDevice(t, w.startDevice(t), "staff")
	for name, c := range map[string]struct {
		token, origin string
		want          int
	}{
		"operator":     {operator, "", http.StatusCreated},
		"own page":     {operator, w.site, http.StatusCreated},
		"foreign page": {operator, "https://evil.example", http.StatusForbidden},
		"viewer":       {viewer, "", http.StatusForbidden},
		"forged":       {operator[:len(operator)-4] + "AAAA", "", http.StatusUnauthorized},
	} {
		status, body := w.ask(t, http.DefaultClient, http.MethodPost, prefix+"/views",
			"Authorization", "Bearer "+c.token, "Origin", c.origin)
		if status != c.want {
			t.Errorf("%s: %d, want %d: %s", name, status, c.want, body)
		}
	}
	_, got := w.ask(t, http.DefaultClient, http.MethodGet, prefix+"/me", "Authorization", "Bearer "+operator)
	if want := `{"name":"ann@example.com","role":"operator","subject":"1","via":"login"}` + "\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Pages can't start the log-in of a program, not even those whose name was resolved to the service.
func TestPagesStartNoLogIn(t *testing.T) {
	w := newLoginHarness(t)
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", w.site}, {"Sec-Fetch-Site", "same-origin"},
	} {
		status, body := w.ask(t, http.DefaultClient, http.MethodPost, login.DevicePath, headers...)
		if status != http.StatusForbidden || w.device.Starts != 0 {
			t.Errorf("%v: %d, %s", headers, status, body)
		}
	}
}
